"""How far each slave has copied the log, and which sends wait for it. Pure: no socket, no clock, no file.

In: slaves that come, report and leave, ends of records that must be copied, and the time. Out: a call to each
waiter, once: when enough slaves have everything below its end, or when its time is over. A slave counts from
its first report on, and only while it is connected: what it had before it disconnected does not count.

Waiters stand in lanes, in which neither ends nor deadlines ever fall. Sends come in this order, so there is
mostly one lane; a waiter that fits into none opens another one. A report or a deadline takes waiters from the
front of each lane and costs about as much as the number of those, however many wait.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from math import inf

log = logging.getLogger(__name__)


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


_Waiter = tuple[int, float, int, int, Copied]
"""End, deadline, number in the order of coming, how many brokers it needs, and what to call."""
_Lane = deque[_Waiter]


class Copies:
    """How far each slave of a master has copied the log, and the callbacks that wait for copies."""

    def __init__(self) -> None:
        self.slaves: dict[Hashable, SlaveCopy] = {}
        """The slaves that count, by connection."""
        self.waiting = 0
        """How many waiters have not been called."""
        self._received: list[int] = []  # how far the slaves are, the greatest first
        self._lanes: dict[int, list[_Lane]] = {}  # by the number of brokers that are needed
        self._came = 0

    # slaves

    def reported(self, slave: Hashable, received: int, synced: int = -1) -> None:
        """Notes how far a slave has copied the log, and calls the waiters that have enough copies now."""
        copy = self.slaves.get(slave)
        if copy is None:
            copy = self.slaves[slave] = SlaveCopy()
        copy.received, copy.synced = received, synced
        self._sort_received()
        if self.waiting:
            self._release()

    def left(self, slave: Hashable) -> None:
        """Forgets a slave that is gone, or that turned out not to be a copy."""
        self.slaves.pop(slave, None)
        self._sort_received()

    def _sort_received(self) -> None:
        self._received = sorted((copy.received for copy in self.slaves.values()), reverse=True)

    @property
    def furthest(self) -> int:
        """Log offset that the slave which has copied most has reached; -1 without a slave."""
        return self._received[0] if self._received else -1

    def reaches(self, end: int, gap: int) -> bool:
        """Returns whether any slave lacks less than `gap` bytes of a log that ends at `end`."""
        received = self._received
        return bool(received) and end - received[0] < gap

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
        if end <= self._reached(needed):
            done(self.count(end, needed))
            return
        self._came += 1
        self.waiting += 1
        self._lane(end, needed, deadline).append((end, deadline, self._came, needed, done))

    def _reached(self, needed: int) -> float:
        """Returns the log offset below which that many brokers, master included, have everything."""
        received = self._received
        if needed <= 1:
            return inf
        return received[needed - 2] if needed - 2 < len(received) else -1

    def _lane(self, end: int, needed: int, deadline: float) -> _Lane:
        """Returns the lane for a waiter, at whose end it stands in order."""
        lanes = self._lanes.get(needed)
        if lanes is None:
            lanes = self._lanes[needed] = []
        for lane in lanes:
            if not lane or (lane[-1][0] <= end and lane[-1][1] <= deadline):
                return lane
        lanes.append(deque())
        return lanes[-1]

    def _release(self) -> None:
        """Calls the waiters that have enough copies, in the order of their ends."""
        released: list[_Waiter] = []
        for needed, lanes in self._lanes.items():
            reached = self._reached(needed)
            for lane in lanes:
                while lane and lane[0][0] <= reached:
                    released.append(lane.popleft())
        if released:
            self._call(released, lambda waiter: (waiter[0], waiter[2]))

    def expire(self, now: float) -> None:
        """Calls the waiters whose deadline has passed, with the number of copies that there are."""
        late: list[_Waiter] = []
        for lane in self._all_lanes():
            while lane and lane[0][1] <= now:
                late.append(lane.popleft())
        self._call(late, _deadline_of)

    def give_up(self) -> None:
        """Calls all waiters with the copies that there are: the broker stops, or no slave is left."""
        waiters = [waiter for lane in self._all_lanes() for waiter in lane]
        self._lanes.clear()
        self._call(waiters, _deadline_of)

    def _all_lanes(self) -> list[_Lane]:
        return [lane for lanes in self._lanes.values() for lane in lanes]

    def _call(self, waiters: list[_Waiter], order: Callable[[_Waiter], tuple[float, int]]) -> None:
        """Calls waiters that were taken from their lanes, with the copies that there are."""
        if len(self._all_lanes()) > 1:
            waiters.sort(key=order)
            self._drop_empty_lanes()
        counts = _Counts(self)
        told = [(done, counts.of(end, needed)) for end, _, _, needed, done in waiters]
        self.waiting -= len(told)
        for done, count in told:
            try:
                done(count)
            except Exception:  # its peer is gone: that must not keep the others from their answers
                log.exception("A callback after a copy failed")

    def _drop_empty_lanes(self) -> None:
        lanes_left = {needed: [lane for lane in lanes if lane] for needed, lanes in self._lanes.items()}
        self._lanes = {needed: lanes for needed, lanes in lanes_left.items() if lanes}

    @property
    def next_deadline(self) -> float | None:
        """When `expire` has to be called next; None: no request waits."""
        return min((lane[0][1] for lane in self._all_lanes() if lane), default=None)


class _Counts:
    """Counts copies for one waiter after the other: those between the same two offsets share a count."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._needed = 0
        self._above, self._up_to = 0.0, -1.0  # the last count is that of these ends
        self._last = CopyCount(1, 0, False)

    def of(self, end: int, needed: int) -> CopyCount:
        if not self._above < end <= self._up_to or needed != self._needed:
            offsets = _offsets(self._copies.slaves.values())
            self._above = max((offset for offset in offsets if offset < end), default=-inf)
            self._up_to = min((offset for offset in offsets if offset >= end), default=inf)
            self._needed, self._last = needed, self._copies.count(end, needed)
        return self._last


def _offsets(copies: Iterable[SlaveCopy]) -> list[int]:
    return [offset for copy in copies for offset in (copy.received, copy.synced)]


def _deadline_of(waiter: _Waiter) -> tuple[float, int]:
    return waiter[1], waiter[2]
