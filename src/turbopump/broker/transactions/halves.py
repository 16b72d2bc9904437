"""Which transactions are open, and what is to do about each: a state machine without clock and disk.

In: half messages as they are stored, and word of those that are decided, renewed or expired. Out: what to
look at in a round, what to do about it, and before which place in the queue nothing is open.

A transaction is known by its `root`, the place of its first record in the queue of half messages. A renewed
copy is another record of the same transaction, further behind; then that one is open and the old is not.

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
"""When a half message is due about which nobody is asked: a ledger decides, however long it takes."""


class HalfDecision(Enum):
    """What an op record says of a half record. The first two end the transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    RENEWED = "renewed"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        return self in (HalfDecision.COMMIT, HalfDecision.ROLLBACK)


class CheckStep(Enum):
    """What a round does about an open half message."""

    WAIT = "wait"
    ASK = "ask"  # who sent it, and renew it
    MOVE = "move"  # renew it without asking: it is far behind
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class CheckRules:
    timeout_ms: int  # after which a producer is asked, unless the message says otherwise
    most: int  # times that it is asked
    lifetime_ms: int  # after which nobody is asked any more
    interval_s: float = 30.0  # between two rounds


class OpenHalf(msgspec.Struct, gc=False):
    """An open half record: 250 bytes, all in all."""

    offset: int  # in the queue
    at: int  # in the log
    due_ms: int  # not to be asked about before
    root: int
    topic: str = ""  # to which it belongs when it is committed


class OpenHalves:
    def __init__(self) -> None:
        self.by_topic: Counter[str] = Counter()
        """How many are open."""
        self._open: dict[int, OpenHalf] = {}  # by place in the queue, in its order
        self._renewed: dict[int, int] = {}  # root -> the place of the copy that is open

    def __len__(self) -> int:
        return len(self._open)

    def add(self, half: OpenHalf) -> None:
        """The newest in the queue."""
        self._open[half.offset] = half
        self.by_topic[half.topic] += 1
        if half.root != half.offset:
            self._renewed[half.root] = half.offset

    def add_stamped(self, first: int, places: Sequence[int], topics: Sequence[str]) -> None:
        """The newest in the queue, from `first` on, about which a ledger decides: their places in the log and
        their topics.
        """
        numbered = zip(range(first, first + len(places)), places, topics, strict=True)
        self._open.update(
            {offset: OpenHalf(offset, at, NEVER_MS, offset, topic) for offset, at, topic in numbered}
        )
        self.by_topic.update(topics)

    def find(self, root: int) -> OpenHalf | None:
        """The open record of a transaction; None: it is not open."""
        return self._open.get(self._renewed.get(root, root))

    def close(self, half: OpenHalf) -> None:
        """An op record names it now."""
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
        """The record at `offset` takes its place."""
        self.close(half)
        copy = OpenHalf(offset, at, half.due_ms, half.root, half.topic)
        self.add(copy)
        return copy

    def is_open(self, half: OpenHalf) -> bool:
        return self._open.get(half.offset) is half

    def all(self) -> list[OpenHalf]:
        """Oldest first."""
        return list(self._open.values())

    def below(self, at: int) -> Iterator[OpenHalf]:
        """Those that lie before this place in the log, oldest first; they may be closed meanwhile."""
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
    """`asked`: how often. The moment at which its time is up is not yet too late, but the next round is."""
    if now_ms - born_ms > rules.lifetime_ms and due_ms != NEVER_MS:
        return CheckStep.EXPIRE
    if now_ms > due_ms:
        return CheckStep.EXPIRE if asked >= rules.most else CheckStep.ASK
    return CheckStep.MOVE if is_far_behind else CheckStep.WAIT


def immunity_ms(text: str | None, timeout_ms: int) -> int:
    """How long a half message is left alone: its own wish (seconds), but no less than the usual time."""
    if text is None or not text.isdecimal() or len(text) > MAX_DIGITS:
        return timeout_ms
    return max(int(text) * 1000, timeout_ms)
