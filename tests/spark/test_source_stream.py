"""Format `rocketmq` as a stream: micro-batches, limits, checkpoints, lost messages, restarts, lag."""

from __future__ import annotations

import pytest
from tests.interop import peers
from tests.spark.stream_kit import Stream, pairs, wait_until

from turbopump import Admin, pipelines

from .sending import create, numbered, send


def test_limits_checkpoints_growth_and_lag(spark, broker, topic, tmp_path):
    create(broker, topic, 1)
    send(broker, numbered(topic, 50))
    stream = Stream(spark, broker, topic, tmp_path, maxOffsetsPerTrigger="20", groupId=f"{topic}-g")
    told: list[str] = []
    listener = pipelines.watch(spark, told.append)
    assert stream.run() == pairs(0, 0, 50)
    wait_until(lambda: len(told) == 3)
    spark.streams.removeListener(listener)
    assert "batch 0: 20 rows" in told[0]
    assert "30 behind" in told[0]
    assert "batch 2: 10 rows" in told[2]
    assert "0 behind" in told[2]
    sizes = [one["numInputRows"] for one in stream.progress if one["numInputRows"]]
    assert sizes == [20, 20, 10]
    assert stream.progress[0]["sources"][0]["latestOffset"] == {topic: {"broker-a": {"0": 50}}}

    create(broker, topic, 2)  # the topic grows
    send(broker, numbered(topic, 5, 50))
    send(broker, numbered(topic, 7), 1)
    assert stream.run() == [*pairs(0, 50, 55), *pairs(1, 0, 7)]
    send(broker, numbered(topic, 3, 55))
    with Admin(broker.namesrv) as admin:
        progress = admin.groups.progress(f"{topic}-g").offsetTable
    seen = {queue.queueId: (one.brokerOffset, one.consumerOffset) for queue, one in progress.items()}
    assert seen == {0: (58, 55), 1: (7, 7)}

    with pytest.raises(Exception, match=f"the checkpoint is of {topic}, and this query reads {topic}Other"):
        stream.run(subscribe=create(broker, f"{topic}Other", 1))


def test_retention_stops_a_stream_unless_it_may_lose(spark, start, topic, tmp_path):
    cluster = start(conf={"mappedFileSizeCommitLog": "65536", "deleteWhen": "00", "fileReservedTime": "1"})
    create(cluster, topic, 1)
    send(cluster, numbered(topic, 10))
    stream = Stream(spark, cluster, topic, tmp_path)
    assert stream.run() == pairs(0, 0, 10)
    low, high = forget(cluster, topic)
    with pytest.raises(
        Exception, match=f"messages 10 to {low - 1} of queue 0 of {topic} on broker-a are gone"
    ):
        stream.run()
    assert stream.run(failOnDataLoss="false") == pairs(0, low, high)


def test_a_recreated_topic_stops_a_stream_unless_it_may_lose(spark, broker, topic, tmp_path):
    """Also where it has more messages than before: the offset alone would be taken for the next one."""
    create(broker, topic, 1)
    send(broker, numbered(topic, 10))
    stream = Stream(spark, broker, topic, tmp_path)
    assert stream.run() == pairs(0, 0, 10)
    with Admin(broker.namesrv) as admin:
        admin.topics.delete(topic)
    create(broker, topic, 1)
    send(broker, numbered(topic, 30))
    with pytest.raises(
        Exception, match=f"queue 0 of {topic} on broker-a is not the one that was read up to 10"
    ):
        stream.run()
    assert stream.run(failOnDataLoss="false") == pairs(0, 0, 30)


def test_a_topic_with_fewer_queues_is_read_to_the_end(spark, broker, topic, tmp_path):
    create(broker, topic, 2)
    for number in range(2):
        send(broker, numbered(topic, 10), number)
    stream = Stream(spark, broker, topic, tmp_path)
    assert len(stream.run()) == 20
    for number in range(2):
        send(broker, numbered(topic, 40, 10), number)
    create(broker, topic, 1)
    send(broker, numbered(topic, 5, 50))
    assert stream.run() == [*pairs(0, 10, 55), *pairs(1, 10, 50)]


def forget(cluster: peers.Cluster, topic: str) -> tuple[int, int]:
    """More messages, of which the broker then deletes the first files: what it keeps of the queue."""
    for first in range(10, 1010, 50):
        send(cluster, numbered(topic, 50, first, properties={"pad": "x" * 500}))
    cluster.stop_broker()
    logs = sorted((cluster.store_dir / "commitlog").iterdir())
    for path in logs[: len(logs) // 2]:
        path.unlink()
    cluster.start_broker()
    with Admin(cluster.namesrv) as admin:
        (one,) = admin.topics.stats(topic).offsetTable.values()
    assert 10 < one.minOffset < one.maxOffset
    return one.minOffset, one.maxOffset


def test_a_broker_that_restarts_during_a_query_costs_no_message(spark, start, topic, tmp_path):
    cluster = start()
    create(cluster, topic, 1)
    send(cluster, numbered(topic, 20))
    rows: list[int] = []
    options = {"nameServer": cluster.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    source = spark.readStream.format("rocketmq").options(**options, columns="queueOffset").load()
    writer = source.writeStream.foreachBatch(lambda frame, _: rows.extend(r[0] for r in frame.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: len(rows) == 20, query)
        cluster.kill_broker()
        cluster.start_broker()
        send(cluster, numbered(topic, 20, 20))
        wait_until(lambda: len(rows) == 40, query)
    finally:
        query.stop()
    assert rows == list(range(40))
