"""Apache's mqadmin, every command, on our servers and on Apache's: the same facts.

The reference is the recording of Apache 5.5.0, as for the clients. Commands of 5.x whose feature we do not
have are refused with a code that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import again
from tests.interop.mqadmin_commands import ACCESS_OF_4_9, COMMANDS_OF_5

from . import compare, mqadmin, peers, recordings
from .allowed import Allowed
from .allowed_admin import ALLOWED_MQADMIN, without_marks
from .mqadmin_operators import OVERVIEW

REFUSED = re.compile(
    r"CODE: 3 DESC: request type \d+ not supported|\[?broker-a\]? error"
    r"|CODE: 29 DESC: POP is not supported by this broker"
    r"|No topic route to do the remapping"  # because the static topic could not be made before
)

NOT_ASKED = {
    *ACCESS_OF_4_9,
    "getAclConfig",
    "deleteAccessConfig",
    "dumpCompactionLog",
    "exportMetadataInRocksDB",
}

_used: set[Allowed] = set()
_compared: set[str] = set()


@pytest.mark.parametrize("client", mqadmin.APACHES)
def test_mqadmin_prints_of_our_servers_what_it_prints_of_apaches(client: str, tmp_path: Path) -> None:
    recorded = recordings.load(client, recordings.REFERENCE)
    seen = without_marks(mqadmin.ask(client, peers.OURS, tmp_path))
    _compared.add(client)
    broken = list(_neither_answered_nor_refused(recorded.pop(COMMANDS_OF_5), seen.pop(COMMANDS_OF_5)))
    assert not broken, "\n".join(broken)
    unexpected = []
    for difference in compare.differences(recorded, seen):
        rows = [row for row in ALLOWED_MQADMIN if row.covers(difference)]
        _used.update(rows)
        if not rows:
            unexpected.append(difference)
    assert not unexpected, compare.listing(unexpected)


def _neither_answered_nor_refused(recorded: dict[str, Any], seen: dict[str, Any]) -> Iterator[str]:
    assert recorded.keys() == seen.keys()
    for command, facts in seen.items():
        if facts != recorded[command] and not REFUSED.search(str(facts)):
            yield f"{command}\n    recorded: {recorded[command]}\n    seen:     {facts}"


@pytest.mark.parametrize("client", mqadmin.APACHES)
def test_every_command_is_asked(client: str) -> None:
    recorded = recordings.load(client, recordings.REFERENCE)
    asked = {command.split()[0].lower() for steps in recorded.values() for command in steps}
    commands = set(recorded["frame"][OVERVIEW])
    assert len(commands) > 50
    assert {name for name in commands if name.lower() not in asked} - NOT_ASKED == set()


def test_every_allowed_difference_of_mqadmin_is_still_needed() -> None:
    if _compared != set(mqadmin.APACHES):
        pytest.skip("needs what every mqadmin printed in this session")
    stale = [row for row in ALLOWED_MQADMIN if row not in _used]
    assert not stale, "\n".join(f"{row.where}: {row.reason}" for row in stale)


@pytest.mark.parametrize(
    ("client", "server"),
    [
        pytest.param(*pair, marks=() if pair in mqadmin.LIVE_PAIRS else pytest.mark.long)
        for pair in mqadmin.PAIRS
    ],
)
def test_mqadmin_still_prints_of_apaches_servers_what_was_recorded(
    client: str, server: str, tmp_path: Path
) -> None:
    """Apache's servers may be late beside other tests: then a fresh cluster is asked, and the run says so."""
    found = _changed(client, server, tmp_path / "first")
    if found:
        again.record(f"{client} on {server} differed from the recording", compare.listing(found))
        found = _changed(client, server, tmp_path / "second")
    assert not found, compare.listing(found) + "\nIf Apache is right: make record"


def _changed(client: str, server: str, work: Path) -> list[compare.Difference]:
    work.mkdir()
    return list(compare.differences(recordings.load(client, server), mqadmin.ask(client, server, work)))
