"""The clients for asyncio: the names of `turbopump`, with `async` and `await`.

    from turbopump.aio import Message, Producer

    async with Producer("orders", name_servers="127.0.0.1:9876") as producer:
        await producer.send(Message("OrderTopic", b"paid"))

A client belongs to the event loop in which it was started.
"""

from turbopump.client import selectors, strategies
from turbopump.client.admin import Admin
from turbopump.client.consumer import Consumer
from turbopump.client.consuming import ConsumeStatus, RetryLater
from turbopump.client.discovery import configure
from turbopump.client.message import Message, MessageExt, MessageQueue, SendResult, SendStatus
from turbopump.client.producer import Producer
from turbopump.client.pull_consumer import PullConsumer
from turbopump.client.settings import (
    AccessChannel,
    ClientSettings,
    ConsumeFromWhere,
    ConsumerSettings,
    MessageModel,
    ProducerSettings,
    PullSettings,
)
from turbopump.client.signature import spelled_out
from turbopump.client.transaction import Decision, TransactionResult

__all__ = [
    "AccessChannel",
    "Admin",
    "ConsumeFromWhere",
    "ConsumeStatus",
    "Consumer",
    "Decision",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "RetryLater",
    "SendResult",
    "SendStatus",
    "TransactionResult",
    "configure",
    "selectors",
    "strategies",
]

spelled_out(ProducerSettings)(Producer)
spelled_out(ConsumerSettings)(Consumer)
spelled_out(PullSettings)(PullConsumer)
spelled_out(ClientSettings)(Admin)
