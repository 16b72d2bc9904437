"""Which transactions are open, and the next step of a check for each: a state machine without clock and disk.

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
    """Why an op record closes a half record. COMMIT and ROLLBACK end its transaction, the others do not."""

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
    """Limits of transaction checks: when producers are asked, how often, and when a transaction expires."""

    timeout_ms: int  # after which a producer is asked, unless the message says otherwise
    max_checks: int
    lifetime_ms: int  # after which no producer is asked any more
    interval_s: float = 30.0  # between two rounds


class OpenHalf(msgspec.Struct, gc=False):
    """An open half record: its queue offset, physical offset, due time of a check, root and topic.

    Takes 250 bytes in all.
    """

    offset: int  # in the queue
    at: int  # in the log
    due_ms: int  # producers are not asked before
    root: int
    topic: str = ""  # of the message when it is committed


class OpenHalves:
    """The open half records of a broker, in the order of the queue of half messages."""

    def __init__(self) -> None:
        self.by_topic: Counter[str] = Counter()
        """Number of open half records."""
        self._open: dict[int, OpenHalf] = {}  # by queue offset, in its order
        self._renewed: dict[int, int] = {}  # root -> queue offset of the copy that is open

    def __len__(self) -> int:
        return len(self._open)

    def add(self, half: OpenHalf) -> None:
        """Adds an open half record, which must be the newest of its queue."""
        self._open[half.offset] = half
        self.by_topic[half.topic] += 1
        if half.root != half.offset:
            self._renewed[half.root] = half.offset

    def add_stamped(self, first: int, places: Sequence[int], topics: Sequence[str]) -> None:
        """Adds half records that a ledger decides, the newest of the queue, from queue offset `first` on.

        `places`: their physical offsets; `topics`: their topics. No producer is asked about them.
        """
        numbered = zip(range(first, first + len(places)), places, topics, strict=True)
        self._open.update(
            {offset: OpenHalf(offset, at, NEVER_MS, offset, topic) for offset, at, topic in numbered}
        )
        self.by_topic.update(topics)

    def find(self, root: int) -> OpenHalf | None:
        """Returns the newest record of the open transaction with this root; None: it is not open."""
        return self._open.get(self._renewed.get(root, root))

    def close(self, half: OpenHalf) -> None:
        """Removes a half record from the open ones, because an op record about it was stored."""
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
        """Replaces an open record by its copy at queue `offset`, physical offset `at`; returns the copy."""
        self.close(half)
        copy = OpenHalf(offset, at, half.due_ms, half.root, half.topic)
        self.add(copy)
        return copy

    def is_open(self, half: OpenHalf) -> bool:
        """Returns whether this very record is open: not decided, renewed or expired."""
        return self._open.get(half.offset) is half

    def all(self) -> list[OpenHalf]:
        """Returns all open half records, oldest first."""
        return list(self._open.values())

    def below(self, at: int) -> Iterator[OpenHalf]:
        """Yields open records below physical offset `at`, oldest first; skips those closed meanwhile."""
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
    """Returns what a check does with an open half message, about which producers were asked `asked` times.

    At the exact due time it still waits; the next round asks.
    """
    if now_ms - born_ms > rules.lifetime_ms and due_ms != NEVER_MS:
        return CheckStep.EXPIRE
    if now_ms > due_ms:
        return CheckStep.EXPIRE if asked >= rules.max_checks else CheckStep.ASK
    return CheckStep.MOVE if is_far_behind else CheckStep.WAIT


def immunity_ms(text: str | None, timeout_ms: int) -> int:
    """Returns the ms after birth in which no producer is asked: `text` seconds, at least `timeout_ms`.

    That is the number of seconds in `text`, a property of the message, but at least `timeout_ms`.
    """
    if text is None or not text.isdecimal() or len(text) > MAX_DIGITS:
        return timeout_ms
    return max(int(text) * 1000, timeout_ms)
