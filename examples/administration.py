"""Administration from a program: topics, groups, progress, messages. `mqadmin` uses the same calls."""

from turbopump import Admin, Message, Producer, PullConsumer
from turbopump.protocol.bodies import TopicConfig

TOPIC, GROUP = "AdminTopic", "admin-readers"

with Admin() as admin:
    layout = admin.clusters.layout()
    print("brokers:", *(broker.name for broker in layout.brokers))
    for address in layout.masters("DefaultCluster"):
        admin.topics.create(address, TopicConfig(topicName=TOPIC, readQueueNums=2, writeQueueNums=2))
    print("known:", TOPIC in admin.topics.names())

    with Producer("admin-senders") as producer:
        receipts = [producer.send(Message(TOPIC, b"message %d" % n, keys=f"key-{n}")) for n in range(10)]
    with PullConsumer(GROUP, topics=[TOPIC]) as consumer:
        for _ in range(4):
            next(iter(consumer))

    progress = admin.groups.progress(GROUP, TOPIC).offsetTable.values()
    print("behind:", sum(queue.brokerOffset - queue.consumerOffset for queue in progress))
    print("by key:", *(message.text for message in admin.messages.by_key(TOPIC, "key-7")))
    print("by id:", admin.messages.find(TOPIC, receipts[3].message_id).text)
