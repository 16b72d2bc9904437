"""Our mqadmin, on Apache's servers and on ours: the facts that Apache's mqadmin prints there.

Apache's are the recordings; see test_mqadmin for how they are kept fresh. Apache's mqadmin 5.5.0 often fails
at a server of 4.9.7: there it is enough when ours agrees with 4.9.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.mqadmin_commands import ACCESS_OF_4_9, COMMANDS_OF_5

from turbopump.admin.commands import BY_NAME

from . import artifacts, mqadmin, mqadmin_facts, peers, recordings
from .allowed import Allowed
from .allowed_admin import (
    ALLOWED_MQADMIN,
    ALLOWED_OUR_MQADMIN,
    ALLOWED_OUR_MQADMIN_AT_4_9,
    without_marks,
)
from .clients import Answers
from .compare import ABSENT, Difference, listing
from .mqadmin_operators import OVERVIEW

SERVERS = (peers.OURS, *artifacts.SERVERS)
OLD = artifacts.SERVERS[0]
ALSO_ALLOWED = {peers.OURS: ALLOWED_MQADMIN, OLD: ALLOWED_OUR_MQADMIN_AT_4_9}
ABOUT_USERS = frozenset(
    (
        *("createUser", "updateUser", "getUser", "listUser", "copyUser", "deleteUser"),
        *("createAcl", "updateAcl", "getAcl", "listAcl", "copyAcl", "deleteAcl"),
    )
)
"""Commands that test_access_control runs at servers with users."""
SERVED = ("updateTopicList", "updateSubGroupList", "topicRoute", "getConsumerConfig", "haStatus")

_used: set[Allowed] = set()
_compared: set[str] = set()


@pytest.mark.parametrize("server", SERVERS)
def test_our_mqadmin_prints_the_facts_that_apaches_prints(server: str, tmp_path: Path) -> None:
    seen = without_marks(mqadmin.ask(mqadmin.OURS, server, tmp_path))
    _compared.add(server)
    rows = (*ALLOWED_OUR_MQADMIN, *ALSO_ALLOWED.get(server, ()))
    unexpected = []
    for difference in _differences(recordings.REFERENCE if server == peers.OURS else server, seen):
        covering = [row for row in rows if row.covers(difference)]
        _used.update(covering)
        if not covering:
            unexpected.append(difference)
    assert not unexpected, listing(unexpected)


def _differences(server: str, seen: Answers) -> Iterator[Difference]:
    older, newer = (recordings.load(client, server) for client in mqadmin.APACHES)
    for section, steps in newer.items():
        for command in {**steps, **seen[section]}:
            path = f"{section} / {command}"
            ours = seen[section].get(command, ABSENT)
            if section == COMMANDS_OF_5 and command.split()[0] in ABOUT_USERS:
                if "mqadmin: refused by <broker>: " not in str(ours):
                    yield Difference(path, "a refusal: these servers have no users", ours)
                continue
            if section == COMMANDS_OF_5 and not command.startswith(SERVED):
                if "is not supported: it needs " not in str(ours):
                    yield Difference(path, "a word that it is not supported", ours)
                continue
            found = list(mqadmin_facts.differences(steps.get(command, ABSENT), ours, path))
            if found and server == OLD and command in older[section]:
                found_by_older = list(mqadmin_facts.differences_of_4_9(older[section][command], ours, path))
                found = [each for each in found if any(_overlap(each, other) for other in found_by_older)]
            yield from found


def _overlap(one: Difference, other: Difference) -> bool:
    return one.path.startswith(other.path) or other.path.startswith(one.path)


def test_our_mqadmin_has_every_command_of_4_9() -> None:
    recorded = recordings.load(mqadmin.APACHES[0], recordings.REFERENCE)
    assert set(recorded["frame"][OVERVIEW]) - ACCESS_OF_4_9 <= {command.name for command in BY_NAME.values()}


def test_every_allowed_difference_of_our_mqadmin_is_still_needed() -> None:
    if _compared != set(SERVERS):
        pytest.skip("needs what our mqadmin printed of every server in this session")
    stale = [row for row in (*ALLOWED_OUR_MQADMIN, *ALLOWED_OUR_MQADMIN_AT_4_9) if row not in _used]
    assert not stale, "\n".join(f"{row.where}: {row.reason}" for row in stale)
