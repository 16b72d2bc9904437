"""There are more keys than queues, so a queue holds several. A consumer of one key ignores the others."""

import queue

from turbopump import Admin, Consumer, Message, MessageExt, Producer
from turbopump.protocol.bodies import TopicConfig

TOPIC = "TenantTopic"

with Admin() as admin:
    broker = admin.clusters.layout().brokers[0]
    admin.topics.create(broker.address, TopicConfig(topicName=TOPIC, readQueueNums=2, writeQueueNums=2))

with Producer("tenants") as producer:
    for number in range(4):
        for tenant in ("red", "green", "blue", "white"):
            producer.send(Message(TOPIC, str(number).encode(), keys=tenant), by=tenant)

consumer = Consumer("green-only")
green: queue.SimpleQueue[str] = queue.SimpleQueue()
ignored: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on(TOPIC, ordered=True)
def handle(message: MessageExt) -> None:
    (tenant,) = message.keys
    if tenant != "green":
        ignored.put(tenant)  # returning is enough: it counts as consumed
        return
    green.put(message.text)


with consumer:
    print("green, in order:", *(green.get(timeout=30) for _ in range(4)))
    print("others ignored:", len([ignored.get(timeout=30) for _ in range(12)]))
