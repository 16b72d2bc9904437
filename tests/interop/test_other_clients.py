"""Clients of other makers send to our servers and get everything back, as they do from Apache's.

The Rust client is built from 400 crates when the cache is cold, for minutes: it runs with `-m long`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from . import other_clients, peers
from .conftest import StartOnce
from .recordings import OLDER

COUNT = 40


@pytest.mark.parametrize("server", [peers.OURS, OLDER])
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, marks=pytest.mark.long if client == "rust" else ())
        for client in other_clients.CLIENTS
    ],
)
def test_every_message_comes_back(client: str, server: str, start_once: StartOnce, tmp_path: Path) -> None:
    arrived = other_clients.send_and_consume(client, start_once(server), tmp_path, COUNT)
    assert sorted(arrived) == sorted(f"m{number}" for number in range(COUNT))
