"""Format `rocketmq` as a table: what a broker of ours has, read by Spark."""

from __future__ import annotations

from tests.interop import peers, topics

from turbopump import Message, Producer
from turbopump.client.message import MessageQueue


def reader(spark, broker: peers.Cluster, topic: str, **options: str):
    frame = spark.read.format("rocketmq").option("nameServer", broker.namesrv).option("subscribe", topic)
    return frame.options(**options)


def fill(broker: peers.Cluster, topic: str, count: int, queues: int = 2, **fields) -> None:
    topics.create(broker, topic, queues)
    with Producer("spark-tests", name_servers=broker.namesrv) as producer:
        for number in range(count):
            queue = MessageQueue(topic, "broker-a", number % queues)
            message = Message(topic, b"body %d" % number, keys=f"K{number}", **fields)
            producer.send(message, queue=queue)


def test_every_message_is_a_row(spark, broker, topic):
    fill(broker, topic, 20, tags="paid")
    rows = reader(spark, broker, topic).load().orderBy("queueId", "queueOffset").collect()
    assert [(row.queueId, row.queueOffset) for row in rows] == [(q, n) for q in (0, 1) for n in range(10)]
    assert bytes(rows[1].body) == b"body 2"
    assert (rows[1].topic, rows[1].brokerName, rows[1].tags, rows[1].keys) == (
        topic,
        "broker-a",
        "paid",
        "K2",
    )
