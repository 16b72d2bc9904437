"""Data distribution: one message, many receivers. Each group gets everything, at its own pace.

The producer knows none of them: a new receiver is a new group and needs no change anywhere else.
"""

import queue

from turbopump import Consumer, Message, Producer

with Producer("orders") as producer:
    for number in range(5):
        producer.send(Message("ChangeTopic", b"order %d" % number))

RECEIVERS = ("search-index", "warehouse-stock", "newsletter")
received: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()


def receiver(group: str) -> Consumer:
    consumer = Consumer(group)
    consumer.subscribe("ChangeTopic", lambda message: received.put((group, message.text)))
    return consumer


consumers = [receiver(group) for group in RECEIVERS]
for consumer in consumers:
    consumer.start()
everything = [received.get(timeout=30) for _ in range(5 * len(RECEIVERS))]
for consumer in consumers:
    consumer.close()
for group in RECEIVERS:
    print(f"{group}: {len({text for receiver, text in everything if receiver == group})} orders")
