"""Three brokers of ours in a DLedger group, and clients of Java and ours while its leader is killed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from . import clients, peers, topics, workers
from .dledger_group import DLedgerBrokers
from .workers import Crew

TOPIC, QUEUES = "orders", 4
SENT_WITHIN_S = 60.0
OURS = (peers.OURS,) * 3


class Traffic:
    """Producers and consumers of some clients, each with a group of its own."""

    def __init__(self, group: DLedgerBrokers, names: Iterable[str]) -> None:
        logs = group.home / "logs"
        logs.mkdir()
        topics.create(group.brokers[group.leader()], TOPIC, QUEUES)
        self._crew = Crew(group.namesrv, logs, {"EVERY_MS": "1000"})
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
        """Ends the producers and waits until every group has all that was acknowledged."""
        for producer in self._producers:
            producer.stop()
        for reader in self._readers:
            assert workers.eventually(partial(self._has_all, reader), SENT_WITHIN_S), (
                f"{reader} did not get {len(self._lost(reader))} of {len(self._acknowledged())} "
                "acknowledged messages"
            )

    @property
    def failed(self) -> int:
        return len(self._crew.failed(TOPIC))

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
