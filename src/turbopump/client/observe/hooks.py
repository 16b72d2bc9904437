"""Code of the user, or of telemetry, around each try of a send and each call of a handler; and filters.

A hook is any object with `before` and `after`. Both get the same context, so what `before` leaves in
`context.notes` is there in `after`. A hook that fails is logged and changes nothing.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from turbopump.client.message import Message, MessageExt, MessageQueue, SendResult
from turbopump.protocol import properties

log = logging.getLogger(__name__)

START_DELIVER_TIME = "__STARTDELIVERTIME"


class SendMode(Enum):
    AWAITED = "awaited"
    ONEWAY = "oneway"


class MessageKind(Enum):
    NORMAL = "normal"
    DELAY = "delay"
    TRANSACTION = "transaction"


@dataclass(slots=True)
class SendContext:
    """One try of a send. In `before` there is no result yet; in `after` there is one, or a failure, or
    neither of them after a one-way send.
    """

    group: str
    message: Message
    """As the user gave it; of a batch the first one."""
    properties: dict[str, str]
    """What travels with the message. `before` may add to it, such as the context of a trace; of a batch it
    is what belongs to the batch as a whole, and reaches no consumer."""
    queue: MessageQueue
    broker_address: str
    mode: SendMode = SendMode.AWAITED
    messages: Sequence[Message] = ()
    """All of them when it is a batch."""
    attempt: int = 1
    namespace: str = ""
    body_size: int = 0
    """As it travels, perhaps compressed."""
    message_ids: Sequence[str] = ()
    """Of the messages of a batch."""
    result: SendResult | None = None
    failure: Exception | None = None
    region: str = ""
    """Of the broker, as it says in its answer."""
    is_traced: bool = True
    """The broker wants no traces when it is False."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Of the hooks themselves: what `before` wants to find in `after`."""

    @property
    def kind(self) -> MessageKind:
        if self.properties.get(properties.TRANSACTION_PREPARED) == "true":
            return MessageKind.TRANSACTION
        if properties.DELAY in self.properties or START_DELIVER_TIME in self.properties:
            return MessageKind.DELAY
        return MessageKind.NORMAL


class SendHook(Protocol):
    def before(self, context: SendContext) -> None: ...

    def after(self, context: SendContext) -> None: ...


@runtime_checkable
class CreateHook(Protocol):
    """What a send hook may have besides, for messages that are packed into a batch."""

    def create(self, message: Message) -> dict[str, str]:
        """Properties that travel with the message."""


@dataclass(slots=True)
class ConsumeContext:
    """One call of a listener. `success` and `failure` are known in `after`."""

    group: str
    messages: Sequence[MessageExt]
    queue: MessageQueue
    ordered: bool = False
    namespace: str = ""
    success: bool | None = None
    status: str = ""
    """What came of it, in Apache's words: CONSUME_SUCCESS, RECONSUME_LATER, SUCCESS, SUSPEND_…"""
    failure: BaseException | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """Of the hooks themselves: what `before` wants to find in `after`."""


class ConsumeHook(Protocol):
    def before(self, context: ConsumeContext) -> None: ...

    def after(self, context: ConsumeContext) -> None: ...


Filter = Callable[[MessageExt], bool]
"""False: the message is not for this consumer. It counts as consumed."""


def let_through(filters: Sequence[Filter], messages: list[MessageExt]) -> list[MessageExt]:
    """Those that every filter wants. One that fails lets everything through: nothing is lost by it."""
    return [message for message in messages if all(_wants(one, message) for one in filters)]


def _wants(one: Filter, message: MessageExt) -> bool:
    try:
        return bool(one(message))
    except Exception:
        log.exception("The filter %r failed; its message is delivered", one)
        return True


def run_before(hooks: Sequence[Any], context: SendContext | ConsumeContext) -> None:
    """Hooks of the context's kind."""
    for hook in hooks:
        try:
            hook.before(context)
        except Exception:
            log.exception("The hook %r failed before; going on without it", hook)


def run_after(hooks: Sequence[Any], context: SendContext | ConsumeContext) -> None:
    """The other way round: who came first leaves last."""
    for hook in reversed(hooks):
        try:
            hook.after(context)
        except Exception:
            log.exception("The hook %r failed after; going on without it", hook)
