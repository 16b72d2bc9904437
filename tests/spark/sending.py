"""Messages for the tests of sources: into one queue each, in batches."""

from __future__ import annotations

from collections.abc import Iterable

from tests.interop import peers, topics

from turbopump import Message, Producer
from turbopump.client.message import MessageQueue

BROKER = "broker-a"


def create(broker: peers.Cluster, topic: str, queues: int = 2) -> str:
    return topics.create(broker, topic, queues)


def send(broker: peers.Cluster, messages: Iterable[Message], number: int = 0) -> None:
    found = list(messages)
    with Producer("spark-tests", name_servers=broker.namesrv) as producer:
        producer.send_batch(found, queue=MessageQueue(found[0].topic, BROKER, number))


def numbered(topic: str, count: int, first: int = 0, **fields: object) -> list[Message]:
    return [Message(topic, b"%d" % n, keys=f"K{n}", **fields) for n in range(first, first + count)]
