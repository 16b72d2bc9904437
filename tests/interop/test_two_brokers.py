"""A broker added, killed and removed under load: as with Apache's; what may be lost is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import compare, peers, recordings, two_brokers
from .conftest import Early

OURS = "two-brokers"
EARLY = {OURS: lambda home: two_brokers.observe(two_brokers.IN_CI, peers.OURS, home)}
REST = tuple(client for client in two_brokers.CLIENTS if client != two_brokers.IN_CI)


@pytest.mark.early(OURS)
def test_a_broker_is_added_killed_and_removed_as_with_apache(
    early: Early, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_as_recorded(two_brokers.IN_CI, recordings.REFERENCE, early(OURS), capsys)


@pytest.mark.long
@pytest.mark.parametrize("client", REST)
def test_the_same_with_the_other_clients(
    client: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observed = two_brokers.observe(client, peers.OURS, tmp_path)
    expect_as_recorded(client, recordings.REFERENCE, observed, capsys)


@pytest.mark.long
@pytest.mark.parametrize(("client", "server"), two_brokers.PAIRS)
def test_apache_still_behaves_as_recorded(
    client: str, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_as_recorded(client, server, two_brokers.observe(client, server, tmp_path), capsys)


def expect_as_recorded(
    client: str, server: str, seen: two_brokers.AnsweredRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\n{client}: {', '.join(seen.counts)}")
    found = list(compare.differences(recordings.load(client, server), seen.answers))
    assert not found, f"{client}: {compare.listing(found)}"
