"""The same client against our servers and Apache's: equal answers.

The reference is the recording of Apache 5.5.0. Where we differ a row of allowed.py says why, and whether we
answer as the recording of 4.9.7 does. A few pairs are asked again each time, so that a stale recording
shows; `-m long` asks all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from . import clients, compare, peers, recordings
from .allowed import ALLOWED, Judge
from .conftest import StartOnce

_judge = Judge(ALLOWED)
_compared: set[str] = set()


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_our_servers_answer_as_apache_did(client: str, start_once: StartOnce, tmp_path: Path) -> None:
    recorded, older = (recordings.load(client, server) for server in (recordings.REFERENCE, recordings.OLDER))
    seen = clients.run_scenarios(client, start_once(peers.OURS), tmp_path)
    _compared.add(client)
    unexpected = _judge.unexpected(recorded, older, seen)
    assert not unexpected, compare.listing(unexpected)


def test_every_allowed_difference_is_still_needed() -> None:
    if _compared != set(clients.CLIENTS):
        pytest.skip("needs the answers of every client in this session")
    assert not _judge.stale(), "\n".join(_judge.stale())


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
