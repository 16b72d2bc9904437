"""Clients for asyncio, with the same names as the blocking ones in `turbopump`.

    from turbopump.aio import Message, Producer

    async with Producer("orders", name_servers="127.0.0.1:9876") as producer:
        await producer.send(Message("OrderTopic", b"paid"))

A client belongs to the event loop in which it is started.
"""

from turbopump.client.admin import Admin
from turbopump.client.discovery import configure
from turbopump.client.group import strategies
from turbopump.client.group.consume_status import ConsumeStatus, RetryLater
from turbopump.client.message import Message, MessageExt, MessageQueue, SendResult, SendStatus
from turbopump.client.produce import selectors
from turbopump.client.produce.producer import Producer
from turbopump.client.produce.transaction import Decision, TransactionResult
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.push.consumer import Consumer
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
