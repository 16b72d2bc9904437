"""How far each slave has copied the log, and which sends wait for it. Pure: no socket, no clock, no file.

In: slaves that come, report and leave, ends of records that must be copied, and the time. Out: a call to each
waiter, once: when enough slaves have everything below its end, or when its time is over. A slave counts from
its first report on and only while it is connected; what a disconnected slave had does not count.
"""

import logging
from bisect import insort
from collections.abc import Callable, Hashable
from dataclasses import dataclass

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


@dataclass(slots=True, eq=False)
class _Waiter:
    end: int
    needed: int
    deadline: float
    done: Copied

    def __lt__(self, other: "_Waiter") -> bool:
        return self.end < other.end


class Copies:
    """How far each slave of a master has copied the log, and the callbacks that wait for copies."""

    def __init__(self) -> None:
        self.slaves: dict[Hashable, SlaveCopy] = {}
        """The slaves that count, by connection."""
        self._waiters: list[_Waiter] = []  # by end

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    # slaves

    def reported(self, slave: Hashable, received: int, synced: int = -1) -> None:
        """Notes how far a slave has copied the log, and calls the waiters that have enough copies now."""
        copy = self.slaves.get(slave)
        if copy is None:
            copy = self.slaves[slave] = SlaveCopy()
        copy.received, copy.synced = received, synced
        if self._waiters and self._waiters[0].end <= received:
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
        else:
            insort(self._waiters, _Waiter(end, needed, deadline, done))

    def _release(self) -> None:
        """Calls the waiters that have enough copies, among those that the furthest slave has reached."""
        furthest, waiters = self.furthest, self._waiters
        released: list[tuple[_Waiter, CopyCount]] = []
        at = 0
        while at < len(waiters) and waiters[at].end <= furthest:
            waiter = waiters[at]
            count = self.count(waiter.end, waiter.needed)
            if count.is_enough:
                released.append((waiter, count))
            at += 1
        if len(released) == at:
            del waiters[:at]
        else:
            gone = {waiter for waiter, _ in released}
            waiters[:at] = [waiter for waiter in waiters[:at] if waiter not in gone]
        for waiter, count in released:
            _tell(waiter.done, count)

    def expire(self, now: float) -> None:
        """Calls the waiters whose deadline has passed, with the number of copies that there are."""
        late = [waiter for waiter in self._waiters if waiter.deadline <= now]
        if late:
            self._waiters = [waiter for waiter in self._waiters if waiter.deadline > now]
        for waiter in late:
            _tell(waiter.done, self.count(waiter.end, waiter.needed))

    def give_up(self) -> None:
        """Calls all waiters with the copies that there are: the broker stops, or no slave is left."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _tell(waiter.done, self.count(waiter.end, waiter.needed))

    @property
    def next_deadline(self) -> float | None:
        """When `expire` has to be called next; None: nobody waits."""
        return min((waiter.deadline for waiter in self._waiters), default=None)


def _tell(done: Copied, count: CopyCount) -> None:
    """Calls one waiter. A failure (its peer is gone) must not keep the others from their answers."""
    try:
        done(count)
    except Exception:
        log.exception("A callback after a copy failed")
