"""Clients of other makers send to our servers and get everything back, as they do from Apache's.

The Rust client is built from 360 crates when the cache is cold, for minutes: it runs with `-m long`. It does
not read the routes of a 4.9.7 name server, whose keys are bare integers, so its other side is 5.5.0.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from . import other_clients, peers
from .conftest import StartOnce
from .recordings import OLDER, REFERENCE

COUNT = 40
RUST = "rust"
PAIRS = [
    pytest.param(client, server, marks=pytest.mark.long if client == RUST else ())
    for client in other_clients.CLIENTS
    for server in (peers.OURS, REFERENCE if client == RUST else OLDER)
]


@pytest.mark.parametrize(("client", "server"), PAIRS)
def test_every_message_comes_back(client: str, server: str, start_once: StartOnce, tmp_path: Path) -> None:
    arrived = other_clients.send_and_consume(client, start_once(server), tmp_path, COUNT)
    assert sorted(arrived) == sorted(f"m{number}" for number in range(COUNT))
