"""Global order: a topic with a single queue, so that everything is consumed one after the other.

The price: one broker and one active consumer. Most programs need order by key only.
"""

import queue

from turbopump import Admin, Consumer, Message, Producer
from turbopump.protocol.bodies import TopicConfig

TOPIC = "LedgerTopic"

with Admin() as admin:
    broker = admin.clusters.layout().brokers[0]  # one queue on one broker
    admin.topics.create(
        broker.address, TopicConfig(topicName=TOPIC, readQueueNums=1, writeQueueNums=1, order=True)
    )

with Producer("ledger") as producer:
    for number in range(20):
        producer.send(Message(TOPIC, str(number).encode()))

consumer = Consumer("accounts")
booked: queue.SimpleQueue[str] = queue.SimpleQueue()
consumer.subscribe(TOPIC, lambda message: booked.put(message.text), ordered=True)

with consumer:
    print("booked:", *(booked.get(timeout=30) for _ in range(20)))
