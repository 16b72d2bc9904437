"""A broker of two is killed, then the name server: no caller of `send` hears of it, and all is consumed."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from pathlib import Path

import pytest

from turbopump import ConsumeFromWhere, Consumer, Message, Producer, SendResult

from . import artifacts, peers, topics
from .workers import eventually

TOPIC = "outages"
A, B = "broker-a", "broker-b"
PATIENCE_S = 90.0
ENOUGH = 100  # sends in each situation
INTERVAL_S = 0.01
ROUTES_S = 1.0  # instead of 30: looks for brokers that are back


def test_outages_of_our_servers_reach_no_caller(tmp_path: Path) -> None:
    check(peers.OURS, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", artifacts.SERVERS)
def test_outages_of_apaches_servers_reach_no_caller(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path)


class Load:
    """One thread that sends, one message after the other."""

    def __init__(self, producer: Producer) -> None:
        self.sent: dict[str, SendResult] = {}
        self.failures: list[Exception] = []
        self._producer = producer
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def goes_on(self, *brokers: str) -> None:
        """Until so many more have been stored by each of these."""
        before = self._stored()

        def enough() -> bool:
            now = self._stored()
            return all(now[broker] - before[broker] >= ENOUGH for broker in brokers)

        assert eventually(enough, PATIENCE_S, poll_s=0.05), (before, self._stored(), self.failures[:5])

    def _stored(self) -> Counter[str]:
        return Counter(result.queue.broker for result in list(self.sent.values()))

    def _run(self) -> None:
        for number in itertools.count():
            if self._ended.wait(INTERVAL_S):
                return
            try:
                self.sent[str(number)] = self._producer.send(Message(TOPIC, b"%d" % number))
            except Exception as error:
                self.failures.append(error)


def check(kind: str, home: Path) -> None:
    a = peers.start(kind, peers.place(home / "a"))
    b: peers.Cluster | None = None
    try:
        b = peers.join(a, home / "b", B)
        play(a, b)
    finally:
        if b is not None:
            b.discard()
        a.discard()


def play(a: peers.Cluster, b: peers.Cluster) -> None:
    for broker in (a, b):
        topics.create(broker, TOPIC, 2)
    got: set[str] = set()
    consumer = Consumer(
        "readers",
        name_servers=a.namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_name_server_interval=ROUTES_S,
    )
    consumer.subscribe(TOPIC, lambda message: got.add(message.text))
    producer = Producer("senders", name_servers=a.namesrv, poll_name_server_interval=ROUTES_S)
    with consumer, producer:
        with Load(producer) as load:
            load.goes_on(A, B)
            b.kill_broker()
            load.goes_on(A)
            b.start_broker()
            load.goes_on(A, B)
            a.servers[0].kill()  # the name server
            load.goes_on(A, B)
        assert load.failures == []
        assert eventually(lambda: set(load.sent) <= got, PATIENCE_S), set(load.sent) - got
