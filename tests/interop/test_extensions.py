"""Consume queue extension files travel: Apache → ours → Apache on one directory, with groups that choose by
SQL92 and by tags at each station. `enableConsumeQueueExt` and `enableCalcFilterBitMap` are on everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from turbopump import ConsumeFromWhere, Consumer, Message, MessageExt, Producer, PullConsumer
from turbopump.store.tools import run, verify

from . import artifacts, peers, topics

TOPIC, GROUP, SQL = "ExtTopic", "ext-choosers", "n >= 0 AND half = 'upper'"
CONF = {
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "mappedFileSizeConsumeQueueExt": "1024",
    "mappedFileSizeConsumeQueue": "2000",
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": str(1 << 18),
}
EACH = 200
PATIENCE_S = 90.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.mark.parametrize("version", artifacts.SERVERS)
def test_extension_files_travel_from_apache_to_ours_and_back(version: str, tmp_path: Path) -> None:
    place = peers.place(tmp_path)
    sent = 0
    for station, kind in enumerate((version, peers.OURS, version)):
        cluster = peers.start(kind, place, CONF, namesrv=peers.OURS)
        try:
            if not station:
                topics.create(cluster, TOPIC, 1)
            chosen = choose(cluster, sent)
            assert chosen == [number for number in range(sent, sent + EACH) if is_upper(number)]
            sent += EACH
            assert pulled(cluster, sent, sql=SQL) == [n for n in range(sent) if is_upper(n)]
            assert pulled(cluster, sent, expression="t1 || t2") == [n for n in range(sent) if n % 5 in (1, 2)]
        finally:
            cluster.stop()
        units = sorted((place.store_dir / "consumequeue_ext" / TOPIC / "0").iterdir())
        assert len(units) > 3
        report = run(verify(str(place.store_dir)))
        assert [
            problem for problem in report.problems if "consume" in str(problem) or TOPIC in str(problem)
        ] == []


def is_upper(number: int) -> bool:
    return number % 10 >= 5


def choose(cluster: peers.Cluster, begin: int) -> list[int]:
    """Messages that come while a group is there that chooses: their units have its bits."""
    got: list[int] = []

    def take(message: MessageExt) -> None:
        got.append(int(message.text))

    with choosing(cluster, take), Producer("ext-senders", name_servers=cluster.namesrv) as producer:
        time.sleep(1)  # its expression is registered, and some milliseconds old
        for number in range(begin, begin + EACH):
            half = "upper" if is_upper(number) else "lower"
            pairs = {"n": str(number), "half": half}
            producer.send(Message(TOPIC, str(number).encode(), tags=f"t{number % 5}", properties=pairs))
        deadline = time.monotonic() + PATIENCE_S
        while len(got) < EACH // 2 and time.monotonic() < deadline:
            time.sleep(0.1)
    return sorted(got)


@contextmanager
def choosing(cluster: peers.Cluster, take: object) -> Iterator[Consumer]:
    consumer = Consumer(GROUP, name_servers=cluster.namesrv, consume_from_where=FIRST)
    consumer.subscribe(TOPIC, take, sql=SQL)
    with consumer:
        yield consumer


def pulled(cluster: peers.Cluster, end: int, expression: str = "*", sql: str | None = None) -> list[int]:
    found: list[int] = []
    with PullConsumer("ext-readers", name_servers=cluster.namesrv) as consumer:
        (queue,) = consumer.queues(TOPIC)
        offset = 0
        while offset < end:
            result = consumer.pull(queue, offset, 32, expression, sql=sql)
            found += [int(message.text) for message in result.messages]
            assert result.next_offset > offset
            offset = result.next_offset
    return found
