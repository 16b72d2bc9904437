"""Appends of a leader that wait until they are committed. Pure: no socket, no clock, no file.

In: entries that were appended, commits, the time, and the loss of the role. Out: a call to each waiter,
exactly once. Each waiter is in two heaps, by index and by deadline; one that was called stays in the other
heap as a mark until its turn comes, or until marks are the greater part.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush

import msgspec

log = logging.getLogger(__name__)

MAX_PENDING_APPENDS = 10_000
"""DLedger's bound: a leader without its followers must not gather requests without end."""
MAX_MARKS = 64  # in a heap, beside as many as there are waiters


class AppendOutcome(StrEnum):
    """What became of an append."""

    COMMITTED = "committed"
    TIMED_OUT = "timed out"
    """No majority in time: whether it will be committed is not known."""
    ROLE_LOST = "role lost"
    """The node leads no longer: whether it will be committed is not known."""


class AppendResult(msgspec.Struct, frozen=True):
    """The one answer of a pending append."""

    outcome: AppendOutcome
    term: int
    index: int


AppendDone = Callable[[AppendResult], None]


@dataclass(slots=True, eq=False)
class _Waiter:
    term: int
    index: int
    done: AppendDone | None
    """None: it was called."""


_Heap = list[tuple[int, int, _Waiter]]
"""Waiters by index or deadline; equal ones in the order in which they came."""


class PendingAppends:
    """Waiters by index and deadline; each is called exactly once."""

    def __init__(self) -> None:
        self.waiting = 0
        """How many waiters have not been called."""
        self._by_index: _Heap = []
        self._by_deadline: _Heap = []
        self._came = 0

    @property
    def is_full(self) -> bool:
        """Whether the leader takes no more appends for now."""
        return self.waiting >= MAX_PENDING_APPENDS

    def wait(self, term: int, index: int, deadline_ms: int, done: AppendDone) -> None:
        """Calls `done` once: when `index` is committed, at the deadline, or when the role is lost."""
        waiter = _Waiter(term, index, done)
        self._came += 1
        self.waiting += 1
        heappush(self._by_index, (index, self._came, waiter))
        heappush(self._by_deadline, (deadline_ms, self._came, waiter))

    def committed(self, index: int) -> None:
        """Answers the waiters up to `index`: they are committed."""
        self._call(_taken(self._by_index, index), AppendOutcome.COMMITTED)
        self._drop_marks(self._by_deadline)

    def expire(self, now_ms: int) -> None:
        """Answers the waiters whose deadline has passed."""
        self._call(_taken(self._by_deadline, now_ms), AppendOutcome.TIMED_OUT)
        self._drop_marks(self._by_index)

    def role_lost(self) -> None:
        """Answers all waiters: this node leads no longer."""
        waiters, self._by_index, self._by_deadline = sorted(self._by_index), [], []
        self._call([waiter for _, _, waiter in waiters], AppendOutcome.ROLE_LOST)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` has to be called next; None: no append waits."""
        heap = self._by_deadline
        while heap and heap[0][2].done is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def _call(self, waiters: list[_Waiter], outcome: AppendOutcome) -> None:
        told: list[tuple[AppendDone, AppendResult]] = []
        for waiter in waiters:
            if waiter.done is not None:
                told.append((waiter.done, AppendResult(outcome, waiter.term, waiter.index)))
                waiter.done = None
        self.waiting -= len(told)
        for done, result in told:
            _tell(done, result)

    def _drop_marks(self, heap: _Heap) -> None:
        """Removes called waiters from a heap that has more of them than of others."""
        if len(heap) > 2 * self.waiting + MAX_MARKS:
            heap[:] = [entry for entry in heap if entry[2].done is not None]
            heapify(heap)


def _taken(heap: _Heap, limit: int) -> list[_Waiter]:
    """Removes and returns the waiters of a heap up to `limit`."""
    waiters: list[_Waiter] = []
    while heap and heap[0][0] <= limit:
        waiters.append(heappop(heap)[2])
    return waiters


def _tell(done: AppendDone, result: AppendResult) -> None:
    """Calls one waiter. A failure (its peer is gone) must not keep the others from their answers."""
    try:
        done(result)
    except Exception:
        log.exception("A callback after an append failed")
