"""How far each slave has copied the log, and which sends wait for it. Pure: no socket, no clock, no file.

In: slaves that come, report and leave, ends of records that must be copied, and the time. Out: a call to each
waiter, once: when enough slaves have everything below its end, or when its time is over. A slave counts from
its first report on, and only while it is connected: what it had before it disconnected does not count.

Each waiter is in two heaps, by end and by deadline. One that was called stays in the other heap as a mark
until its turn comes, or until marks are the greater part: a report or a deadline costs about as much as the
number of waiters that it ends, however many there are.
"""

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

log = logging.getLogger(__name__)

MAX_MARKS = 64  # in a heap, beside as many as there are waiters


@dataclass(frozen=True, slots=True)
class CopyCount:
    """How many brokers have a record, master included, and how many slaves have it on disk."""

    in_memory: int
    """Brokers that have it, in memory or on disk."""
    on_disk: int
    """Slaves that have said that it is on their disk."""
    is_enough: bool
    """Whether that is as many as were waited for."""


Copied = Callable[[CopyCount], None]


@dataclass(slots=True)
class SlaveCopy:
    """How far one slave has copied the log."""

    received: int = 0
    synced: int = -1


@dataclass(slots=True, eq=False)
class _Waiter:
    end: int
    needed: int
    done: Copied | None
    """None: it was called."""


_Heap = list[tuple[float, int, _Waiter]]
"""Waiters by end or deadline; equal ones in the order in which they came."""


class Copies:
    """How far each slave of a master has copied the log, and the callbacks that wait for copies."""

    def __init__(self) -> None:
        self.slaves: dict[Hashable, SlaveCopy] = {}
        """The slaves that count, by connection."""
        self.waiting = 0
        """How many waiters have not been called."""
        self._by_end: dict[int, _Heap] = {}  # by the number of brokers that they need
        self._by_deadline: _Heap = []
        self._came = 0

    # slaves

    def reported(self, slave: Hashable, received: int, synced: int = -1) -> None:
        """Notes how far a slave has copied the log, and calls the waiters that have enough copies now."""
        copy = self.slaves.get(slave)
        if copy is None:
            copy = self.slaves[slave] = SlaveCopy()
        copy.received, copy.synced = received, synced
        if self.waiting:
            self._release()

    def left(self, slave: Hashable) -> None:
        """Forgets a slave that is gone, or that turned out not to be a copy."""
        self.slaves.pop(slave, None)

    @property
    def furthest(self) -> int:
        """Log offset that the slave which has copied most has reached; -1 without a slave."""
        return max((copy.received for copy in self.slaves.values()), default=-1)

    def within(self, end: int, gap: int) -> int:
        """Returns how many slaves lack less than `gap` bytes of a log that ends at `end`."""
        return sum(end - copy.received < gap for copy in self.slaves.values())

    def count(self, end: int, needed: int) -> CopyCount:
        """Returns how many brokers have everything below `end` now."""
        received = 1 + sum(copy.received >= end for copy in self.slaves.values())
        synced = sum(copy.synced >= end for copy in self.slaves.values())
        return CopyCount(received, synced, received >= needed)

    # waiting

    def wait(self, end: int, needed: int, deadline: float, done: Copied) -> None:
        """Calls `done` once: when `needed` brokers, master included, have all below `end`, or in `expire`.

        `expire` calls it when `deadline` has passed.
        """
        now = self.count(end, needed)
        if now.is_enough:
            done(now)
            return
        waiter = _Waiter(end, needed, done)
        self._came += 1
        self.waiting += 1
        heappush(self._by_end.setdefault(needed, []), (end, self._came, waiter))
        heappush(self._by_deadline, (deadline, self._came, waiter))

    def _release(self) -> None:
        """Calls the waiters that have enough copies, in the order of their ends."""
        received = sorted((copy.received for copy in self.slaves.values()), reverse=True)
        released: _Heap = []
        for needed, heap in self._by_end.items():
            # The slave with the least of those that are needed: what it has is enough.
            last = needed - 2
            reached = received[last] if last < len(received) else -1
            while heap and heap[0][0] <= reached:
                released.append(heappop(heap))
        if released:
            self._call(sorted(released) if len(self._by_end) > 1 else released)
            self._drop_marks(self._by_deadline)

    def expire(self, now: float) -> None:
        """Calls the waiters whose deadline has passed, with the number of copies that there are."""
        late: _Heap = []
        while self._by_deadline and self._by_deadline[0][0] <= now:
            late.append(heappop(self._by_deadline))
        self._call(late)
        for heap in self._by_end.values():
            self._drop_marks(heap)

    def give_up(self) -> None:
        """Calls all waiters with the copies that there are: the broker stops, or no slave is left."""
        waiters, self._by_deadline, self._by_end = sorted(self._by_deadline), [], {}
        self._call(waiters)

    def _call(self, waiters: _Heap) -> None:
        """Calls those waiters that were not called before, with the copies that there are."""
        told: list[tuple[Copied, CopyCount]] = []
        for _, _, waiter in waiters:
            if waiter.done is not None:
                told.append((waiter.done, self.count(waiter.end, waiter.needed)))
                waiter.done = None
        self.waiting -= len(told)
        for done, count in told:
            _tell(done, count)

    def _drop_marks(self, heap: _Heap) -> None:
        """Removes called waiters from a heap that has more of them than of others."""
        if len(heap) > 2 * self.waiting + MAX_MARKS:
            heap[:] = [entry for entry in heap if entry[2].done is not None]
            heapify(heap)

    @property
    def next_deadline(self) -> float | None:
        """When `expire` has to be called next; None: nobody waits."""
        heap = self._by_deadline
        while heap and heap[0][2].done is None:
            heappop(heap)
        return heap[0][0] if heap else None


def _tell(done: Copied, count: CopyCount) -> None:
    """Calls one waiter. A failure (its peer is gone) must not keep the others from their answers."""
    try:
        done(count)
    except Exception:
        log.exception("A callback after a copy failed")
