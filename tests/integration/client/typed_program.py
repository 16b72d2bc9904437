"""A program as users write it, for the type checker alone: see test_typed.py."""

from dataclasses import dataclass
from typing import assert_type

from turbopump import (
    Admin,
    Consumer,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    SendResult,
    aio,
    strategies,
)


@dataclass
class Order:
    id: str


with Producer("orders", name_servers="a:9876", send_msg_timeout=5) as producer:
    assert_type(producer.send(Message("T", b"x", keys=["a", "b"]), by="A"), SendResult)
    assert_type(producer.send_async(Message("T", b"x")).result(), SendResult)

consumer = Consumer("g", allocate_message_queue_strategy=strategies.by_circle)


@consumer.on("T", batch=3)
def store(messages: list[MessageExt]) -> None: ...


@consumer.on("T2")
async def bill(order: Order) -> str:
    return order.id


consumer.workers = (1, 2)

with PullConsumer("audit", topics=["T"]) as reader:
    for message in reader:
        assert_type(message, MessageExt)
        assert_type(message.json(Order), Order)
        assert_type(message.json(list[int]), list[int])
        print(message.json(Order).no_field)  # wrong: an order has none

with Admin() as admin:
    assert_type(admin.topics.names(), list[str])
    for letter in admin.dead_letters("g").within():
        assert_type(letter, MessageExt)


async def main() -> None:
    async with aio.Producer("orders") as producer:
        assert_type(await producer.send(Message("T", b"x")), SendResult)
        assert_type(await producer.send_async(Message("T", b"x")), SendResult)
    async with aio.PullConsumer("audit", topics={"T": "paid"}) as reader:
        async for message in reader:
            assert_type(message.text, str)


Producer("orders", send_msg_timout=5)  # wrong: misspelt
Producer("orders", send_msg_timeout="5")  # wrong: text
producer.send("text")  # wrong: no message
