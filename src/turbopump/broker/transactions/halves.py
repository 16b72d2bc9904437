"""Which transactions are open, and the next step for each: a state machine without clock and disk.

In: half messages as they are stored, and which of them are decided, renewed or expired. Out: the half
messages to check in a round, the step for each, and the queue offset before which none is open.

A transaction is identified by its `root`, the offset of its first record in the queue of half messages. A
renewed copy is a later record of the same transaction; then the copy is open and the old record is not.

    half queue   0 1 2 3 4 5 6          0, 2, 3 are decided; 1 was renewed as 5, and 5 as 6
    open         4, 6 (root 1)          progress: 4
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

__all__ = [
    "NEVER_MS",
    "CheckRules",
    "CheckStep",
    "HalfDecision",
    "OpenHalf",
    "OpenHalves",
    "immunity_ms",
    "step",
]

MAX_DIGITS = 9  # of seconds: 31 years
NEVER_MS = 1 << 62
"""Due time of a half message about which no producer is asked: a ledger decides, however long it takes."""


class HalfDecision(Enum):
    """What an op record records about a half record. The first two end the transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    RENEWED = "renewed"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        return self in (HalfDecision.COMMIT, HalfDecision.ROLLBACK)


class CheckStep(Enum):
    """What a round of checks does with an open half message."""

    WAIT = "wait"
    ASK = "ask"  # a producer of its group, and renew it
    MOVE = "move"  # renew it without asking: it is far behind
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """When producers are asked about open transactions, and when these expire."""

    timeout_ms: int  # after which a producer is asked, unless the message says otherwise
    max_checks: int
    lifetime_ms: int  # after which no producer is asked any more
    interval_s: float = 30.0  # between two rounds


class OpenHalf(msgspec.Struct, gc=False):
    """An open half record; takes 250 bytes in all."""

    offset: int  # in the queue
    at: int  # in the log
    due_ms: int  # producers are not asked before
    root: int
    topic: str = ""  # of the message when it is committed


class OpenHalves:
    """The open half records, in the order of their queue."""

    def __init__(self) -> None:
        self.by_topic: Counter[str] = Counter()
        """Number of open half records."""
        self._open: dict[int, OpenHalf] = {}  # by queue offset, in its order
        self._renewed: dict[int, int] = {}  # root -> queue offset of the copy that is open

    def __len__(self) -> int:
        return len(self._open)

    def add(self, half: OpenHalf) -> None:
        """Adds the newest record of the queue."""
        self._open[half.offset] = half
        self.by_topic[half.topic] += 1
        if half.root != half.offset:
            self._renewed[half.root] = half.offset

    def add_stamped(self, first: int, places: Sequence[int], topics: Sequence[str]) -> None:
        """Adds the newest records of the queue, from `first` on, about which a ledger decides.

        `places`: their offsets in the log; `topics`: their topics.
        """
        numbered = zip(range(first, first + len(places)), places, topics, strict=True)
        self._open.update(
            {offset: OpenHalf(offset, at, NEVER_MS, offset, topic) for offset, at, topic in numbered}
        )
        self.by_topic.update(topics)

    def find(self, root: int) -> OpenHalf | None:
        """Returns the open record of a transaction; None: it is not open."""
        return self._open.get(self._renewed.get(root, root))

    def close(self, half: OpenHalf) -> None:
        """Removes a record that an op record names now."""
        del self._open[half.offset]
        self.by_topic[half.topic] -= 1
        if self._renewed.get(half.root) == half.offset:
            del self._renewed[half.root]

    def close_all(self, halves: Sequence[OpenHalf]) -> None:
        for half in halves:
            del self._open[half.offset]
            if self._renewed and self._renewed.get(half.root) == half.offset:
                del self._renewed[half.root]
        self.by_topic.subtract(Counter([half.topic for half in halves]))

    def renew(self, half: OpenHalf, offset: int, at: int) -> OpenHalf:
        """Replaces a record by its copy at `offset`."""
        self.close(half)
        copy = OpenHalf(offset, at, half.due_ms, half.root, half.topic)
        self.add(copy)
        return copy

    def is_open(self, half: OpenHalf) -> bool:
        return self._open.get(half.offset) is half

    def all(self) -> list[OpenHalf]:
        """Returns all open records, oldest first."""
        return list(self._open.values())

    def below(self, at: int) -> Iterator[OpenHalf]:
        """Yields open records below a log offset, oldest first. They may be closed between two of them."""
        for half in self.all():
            if half.at >= at:
                return
            if self.is_open(half):
                yield half

    @property
    def first(self) -> OpenHalf | None:
        return next(iter(self._open.values()), None)


def step(
    asked: int, born_ms: int, due_ms: int, is_far_behind: bool, now_ms: int, rules: CheckRules
) -> CheckStep:
    """Returns the step for an open half message, about which producers were asked `asked` times.

    At the exact due time it still waits; the next round asks.
    """
    if now_ms - born_ms > rules.lifetime_ms and due_ms != NEVER_MS:
        return CheckStep.EXPIRE
    if now_ms > due_ms:
        return CheckStep.EXPIRE if asked >= rules.max_checks else CheckStep.ASK
    return CheckStep.MOVE if is_far_behind else CheckStep.WAIT


def immunity_ms(text: str | None, timeout_ms: int) -> int:
    """Returns how long no producer is asked: as the message requests (seconds), but at least `timeout_ms`."""
    if text is None or not text.isdecimal() or len(text) > MAX_DIGITS:
        return timeout_ms
    return max(int(text) * 1000, timeout_ms)
