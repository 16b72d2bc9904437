"""Killed and silent members, scaled topics, restarted brokers: as with Apache, and nothing is lost."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from . import compare, members, peers, recordings
from .clients import Answers
from .conftest import Early

OURS = "members"
EARLY = {OURS: lambda home: members.observe_all(members.IN_CI, peers.OURS, home)}
REST = tuple(client for client in members.CLIENTS if client not in members.IN_CI)


@pytest.mark.early(OURS)
@pytest.mark.parametrize("client", members.IN_CI)
def test_groups_survive_on_our_broker_as_on_apaches(client: str, early: Early) -> None:
    answers: dict[str, Future[Answers]] = early(OURS)
    expect_as_recorded(client, recordings.REFERENCE, answers[client].result())


@pytest.mark.long
def test_groups_of_the_other_clients_survive_too(tmp_path: Path) -> None:
    for client, answers in members.observe_all(REST, peers.OURS, tmp_path).items():
        expect_as_recorded(client, recordings.REFERENCE, answers.result())


@pytest.mark.long
@pytest.mark.parametrize("server", sorted({server for _, server in members.PAIRS}))
def test_apache_still_lets_groups_survive_as_recorded(server: str, tmp_path: Path) -> None:
    names = [client for client, at in members.PAIRS if at == server]
    for client, answers in members.observe_all(names, server, tmp_path).items():
        expect_as_recorded(client, server, answers.result())


def expect_as_recorded(client: str, server: str, seen: Answers) -> None:
    found = list(compare.differences(recordings.load(client, server), seen))
    assert not found, f"{client}: {compare.listing(found)}"
