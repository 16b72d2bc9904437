"""Priority, second pattern: fairness. One queue per store, and one message of each queue at a time.

A store that sends a thousand orders must not keep the others waiting. With pull_batch_size=1 the consumer
takes one message of each queue in turn, instead of 32 of the busiest; one worker makes that visible.
"""

import queue

from turbopump import Admin, Consumer, Message, MessageExt, Producer
from turbopump.protocol.bodies import TopicConfig

TOPIC, STORES = "StoreTopic", ("Berlin", "Oslo", "Rome")

with Admin() as admin:
    broker = admin.clusters.layout().brokers[0]
    config = TopicConfig(topicName=TOPIC, readQueueNums=len(STORES), writeQueueNums=len(STORES))
    admin.topics.create(broker.address, config)

with Producer("stores") as producer:
    queue_of = dict(zip(STORES, producer.queues(TOPIC), strict=True))
    for number in range(100):  # Berlin has a sale
        producer.send(Message(TOPIC, b"Berlin %d" % number), queue=queue_of["Berlin"])
    for store in ("Oslo", "Rome"):
        producer.send(Message(TOPIC, store.encode() + b" 0"), queue=queue_of[store])

consumer = Consumer(
    "warehouse",
    pull_batch_size=1,
    pull_threshold_for_queue=1,  # and prefetch no more than one message of a queue
    consume_thread_min=1,
    consume_thread_max=1,
)
packed: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on(TOPIC)
def pack(message: MessageExt) -> None:
    packed.put(message.text)


with consumer:
    order = [packed.get(timeout=30) for _ in range(102)]
print("the small stores were served among the first:", {"Oslo 0", "Rome 0"} <= set(order[:25]))
