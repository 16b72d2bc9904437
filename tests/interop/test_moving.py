"""Moving from Apache without stopping, as in docs/operate.md: our broker joins an Apache cluster under load,
the old broker is drained and shut down, and the clients notice nothing; and the same way back.
"""

from __future__ import annotations

import pytest

from . import peers, two_brokers
from .conftest import Early

CLIENT = two_brokers.IN_CI
OFF, BACK = "off-apache", "back-to-apache"
EARLY = {
    OFF: lambda home: two_brokers.move(CLIENT, "4.9.7", peers.OURS, home),
    BACK: lambda home: two_brokers.move(CLIENT, peers.OURS, "5.5.0", home),
}


@pytest.mark.early(OFF)
def test_a_cluster_of_apache_is_moved_to_our_broker_under_load(
    early: Early, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_moved(early(OFF), capsys)


@pytest.mark.long
@pytest.mark.early(BACK)
def test_a_cluster_of_ours_is_moved_to_apache_under_load(
    early: Early, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_moved(early(BACK), capsys)


def expect_moved(seen: two_brokers.AnsweredRequest, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{CLIENT}: {', '.join(seen.counts)}")
    added, removed = seen.answers["added"], seen.answers["removed"]
    assert added.pop("an old topic stays where it is") == [two_brokers.A]
    assert all(added.values()), added
    assert all(removed.values()), removed
    assert seen.answers["in the end"] == {"sync sends failed": 0, "acknowledged and not consumed": 0}
