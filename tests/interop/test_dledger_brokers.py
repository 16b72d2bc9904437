"""Whole brokers in a DLedger group: three of ours, and groups of Apache 4.9.7's and ours together."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from turbopump.protocol.names import TABLE_TOPIC

from . import clients, peers, topics, workers
from .dledger_group import APACHE, DLedgerBrokers, compared
from .workers import Crew

TOPIC, QUEUES = "orders", 4
SENT_WITHIN_S = 60.0
OURS = (peers.OURS,) * 3
APACHE_TROUBLE = ("dispatch message failed", "[BUG]", "Got unexpected error")


class Traffic:
    """Producers and consumers of some clients, each with a group of its own."""

    def __init__(self, group: DLedgerBrokers, names: Iterable[str]) -> None:
        logs = group.home / "logs"
        logs.mkdir()
        topics.create(group.brokers[group.leader()], TOPIC, QUEUES)
        self._crew = Crew(group.namesrv, logs, {"EVERY_MS": "1000", "SEND_TIMEOUT_S": "30"})
        self._readers: list[str] = []
        self._producers = []
        for client in names:
            name = client.replace(".", "_")
            self._readers.append(f"read-{name}")
            self._crew.add(client, f"consume:read-{name}:read-{name}:{TOPIC}:concurrent")
            self._producers.append(self._crew.add(client, f"produce:send-{name}:{TOPIC}:4:20:sync"))

    def __enter__(self) -> Traffic:
        self._crew.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.kill()

    def expect_sends(self) -> None:
        """Waits until every producer has a message acknowledged that it first tried after now."""
        since = time.time() * 1e6

        def all_send() -> bool:
            fresh = {one.key.rpartition("-")[0] for one in self._acknowledged() if one.sequence > since}
            return len(fresh) == len(self._producers)

        assert workers.eventually(all_send, SENT_WITHIN_S), "a producer does not send"

    def end(self) -> None:
        """Ends the producers and waits until every group has all that was acknowledged.

        Java's and Go's producers may fail while no master is registered; ours waits as long as its timeout.
        """
        for producer in self._producers:
            producer.stop()
        ours = [one.key for one in self._crew.failed(TOPIC) if one.key.startswith(f"send-{clients.PYTHON}")]
        assert not ours, f"{len(ours)} sends of our producer failed within its timeout: {ours[:3]}"
        for reader in self._readers:
            assert workers.eventually(partial(self._has_all, reader), SENT_WITHIN_S), (
                f"{reader} did not get {len(self._lost(reader))} of {len(self._acknowledged())} "
                "acknowledged messages"
            )

    def offsets(self) -> set[tuple[int, int]]:
        """Returns queue and offset of every acknowledged message."""
        return {(one.queue, one.offset) for one in self._acknowledged()}

    def _has_all(self, reader: str) -> bool:
        return not self._lost(reader)

    def _lost(self, reader: str) -> list[workers.Sent]:
        return workers.lost(self._acknowledged(), self._crew.got(reader))

    def _acknowledged(self) -> list[workers.Sent]:
        return self._crew.acknowledged(TOPIC)


def expect_all_stored(group: DLedgerBrokers, traffic: Traffic) -> None:
    """Every member gives out every acknowledged message."""
    for number in range(len(group.brokers)):
        group.expect(partial(has_all, group, number, traffic), f"n{number} lacks acknowledged messages")


def has_all(group: DLedgerBrokers, number: int, traffic: Traffic) -> bool:
    return not traffic.offsets() - stored(group, number)


def stored(group: DLedgerBrokers, number: int) -> set[tuple[int, int]]:
    return {(one.queue_id, one.queue_offset) for one in group.records(number, TOPIC, QUEUES)}


def expect_equal_logs(group: DLedgerBrokers) -> None:
    """Stops all members; their logs have equal entries as far as the shortest goes."""
    for number, broker in enumerate(group.brokers):
        if broker.servers:
            group.stop(number)
    logs = [[compared(entry) for entry in group.entries(number)] for number in range(len(group.brokers))]
    common = min(map(len, logs))
    assert common > 0
    assert all(log[:common] == logs[0][:common] for log in logs)


def expect_no_trouble_at_apaches(group: DLedgerBrokers) -> None:
    """No broker of Apache's, even one that ours has replaced, logged that it could not take a message in."""
    logs = [broker.place.home / "broker-logback.log" for broker in group.brokers]
    lines = [line for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines()]
    assert lines, "Apache's brokers have no log"
    bad = [line for line in lines if any(word in line for word in APACHE_TROUBLE)]
    assert not bad, bad[:5]


def lose_leaders(group: DLedgerBrokers, traffic: Traffic, times: int) -> list[str]:
    """Kills the leader so often, and starts it again; returns the kinds that led afterwards."""
    kinds = []
    for _ in range(times):
        traffic.expect_sends()
        old = group.leader()
        group.kill(old)
        traffic.expect_sends()
        kinds.append(group.brokers[group.leader()].kind)
        group.start(old)
    return kinds


def test_clients_go_on_when_the_leader_of_our_group_is_killed(tmp_path: Path) -> None:
    with DLedgerBrokers(tmp_path, OURS) as group, Traffic(group, ("java-4.9.8", clients.PYTHON)) as traffic:
        lose_leaders(group, traffic, 1)
        traffic.end()
        expect_all_stored(group, traffic)


@pytest.mark.long
@pytest.mark.parametrize("namesrv", [peers.OURS, APACHE])
def test_all_clients_go_on_through_three_deaths_of_leaders(tmp_path: Path, namesrv: str) -> None:
    names = ("java-4.9.8", clients.GO, clients.PYTHON)
    with DLedgerBrokers(tmp_path, OURS, namesrv) as group, Traffic(group, names) as traffic:
        lose_leaders(group, traffic, 3)
        traffic.end()
        expect_all_stored(group, traffic)
        expect_equal_logs(group)


@pytest.mark.parametrize(
    "kinds",
    [(APACHE, APACHE, peers.OURS), (APACHE, peers.OURS, peers.OURS)],
    ids=["two of Apache's", "two of ours"],
)
def test_in_a_mixed_group_each_kind_follows_and_leads_the_other(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    with DLedgerBrokers(tmp_path, kinds) as group, Traffic(group, ("java-4.9.8",)) as traffic:
        for kind in (peers.OURS, APACHE, peers.OURS):
            group.lead_with(kind)
            traffic.expect_sends()
        if kinds.count(APACHE) > 1:  # they have records of our tables behind them, and lead again
            group.lead_with(APACHE)
            traffic.expect_sends()
        traffic.end()
        expect_all_stored(group, traffic)
        expect_no_trouble_at_apaches(group)
        expect_equal_logs(group)
        assert any(TABLE_TOPIC.encode() in entry.body for entry in group.entries(0))


@pytest.mark.long
@pytest.mark.parametrize(
    "kinds",
    [(peers.OURS, APACHE, APACHE), (APACHE, peers.OURS, peers.OURS)],
    ids=["Apache's to ours", "ours to Apache's"],
)
def test_a_leader_of_one_kind_gives_its_leadership_to_a_live_member_of_the_other(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    """By preferredLeaderId, which both know: request 51005 in either direction."""
    preferred = {"preferredLeaderId": "n0"}
    with DLedgerBrokers(tmp_path, kinds, conf=preferred) as group, Traffic(group, ("java-4.9.8",)) as traffic:
        group.expect(lambda: group.leader() == 0, "n0 does not lead")
        traffic.expect_sends()
        group.kill(0)
        assert group.brokers[group.leader()].kind == kinds[1]
        traffic.expect_sends()
        group.start(0)
        group.expect(lambda: group.leader() == 0, "n0 does not lead again")
        traffic.expect_sends()
        traffic.end()
        expect_all_stored(group, traffic)
        expect_no_trouble_at_apaches(group)
        expect_equal_logs(group)


def test_a_group_moves_from_apaches_brokers_to_ours_while_a_producer_runs(tmp_path: Path) -> None:
    with DLedgerBrokers(tmp_path, (APACHE,) * 3) as group, Traffic(group, ("java-4.9.8",)) as traffic:
        for number in range(3):
            traffic.expect_sends()
            group.stop(number)
            traffic.expect_sends()
            group.start_as(number, peers.OURS)
        traffic.expect_sends()
        traffic.end()
        expect_all_stored(group, traffic)
        expect_no_trouble_at_apaches(group)
        expect_equal_logs(group)


def test_a_member_that_lost_its_disk_gets_everything_again(tmp_path: Path) -> None:
    with DLedgerBrokers(tmp_path, OURS) as group, Traffic(group, (clients.PYTHON,)) as traffic:
        traffic.expect_sends()
        lost = next(number for number in range(3) if number != group.leader())
        group.kill(lost)
        traffic.expect_sends()
        group.lose_disk(lost)
        group.start(lost)
        traffic.end()
        expect_all_stored(group, traffic)
        expect_equal_logs(group)
