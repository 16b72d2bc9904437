"""Puts timers into their queue again when their file of the commit log is about to be deleted.

In: the offset below which the log is deleted. Out: copies at the end of the queue of timers, and the places
of units that must not fire any more. These are marked as dead when their copies are safe; until then, also
after a crash between the two, the copy names its original. Delivery is the subject of `timers.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from turbopump.broker.delay import timer_records
from turbopump.broker.storage import Storage
from turbopump.protocol.errors import SystemBusy
from turbopump.protocol.record import Record
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appended
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.timer_log import UNIT_SIZE, TimerLog, Unit

log = logging.getLogger(__name__)

BATCH = 128  # messages of one append
UNITS_PER_TURN = 4096  # 5 ms
PAUSE_S = 60.0  # after rewriting a file that held mostly timed messages

DAMAGED = (
    "The timer log is damaged at %d: up to %d timers behind it cannot be read. Those whose file of the "
    "commit log is deleted before they are due are lost. `turbopump store verify` shows the damage"
)

Read = Callable[[int, int], Record | None]
OnMoved = Callable[[list[Appended], Iterable[Unit]], None]


class TimerRescue:
    """Copies waiting timers out of a commit log file that is about to be deleted."""

    def __init__(
        self, store: Storage, timer_log: TimerLog, read: Read, clock: Clock, on_moved: OnMoved
    ) -> None:
        self._store = store
        self._log = timer_log
        self._read = read
        self._clock = clock
        self._on_moved = on_moved
        self._not_before = 0.0
        self._damaged_at = -1  # the place that a warning named
        self.places: set[int] = set()
        """Places of units that were put into the queue again and are not marked as dead yet."""
        self.copies_from = 0
        """The log offset from which on the copies of `places` are."""

    async def put_again(self, below: int, queue: ConsumeQueue, is_over: Callable[[int, Unit], bool]) -> int:
        """Copies timers that wait below log offset `below` to `queue`; returns their bytes. Raises Refused.

        `is_over` returns whether the unit at a place of the timer log needs no copy, since it has fired.

        Units are in the order of the log, so those of its first file come first.
        """
        moved: list[tuple[int, Unit]] = []
        total = 0
        read_until = self._log.begin
        for count, (at, unit) in enumerate(self._log.scan()):
            if unit.offset >= below:
                break
            read_until = at + UNIT_SIZE
            if unit.offset >= self._store.log.min_offset and at not in self.places and not is_over(at, unit):
                moved.append((at, unit))
            if len(moved) >= BATCH:
                total += await self._put_some(moved, queue)
                moved = []
            if count % UNITS_PER_TURN == 0:
                await asyncio.sleep(0)
        else:
            self._warn_of_damage(read_until)
        total += await self._put_some(moved, queue)
        if total > self._store.config.commit_log_file_size // 2:
            self._not_before = self._clock.monotonic() + PAUSE_S
        return total

    def _warn_of_damage(self, read_until: int) -> None:
        """Logs that the timer log could be read up to a position before its end only, once for each."""
        unread = (self._log.end - self._log.next_place(read_until)) // UNIT_SIZE
        if unread > 0 and read_until != self._damaged_at:
            self._damaged_at = read_until
            log.warning(DAMAGED, read_until, unread)

    async def _put_some(self, moved: list[tuple[int, Unit]], queue: ConsumeQueue) -> int:
        if not moved:
            return 0
        if self._clock.monotonic() < self._not_before:
            raise SystemBusy("a file full of them was rewritten less than a minute ago")
        await self._store.reader.bring((unit.offset, unit.size) for _, unit in moved)
        now_ms = self._clock.now_ms()
        drafts, copied = [], {}
        for at, unit in moved:
            record = self._read(unit.offset, unit.size)
            if record is None or (unit.recalls and not timer_records.recalled_by(record)):
                continue  # deleted, or marked as dead already
            drafts.append(timer_records.put_again(record, queue, unit.written_ms, now_ms))
            copied[at] = unit
        if not self.places:
            self.copies_from = self._store.log.end
        if drafts:
            self._on_moved(self._store.log.rewrite(drafts), copied.values())
        self.places.update(copied)
        return sum(unit.size for _, unit in moved)
