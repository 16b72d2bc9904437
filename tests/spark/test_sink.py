"""Rows of a real Spark in topics of a real broker: batches and streams, exactly once and at least once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.spark.reading import bodies, make_topic, messages, messages_once_there
from tests.spark.sink_kit import numbers, rows, sink, stream


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_batch_arrives_once_when_nothing_fails(spark, broker, topic, delivery):
    make_topic(broker, topic)
    sink(rows(spark), broker, topic, delivery=delivery).save()
    assert bodies(broker, topic) == numbers()


def test_every_column_arrives(spark, broker, topic):
    soon = datetime.now(UTC) + timedelta(seconds=1)
    frame = spark.createDataFrame(
        [
            (topic, b"1", "t", ["a", "b"], {"x": "y"}, "s", None, None),
            (topic, b"2", None, None, None, None, 1, None),
            (topic, b"3", "t", None, None, "s", None, soon),
        ],
        "topic STRING, body BINARY, tags STRING, keys ARRAY<STRING>, properties MAP<STRING,STRING>, "
        "shardingKey STRING, delayLevel INT, deliverTime TIMESTAMP",
    )
    make_topic(broker, topic)
    writer = frame.write.format("rocketmq").mode("append")
    writer.option("rocketmq.namesrv.addr", broker.namesrv).save()
    one, two, three = sorted(messages_once_there(broker, topic, 3), key=lambda message: message.body)
    assert (one.body, one.tags, one.keys, one.properties["x"]) == (b"1", "t", ("a", "b"), "y")
    assert one.properties["__SHARDINGKEY"] == "s"
    assert (two.body, two.properties["DELAY"]) == (b"2", "1")
    assert (three.body, three.queue) == (b"3", one.queue)
    assert three.store_timestamp >= soon.timestamp() * 1000 - 1000


def test_rows_of_one_sharding_key_are_in_one_queue_and_in_order(spark, broker, topic):
    make_topic(broker, topic)
    frame = spark.range(0, 300, 1, 1).selectExpr(
        "CAST(id AS STRING) AS body", "CONCAT('key-', id % 7) AS shardingKey"
    )
    for delivery in ("at-least-once", "exactly-once"):
        name = f"{topic}-{delivery}"
        make_topic(broker, name)
        sink(frame, broker, name, delivery=delivery).save()
        queues: dict[str, set[int]] = {}
        order: dict[str, list[int]] = {}
        for message in messages(broker, name):
            key = message.properties["__SHARDINGKEY"]
            queues.setdefault(key, set()).add(message.queue.id)
            order.setdefault(key, []).append(int(message.text))
        assert all(len(each) == 1 for each in queues.values())
        assert all(each == sorted(each) for each in order.values())
        assert sum(map(len, order.values())) == 300


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_stream_arrives_once_when_nothing_fails(spark, broker, topic, tmp_path, delivery):
    make_topic(broker, topic)
    stream(spark, tmp_path, broker, topic, delivery=delivery).awaitTermination()
    assert bodies(broker, topic) == numbers()


def test_delayed_rows_of_a_stream_arrive_once_at_their_time(spark, broker, topic, tmp_path):
    make_topic(broker, topic)
    due_ms = int(datetime.now(UTC).timestamp() * 1000) + 5_000
    times = (
        "IF(CAST(body AS INT) % 4 = 1, 1, NULL) AS delayLevel",
        f"IF(CAST(body AS INT) % 4 = 2, TIMESTAMP_MILLIS({due_ms}L), NULL) AS deliverTime",
    )
    stream(spark, tmp_path, broker, topic, files=2, more=times).awaitTermination()
    found = messages_once_there(broker, topic, 40)
    assert Counter(message.text for message in found) == numbers(40)
    timed = [message for message in found if int(message.text) % 4 == 2]
    leveled = [message for message in found if int(message.text) % 4 == 1]
    assert all(message.store_timestamp >= due_ms for message in timed)
    assert all(message.properties["DELAY"] == "1" for message in leveled)


def test_a_bad_row_is_named(spark, broker, topic):
    frame = spark.range(0, 5, 1, 1).selectExpr("IF(id = 3, NULL, 'x') AS body")
    with pytest.raises(Exception, match="row 3 of its partition: column body is null"):
        sink(frame, broker, topic).save()


def test_a_wrong_column_is_named_before_anything_runs(spark, broker, topic):
    with pytest.raises(Exception, match="no column 'tag': did you mean tags"):
        sink(spark.range(1).selectExpr("'x' AS body", "'y' AS tag"), broker, topic).save()


def test_a_topic_is_not_overwritten(spark, broker, topic):
    with pytest.raises(Exception, match="append"):
        sink(rows(spark), broker, topic).mode("overwrite").save()


def test_a_job_that_fails_leaves_nothing_behind_when_it_writes_exactly_once(spark, broker, topic):
    make_topic(broker, topic)
    failing = spark.range(0, 10, 1, 2).selectExpr("IF(id = 9, NULL, CAST(id AS STRING)) AS body")
    with pytest.raises(Exception, match="column body is null"):
        sink(failing, broker, topic, delivery="exactly-once", transactionalId=topic).save()
    sink(rows(spark), broker, topic, delivery="exactly-once", transactionalId=topic).save()
    with pytest.raises(Exception, match=r"already written a batch. .* option txnVersion"):
        sink(rows(spark), broker, topic, delivery="exactly-once", transactionalId=topic).save()
    for version in ("0", "1", "1"):  # the first is the job above again
        once = {"delivery": "exactly-once", "transactionalId": topic, "txnVersion": version}
        sink(rows(spark), broker, topic, **once).save()
    assert bodies(broker, topic) == numbers() + numbers()
