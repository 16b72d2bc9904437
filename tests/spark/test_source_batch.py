"""Format `rocketmq` as a table: what a broker of ours has, read by Spark."""

from __future__ import annotations

import pytest
from tests.spark.source_kit import reader

from turbopump import Message

from .sending import create, numbered, send


def test_every_message_is_a_row_with_the_columns_that_are_asked_for(spark, broker, topic):
    create(broker, topic)
    send(broker, numbered(topic, 10, tags="paid", properties={"region": "EU"}))
    send(broker, numbered(topic, 10, 10), 1)
    rows = reader(spark, broker, topic).load().orderBy("queueId", "queueOffset").collect()
    assert [(row.queueId, row.queueOffset) for row in rows] == [(q, n) for q in (0, 1) for n in range(10)]
    one = rows[1]
    assert (one.topic, one.brokerName, one.tags, one.keys) == (topic, "broker-a", "paid", "K1")
    assert bytes(one.body) == b"1"

    options = {"columns": "keys,properties", "tags": "paid || shipped", "minPartitions": "5"}
    few = reader(spark, broker, topic, **options).load()
    assert few.columns == ["keys", "properties"]
    assert few.rdd.getNumPartitions() >= 5
    assert {row.properties["region"] for row in few.collect()} == {"EU"}

    kafka = reader(spark, broker, topic, kafkaCompat="true", includeHeaders="true").load()
    assert kafka.columns[:5] == ["key", "value", "topic", "partition", "offset"]
    found = kafka.where("offset = 3 and partition = 1").collect()[0]
    assert (bytes(found.key), bytes(found.value)) == (b"K13", b"13")
    assert "KEYS" in {header.key for header in found.headers}


def test_an_empty_topic_is_an_empty_table(spark, broker, topic):
    create(broker, topic)
    assert reader(spark, broker, topic).load().count() == 0


def test_bodies_of_four_megabytes(spark, broker, topic):
    create(broker, topic, 1)
    send(broker, [Message(topic, bytes([n]) * 4_190_000) for n in range(3)])
    sizes = reader(spark, broker, topic, columns="body").load().selectExpr("length(body) as size").collect()
    assert [row.size for row in sizes] == [4_190_000] * 3


def test_a_wrong_option_is_named_with_the_nearest_right_one(spark, broker, topic):
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        reader(spark, broker, topic, startingOffset="earliest").load()
    with pytest.raises(Exception, match="option nameServer is missing"):
        spark.read.format("rocketmq").option("subscribe", topic).load().count()
    with pytest.raises(Exception, match=f"has topic {topic}"):
        reader(spark, broker, topic).load().count()
