"""Format `rocketmq` where topics are odd: filters that match next to nothing, offsets that somebody resets,
properties that nobody can read, and the broker's own topics.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.asking import asked
from tests.spark.source_kit import reader
from tests.spark.stream_kit import Stream, wait_until

from turbopump import Admin, Message, Producer
from turbopump.client.message import MessageQueue
from turbopump.protocol.codes import RequestCode

from .sending import BROKER, create, numbered, send

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def rare_among(topic: str, first: int, count: int, *rare: int) -> list[Message]:
    return [
        Message(topic, b"%d" % n, tags="rare" if n in rare else "common") for n in range(first, first + count)
    ]


def test_row_21_offsets_advance_over_what_a_sparse_filter_leaves_and_nothing_is_skipped(
    spark, broker, topic, tmp_path
):
    """The old connector lost count where a filter matched next to nothing."""
    create(broker, topic, 1)
    stream = Stream(spark, broker, topic, tmp_path, tags="rare", maxOffsetsPerTrigger="1000")
    assert stream.run() == []  # an empty topic
    for first in range(0, 3000, 500):
        send(broker, rare_among(topic, first, 500, 1999, 2000, 2999))
    with pytest.raises(Exception, match="a misfortune at 2000"):
        stream.run(fails_at=(0, 2000))
    assert stream.rows == [(0, 1999)]  # of the second thousand; in the first there was none
    assert stream.run() == [(0, 2000), (0, 2999)]
    assert stream.progress[-1]["sources"][0]["endOffset"][topic] == {BROKER: {"0": 3000}}
    send(broker, rare_among(topic, 3000, 600, 3599))
    assert stream.run() == [(0, 3599)]


def test_a_group_whose_offsets_are_reset_meanwhile_changes_nothing_for_the_query(
    spark, broker, topic, tmp_path
):
    """The checkpoint counts. What the broker knows of the group is for tools, and is right again soon."""
    create(broker, topic, 1)
    send(broker, numbered(topic, 20))
    group, rows = f"{topic}-g", []
    options = {"nameServer": broker.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    source = spark.readStream.format("rocketmq").options(**options, groupId=group, columns="queueOffset")
    writer = source.load().writeStream.foreachBatch(
        lambda frame, _: rows.extend(r[0] for r in frame.collect())
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: committed(broker, group, topic) == 20, query)
        with Admin(broker.namesrv) as admin:
            assert admin.offsets.reset_to(group, topic, 0)
        assert committed(broker, group, topic) == 0
        send(broker, numbered(topic, 20, 20))
        wait_until(lambda: committed(broker, group, topic) == 40, query)
    finally:
        query.stop()
    assert rows == list(range(40))


def committed(broker: Any, group: str, topic: str) -> int | None:
    with Admin(broker.namesrv) as admin:
        return admin.offsets.committed(group, MessageQueue(topic, BROKER, 0))


BROKEN = {
    "no end": ("TAGS\x01a\x02x\x01y", {"x": "y"}),
    "no name": ("TAGS\x01a\x02\x01y\x02", {}),
    "no value": ("TAGS\x01a\x02x\x02", {}),
    "twice": ("TAGS\x01b\x02TAGS\x01a\x02", {}),
    "nothing but ends": ("\x02\x02\x01\x02TAGS\x01a\x02", {}),
}


def test_properties_that_are_malformed_cost_no_row_and_no_other_property(spark, broker, topic):
    create(broker, topic, 1)
    for name, (properties, _) in BROKEN.items():
        send_raw(broker, topic, name.encode(), properties)
    rows = reader(spark, broker, topic, includeProperties="true").load().orderBy("queueOffset").collect()
    assert [bytes(row.body).decode() for row in rows] == list(BROKEN)
    assert {row.tags for row in rows} == {"a"}
    for row, (_, more) in zip(rows, BROKEN.values(), strict=True):
        assert more.items() <= row.properties.items()
    assert reader(spark, broker, topic, tags="a").load().count() == len(BROKEN)


def send_raw(broker: Any, topic: str, body: bytes, properties: str) -> None:
    """As no client would."""
    asked(
        broker.broker_addr,
        RequestCode.SEND_MESSAGE,
        body=body,
        producerGroup="spark-tests",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=0,
        bornTimestamp=1,
        flag=0,
        properties=properties,
        reconsumeTimes=0,
    )


def test_retry_and_delay_topics_are_read_when_they_are_named(spark, broker, topic, tmp_path):
    retry = f"%RETRY%{topic}-g"
    create(broker, retry, 1)
    send_raw(broker, retry, b"again", "RETRY_TOPIC\x01orders\x02")
    create(broker, topic, 1)
    with Producer("spark-tests", name_servers=broker.namesrv) as producer:
        producer.send(Message(topic, b"later", delay_level=18))  # two hours
    for name, body in ((retry, b"again"), (SCHEDULE_TOPIC, b"later")):
        rows = reader(spark, broker, name).load().collect()
        assert body in {bytes(row.body) for row in rows}
        assert {row.topic for row in rows} == {name}
        stream = Stream(spark, broker, name, tmp_path / body.decode())
        assert stream.run() == sorted((row.queueId, row.queueOffset) for row in rows)
