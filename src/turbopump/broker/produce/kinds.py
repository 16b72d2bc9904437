"""The table of message kinds that wait before they go to their queue (delayed, timed, half messages).

In: a message with its topic and queue. Out: where the kind that claims it puts it, or None for a message that
goes directly to its queue. Delay levels and timers (`broker/delay`) and transactions
(`broker/transactions`) are kinds; a new one is one class with these methods, in the `kinds` of its part. The
later work of a kind with its messages is never here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.store.append import Appended, Draft
from turbopump.store.consume_queue import ConsumeQueue


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A sent message before it is stored: its properties, and the topic and queue that it was sent to.

    The kind that claims it changes the properties.
    """

    pairs: dict[str, str]
    topic: str
    queue_id: int
    unique_key: str
    reconsume_times: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a message is stored while it waits: queue, delay, extra properties, extra answer fields."""

    queue: ConsumeQueue
    delay_ms: int = -1
    """Delay of a delay level; -1: none."""
    suffix: bytes = b""
    """Appended to the stored properties."""
    max_properties: int = properties.MAX_BYTES
    """Bytes that the properties may have, without the suffix, so that later records of the message fit."""
    fields: dict[str, str] = field(default_factory=dict)
    """Fields of the answer to the send, in addition to its receipt."""


class WaitingKind(Protocol):
    """Interface of a kind of message that waits in a system topic before it goes to its queue."""

    topic: str
    """The system topic in which its messages wait. No other kind uses it."""
    properties: frozenset[str]
    """Names of the properties that ask for it: a message with one of them is never a plain send."""

    def claim(self, message: IncomingMessage) -> Placement | None:
        """Changes the properties to those of a waiting message and returns its place; None: not of this kind.

        None: the message is not of this kind, and its properties are unchanged. Raises Refused when
        its request cannot be fulfilled.
        """

    def claim_committed(
        self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool
    ) -> Placement | None:
        """Returns where the message of a committed transaction has to wait next; None: it does not wait.

        `is_promised`: its delay was accepted when it was sent, and holds whatever the limits are now.
        """

    def stored(self, draft: Draft, appended: Appended) -> None:
        """Notes that a message of this kind was appended to its waiting queue."""

    def batch_refusal(self, pairs: dict[str, str]) -> str | None:
        """Returns why a message with these properties cannot be part of a batch; None: it can be."""


class WaitingKinds:
    """The message kinds of a broker, in the order in which they are asked to claim a message."""

    def __init__(self, kinds: Iterable[WaitingKind] = ()) -> None:
        self._kinds = tuple(kinds)
        self._by_topic = {kind.topic: kind for kind in self._kinds}
        self.properties = frozenset(name for kind in self._kinds for name in kind.properties)
        """The properties of all kinds."""

    def before(self, kinds: Iterable[WaitingKind]) -> "WaitingKinds":
        """Returns a new table that asks `kinds` first, then the kinds of this table."""
        return WaitingKinds((*kinds, *self._kinds))

    def claim(self, message: IncomingMessage) -> Placement | None:
        """Returns where a message has to wait, by the first kind that claims it; None: it does not wait.

        That kind changes the properties. Raises Refused when it cannot do what the message asks for.
        """
        for kind in self._kinds:
            placement = kind.claim(message)
            if placement is not None:
                return placement
        return None

    def claim_committed(
        self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool
    ) -> Placement | None:
        """Returns where the message of a committed transaction has to wait; None: it goes to its queue."""
        for kind in self._kinds:
            placement = kind.claim_committed(pairs, topic, queue_id, is_promised)
            if placement is not None:
                return placement
        return None

    def stored(self, drafts: Sequence[Draft], appended: Sequence[Appended]) -> None:
        """Notifies the kind of each draft, by the system topic that it waits in, that it was appended."""
        by_topic = self._by_topic
        for draft, where in zip(drafts, appended, strict=True):
            kind = by_topic.get(draft.queue.topic)
            if kind is not None:
                kind.stored(draft, where)

    def refuse_in_batch(self, pairs: dict[str, str]) -> None:
        """Raises Refused for a message that would have to wait, and therefore cannot be part of a batch."""
        for kind in self._kinds:
            remark = kind.batch_refusal(pairs)
            if remark is not None:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
