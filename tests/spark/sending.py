"""Messages for the tests of sources: into one queue each, several as a batch."""

from __future__ import annotations

from collections.abc import Iterable

from tests.interop import peers, topics
from tests.interop.workers import eventually

from turbopump import Admin, Message, Producer
from turbopump.client.message import MessageQueue

BROKER = "broker-a"
PATIENCE_S = 30.0


def create(broker: peers.Cluster, topic: str, queues: int = 2) -> str:
    return topics.create(broker, topic, queues)


def send(broker: peers.Cluster, messages: Iterable[Message], number: int = 0, **settings: int) -> None:
    """The queue shows them when it returns: Apache's broker acknowledges before that."""
    found = list(messages)
    queue = MessageQueue(found[0].topic, BROKER, number)
    with Producer("spark-tests", name_servers=broker.namesrv, **settings) as producer:
        if len(found) == 1:  # may be compressed
            last = producer.send(found[0], queue=queue)
        else:
            last = producer.send_batch(found, queue=queue)[-1]
    with Admin(broker.namesrv) as admin:
        assert eventually(lambda: admin.queues.max_offset(queue) > last.offset, PATIENCE_S, poll_s=0.02), last


def numbered(topic: str, count: int, first: int = 0, **fields: object) -> list[Message]:
    return [Message(topic, b"%d" % n, keys=f"K{n}", **fields) for n in range(first, first + count)]
