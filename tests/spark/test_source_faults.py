"""Reading while a broker is not there: the format `rocketmq` gives all rows or names what is missing.

Table: broker {killed, stopped, cut off} x {batch, first offset, later trigger, AvailableNow} x {one broker,
several}. A cell reads during the fault, which must fail and name the broker, or wait for it; and after it,
when every row must be there once. The core of the table runs always, the rest is `long`.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.workers import eventually
from tests.spark.stream_kit import WAIT_S, wait_until

from turbopump import Admin, Message, Producer
from turbopump.client.message import MessageQueue

from .sending import PATIENCE_S, create

FAULTS = ("killed", "stopped", "cut off")
WAYS = ("batch", "first offset", "later trigger", "AvailableNow")
SIZES = ("one broker", "several")
CORE = {
    *(("killed", way, "several") for way in WAYS),
    ("stopped", "batch", "several"),
    ("cut off", "batch", "several"),
    ("killed", "batch", "one broker"),
}
ROWS = 5  # of each broker at a time
IMPATIENT = {"fetchOffset.numRetries": "0"}


@dataclass
class Brokers:
    """Brokers behind one name server; the last one is the victim."""

    members: dict[str, peers.Cluster]

    @property
    def namesrv(self) -> str:
        return next(iter(self.members.values())).namesrv

    @property
    def victim(self) -> str:
        return list(self.members)[-1]

    @contextmanager
    def fault(self, kind: str) -> Iterator[None]:
        victim = self.members[self.victim]
        if kind == "cut off":
            victim.servers[-1].signal(signal.SIGSTOP)
        elif kind == "stopped":
            victim.stop_broker()
        else:
            victim.kill_broker()
        try:
            yield
        finally:
            if kind == "cut off":
                victim.servers[-1].signal(signal.SIGCONT)
            else:
                victim.start_broker()

    def send(self, topic: str, first: int, *names: str) -> Counter[str]:
        """Rows into each of these brokers; the queues show them when it returns."""
        sent: Counter[str] = Counter()
        for name in names or self.members:
            queue = MessageQueue(topic, name, 0)
            bodies = [f"{name} {number}" for number in range(first, first + ROWS)]
            with Producer("spark-tests", name_servers=self.namesrv) as producer:
                last = producer.send_batch([Message(topic, one.encode()) for one in bodies], queue=queue)[-1]
            with Admin(self.namesrv) as admin:
                assert eventually(lambda: admin.queues.max_offset(queue) > last.offset, PATIENCE_S)  # noqa: B023
            sent.update(bodies)
        return sent


@pytest.fixture(scope="module")
def brokers_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Brokers]]:
    started: dict[str, Brokers] = {}

    def of(size: str) -> Brokers:
        if size not in started:
            home = tmp_path_factory.mktemp(size.replace(" ", "-"))
            first = peers.start(peers.OURS, peers.place(home / "a"))
            started[size] = Brokers({"broker-a": first})
            if size == "several":
                started[size].members["broker-b"] = peers.join(first, home / "b", "broker-b")
        return started[size]

    yield of
    for brokers in started.values():
        for member in reversed(brokers.members.values()):
            member.discard()


def cells() -> list[Any]:
    return [
        pytest.param(*cell, id="-".join(cell), marks=() if cell in CORE else pytest.mark.long)
        for cell in ((fault, way, size) for size in SIZES for way in WAYS for fault in FAULTS)
    ]


@pytest.mark.parametrize(("fault", "way", "size"), cells())
def test_all_rows_or_an_error_that_names_the_broker(spark, brokers_of, topic, tmp_path, fault, way, size):
    brokers = brokers_of(size)
    for member in brokers.members.values():
        create(member, topic, 1)
    READS[way](spark, brokers, topic, fault, tmp_path)


def read_batch(spark: Any, brokers: Brokers, topic: str, fault: str, home: Any) -> None:
    sent = brokers.send(topic, 0)
    frame = spark.read.format("rocketmq").options(**options(brokers, topic))
    with brokers.fault(fault), pytest.raises(Exception, match=f"is missing: broker {brokers.victim}"):
        frame.load().collect()
    assert bodies(frame.load()) == sent


def read_first_offset(spark: Any, brokers: Brokers, topic: str, fault: str, home: Any) -> None:
    sent = brokers.send(topic, 0)
    found: Counter[str] = Counter()
    with brokers.fault(fault), pytest.raises(Exception, match=f"is missing: broker {brokers.victim}"):
        run(spark, brokers, topic, home, found)
    assert not found
    run(spark, brokers, topic, home, found)
    assert found == sent


def read_later_trigger(spark: Any, brokers: Brokers, topic: str, fault: str, home: Any) -> None:
    """A stream waits for the broker and reads the others meanwhile."""
    sent = brokers.send(topic, 0)
    found: Counter[str] = Counter()
    query = writer(spark, brokers, topic, home, found).start()
    try:
        wait_until(lambda: found == sent, query)
        with brokers.fault(fault):
            if others := list(brokers.members)[:-1]:
                sent += brokers.send(topic, ROWS, *others)
                wait_until(lambda: found == sent, query)
        sent += brokers.send(topic, 2 * ROWS)
        wait_until(lambda: sum(found.values()) >= sum(sent.values()), query)
    finally:
        query.stop()
    assert found == sent


def read_available_now(spark: Any, brokers: Brokers, topic: str, fault: str, home: Any) -> None:
    sent = brokers.send(topic, 0)
    found: Counter[str] = Counter()
    run(spark, brokers, topic, home, found)
    assert found == sent
    sent += brokers.send(topic, ROWS)
    with brokers.fault(fault), pytest.raises(Exception, match=f"is missing: broker {brokers.victim}"):
        run(spark, brokers, topic, home, found)
    run(spark, brokers, topic, home, found)
    assert found == sent


READS = dict(zip(WAYS, (read_batch, read_first_offset, read_later_trigger, read_available_now), strict=True))


def options(brokers: Brokers, topic: str) -> dict[str, str]:
    given = {"nameServer": brokers.namesrv, "subscribe": topic, "columns": "body", **IMPATIENT}
    return {**given, "startingOffsets": "earliest"}


def writer(spark: Any, brokers: Brokers, topic: str, home: Any, found: Counter[str]) -> Any:
    frame = spark.readStream.format("rocketmq").options(**options(brokers, topic)).load()
    keep = frame.writeStream.foreachBatch(lambda batch, _: found.update(bodies(batch)))
    return keep.option("checkpointLocation", str(home / "checkpoint"))


def run(spark: Any, brokers: Brokers, topic: str, home: Any, found: Counter[str]) -> None:
    query = writer(spark, brokers, topic, home, found).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()


def bodies(frame: Any) -> Counter[str]:
    return Counter(bytes(row.body).decode() for row in frame.collect())
