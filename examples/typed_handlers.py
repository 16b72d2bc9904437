"""JSON bodies: send any dataclass, msgspec struct or pydantic model, and get it back by an annotation."""

import queue
from dataclasses import dataclass
from datetime import date

from turbopump import Consumer, Message, MessageExt, Producer, PullConsumer


@dataclass
class Order:
    id: int
    customer: str
    due: date


with Producer("orders") as producer:
    producer.send(
        Message.json("JsonTopic", {"id": "seven", "customer": "Bob", "due": "2026-11-30"}), by="all"
    )
    producer.send(Message.json("JsonTopic", Order(7, "Ada", date(2026, 11, 30))), by="all")

consumer = Consumer(
    "invoices", max_reconsume_times=0
)  # a body that cannot be parsed now cannot be parsed later
invoices: queue.SimpleQueue[str] = queue.SimpleQueue()


@consumer.on("JsonTopic")
def invoice(message: MessageExt, order: Order) -> None:  # or just (order: Order)
    invoices.put(f"order {order.id} of {order.customer} is due on {order.due:%d %B %Y}")


with consumer:
    print(invoices.get(timeout=30))

with PullConsumer("lost-and-found", topics=["%DLQ%invoices"]) as reader:  # dead letters are a topic too
    print("dead letter:", *(letter.text for letter in reader.poll(timeout=10)))
