"""The kinds of message that wait before they go to their queue: a table that every send is checked against.

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
class Arriving:
    """A message that was sent, and where it belongs. A kind that claims it changes the properties."""

    pairs: dict[str, str]
    topic: str
    queue_id: int
    unique_key: str
    reconsume_times: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a message waits."""

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
    """One kind of message that waits before it goes to its queue."""

    topic: str
    """The system topic in which its messages wait. No other kind uses it."""
    properties: frozenset[str]
    """Names of the properties that ask for it: a message with one of them is never a plain send."""

    def claim(self, message: Arriving) -> Placement | None:
        """Changes the properties to those of a message that waits, and returns where it waits.

        None: the message is not of this kind, and its properties are unchanged. Raises Refused when
        its request cannot be fulfilled.
        """

    def claim_committed(
        self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool
    ) -> Placement | None:
        """Returns where the message of a committed transaction waits; refuses nothing.

        `is_promised`: its delay was accepted when it was sent, and holds whatever the limits are now.
        """

    def stored(self, draft: Draft, appended: Appended) -> None:
        """Called after a message of this kind was appended."""

    def batch_refusal(self, pairs: dict[str, str]) -> str | None:
        """Returns why a message with these properties cannot be part of a batch; None: it can."""


class WaitingKinds:
    """The kinds of a broker in their order: the first that claims a message gets it."""

    def __init__(self, kinds: Iterable[WaitingKind] = ()) -> None:
        self._kinds = tuple(kinds)
        self._by_topic = {kind.topic: kind for kind in self._kinds}
        self.properties = frozenset(name for kind in self._kinds for name in kind.properties)
        """The properties of all kinds."""

    def before(self, kinds: Iterable[WaitingKind]) -> "WaitingKinds":
        """Returns a table that asks these kinds first, then those of this table."""
        return WaitingKinds((*kinds, *self._kinds))

    def claim(self, message: Arriving) -> Placement | None:
        """Returns where a message waits; None: it goes directly to its queue."""
        for kind in self._kinds:
            placement = kind.claim(message)
            if placement is not None:
                return placement
        return None

    def claim_committed(
        self, pairs: dict[str, str], topic: str, queue_id: int, is_promised: bool
    ) -> Placement | None:
        """Returns where a committed message waits; None: it goes to its queue."""
        for kind in self._kinds:
            placement = kind.claim_committed(pairs, topic, queue_id, is_promised)
            if placement is not None:
                return placement
        return None

    def stored(self, drafts: Sequence[Draft], appended: Sequence[Appended]) -> None:
        """Notifies each kind of its messages that were appended."""
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
