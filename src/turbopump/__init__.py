"""RocketMQ in Python: name server, broker, tools and client with Apache RocketMQ's protocol and store format.

    from turbopump import Consumer, Message, Producer

    with Producer("orders", name_servers="127.0.0.1:9876") as producer:
        producer.send(Message("OrderTopic", b"paid", tags="paid", keys="A-1"))

The clients here are blocking; `turbopump.aio` has clients with the same names for asyncio. Names are imported
when they are first used, so that a server does not load a client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbopump import aio, errors
    from turbopump.client.blocking.admin import Admin
    from turbopump.client.blocking.consumer import Consumer
    from turbopump.client.blocking.producer import Producer
    from turbopump.client.blocking.pull_consumer import PullConsumer
    from turbopump.client.discovery import configure
    from turbopump.client.group import strategies
    from turbopump.client.group.consume_status import ConsumeStatus, RetryLater
    from turbopump.client.message import Message, MessageExt, MessageQueue, SendResult, SendStatus
    from turbopump.client.produce import selectors
    from turbopump.client.produce.transaction import Decision, TransactionResult
    from turbopump.client.settings import AccessChannel, ConsumeFromWhere, MessageModel
    from turbopump.pipelines.log import read_log as read_log

__version__ = "0.1.0"

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
    "aio",
    "configure",
    "errors",
    "selectors",
    "strategies",
]

_HOMES = {
    "Admin": "turbopump.client.blocking.admin",
    "ConsumeFromWhere": "turbopump.client.settings",
    "ConsumeStatus": "turbopump.client.group.consume_status",
    "Consumer": "turbopump.client.blocking.consumer",
    "Decision": "turbopump.client.produce.transaction",
    "Message": "turbopump.client.message",
    "MessageExt": "turbopump.client.message",
    "AccessChannel": "turbopump.client.settings",
    "MessageModel": "turbopump.client.settings",
    "MessageQueue": "turbopump.client.message",
    "Producer": "turbopump.client.blocking.producer",
    "PullConsumer": "turbopump.client.blocking.pull_consumer",
    "RetryLater": "turbopump.client.group.consume_status",
    "SendResult": "turbopump.client.message",
    "SendStatus": "turbopump.client.message",
    "TransactionResult": "turbopump.client.produce.transaction",
    "aio": "turbopump.aio",
    "configure": "turbopump.client.discovery",
    "errors": "turbopump.errors",
    "read_log": "turbopump.pipelines.log",
    "selectors": "turbopump.client.produce.selectors",
    "strategies": "turbopump.client.group.strategies",
}
"""Name → the module that defines it, or the module itself. `read_log` needs an extra: not in `__all__`."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'turbopump' has no attribute {name!r}")
    module = import_module(home)
    found = module if home.endswith(f".{name}") else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
