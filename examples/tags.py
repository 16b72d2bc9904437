"""Tags: a topic has several kinds of messages, and a group takes those it is interested in.

The broker filters, so other messages are never sent to the group. A message has one tag.
"""

import queue

from turbopump import Consumer, Message, MessageExt, Producer

with Producer("trade") as producer:
    for tag in ("created", "paid", "sent", "refunded", "paid"):
        producer.send(Message("TradeTopic", f"an order was {tag}".encode(), tags=tag))

consumer = Consumer("treasury")
booked: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on("TradeTopic", tags="paid || refunded")
def book(message: MessageExt) -> None:
    booked.put(message.tags or "")


with consumer:
    print("booked:", *sorted(booked.get(timeout=30) for _ in range(3)))
