"""The same client against our servers and Apache's: equal answers.

The reference is the recording of Apache 5.5.0. A few pairs are asked again each time, so that a stale
recording shows; `-m long` asks all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from . import clients, compare, peers, recordings
from .allowed import ALLOWED, Allowed
from .conftest import StartOnce

_used: set[Allowed] = set()
_compared: set[str] = set()


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_our_servers_answer_as_apache_did(client: str, start_once: StartOnce, tmp_path: Path) -> None:
    recorded = recordings.load(client, recordings.REFERENCE)
    seen = clients.run_scenarios(client, start_once(peers.OURS), tmp_path)
    _compared.add(client)
    unexpected = []
    for difference in compare.differences(recorded, seen):
        rows = [row for row in ALLOWED if row.covers(difference)]
        _used.update(rows)
        if not rows:
            unexpected.append(difference)
    assert not unexpected, compare.listing(unexpected)


def test_every_allowed_difference_is_still_needed() -> None:
    if _compared != set(clients.CLIENTS):
        pytest.skip("needs the answers of every client in this session")
    stale = [row for row in ALLOWED if row not in _used]
    assert not stale, "\n".join(f"{row.where}: {row.reason}" for row in stale)


@pytest.mark.parametrize(
    ("client", "server"),
    [
        pytest.param(*pair, marks=() if pair in recordings.LIVE_PAIRS else pytest.mark.long)
        for pair in recordings.PAIRS
    ],
)
def test_apache_still_answers_as_recorded(
    client: str, server: str, start_once: StartOnce, tmp_path: Path
) -> None:
    seen = clients.run_scenarios(client, start_once(server), tmp_path)
    found = list(compare.differences(recordings.load(client, server), seen))
    assert not found, compare.listing(found) + "\nIf Apache is right: make record"
