"""Hooks around each try of a send and each call of a handler, and filters of received messages.

A hook is any object with `before` and `after`. Both get the same context, so `after` finds what `before` puts
into `context.notes`. A hook that fails is logged and changes nothing.
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
    """Whether a send waits for the broker's answer (AWAITED) or not (ONEWAY)."""

    AWAITED = "awaited"
    ONEWAY = "oneway"


class MessageKind(Enum):
    """The kinds of messages that hooks distinguish."""

    NORMAL = "normal"
    DELAY = "delay"
    TRANSACTION = "transaction"


@dataclass(slots=True)
class SendContext:
    """What the hooks of a producer get about one try of a send.

    In `before` there is no result yet; in `after` there is a result or a failure, or neither after a one-way
    send.
    """

    group: str
    message: Message
    """The message of the user; for a batch the first one."""
    properties: dict[str, str]
    """Properties that are sent with the message. `before` may add some, such as the context of a trace. For a
    batch they belong to the batch as a whole, and reach no consumer."""
    queue: MessageQueue
    broker_address: str
    mode: SendMode = SendMode.AWAITED
    messages: Sequence[Message] = ()
    """All messages, if it is a batch."""
    attempt: int = 1
    namespace: str = ""
    body_size: int = 0
    """Size of the body as it is sent, perhaps compressed."""
    message_ids: Sequence[str] = ()
    """Ids of the messages of a batch."""
    result: SendResult | None = None
    failure: Exception | None = None
    region: str = ""
    """Region of the broker, from its answer."""
    is_traced: bool = True
    """False: the broker wants no traces."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Free for hooks: `after` finds what `before` puts here."""

    @property
    def kind(self) -> MessageKind:
        if self.properties.get(properties.TRANSACTION_PREPARED) == "true":
            return MessageKind.TRANSACTION
        if properties.DELAY in self.properties or START_DELIVER_TIME in self.properties:
            return MessageKind.DELAY
        return MessageKind.NORMAL


class SendHook(Protocol):
    """Interface of a hook that is called before and after each try of a send."""

    def before(self, context: SendContext) -> None: ...

    def after(self, context: SendContext) -> None: ...


@runtime_checkable
class CreateHook(Protocol):
    """Interface of a send hook that also adds properties to each message of a batch."""

    def create(self, message: Message) -> dict[str, str]:
        """Returns properties to send with a message, before it is packed into a batch."""


@dataclass(slots=True)
class ConsumeContext:
    """What the hooks of a consumer get about one handler call; `after` knows `success` and `failure`."""

    group: str
    messages: Sequence[MessageExt]
    queue: MessageQueue
    ordered: bool = False
    namespace: str = ""
    success: bool | None = None
    status: str = ""
    """The outcome by Apache's names: CONSUME_SUCCESS, RECONSUME_LATER, SUCCESS, SUSPEND_…"""
    failure: BaseException | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """Free for hooks: `after` finds what `before` puts here."""


class ConsumeHook(Protocol):
    """Interface of a hook that is called before and after each call of a handler."""

    def before(self, context: ConsumeContext) -> None: ...

    def after(self, context: ConsumeContext) -> None: ...


Filter = Callable[[MessageExt], bool]
"""Returns whether this consumer wants a message; an unwanted one counts as consumed."""


def let_through(filters: Sequence[Filter], messages: list[MessageExt]) -> list[MessageExt]:
    """Returns the messages that every filter accepts; a filter that raises for a message accepts it."""
    return [message for message in messages if all(_wants(one, message) for one in filters)]


def _wants(one: Filter, message: MessageExt) -> bool:
    try:
        return bool(one(message))
    except Exception:
        log.exception("The filter %r failed; delivering the message", one)
        return True


def run_before(hooks: Sequence[Any], context: SendContext | ConsumeContext) -> None:
    """Calls `before` of all hooks, in order; exceptions are logged, not raised."""
    for hook in hooks:
        try:
            hook.before(context)
        except Exception:
            log.exception("The hook %r failed in `before`; continuing without it", hook)


def run_after(hooks: Sequence[Any], context: SendContext | ConsumeContext) -> None:
    """Calls `after` of all hooks, in reverse order; exceptions are logged, not raised."""
    for hook in reversed(hooks):
        try:
            hook.after(context)
        except Exception:
            log.exception("The hook %r failed in `after`; continuing without it", hook)
