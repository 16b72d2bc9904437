"""Finds at a start which units of the timer log have not fired, from the files of the last run.

In: the timer log, `timercheck`, and the commit log. Out: the slots of the wheel, the overdue units, and from
where on the queue of timed messages has to be read. Units of messages that were delivered after `timercheck`
was written are marked as dead here, so that they need no memory.

    timercheck is ours       the timer log counts up to where it says, the queue is read from where it says
    it is Apache's           the timer log counts as far as it is whole, as at Apache's start; copies of what
                             is due since are found by the keys of messages: they do not name their originals
    it is lost, or the log   the queue is read from the beginning, or from the last unit on, and the whole
    of timers is damaged     commit log is searched for copies
"""

import asyncio
from collections import Counter

from turbopump.broker.delay import level_records, timer_records
from turbopump.broker.delay.timer_records import Name
from turbopump.broker.storage import Storage
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.timer_check import TimerCheck
from turbopump.store.timer_log import DEAD, RECALL, UNIT_SIZE, TimerLog, Unit
from turbopump.store.timer_wheel import Slot

RECORDS_PER_TURN = 4096  # of the log: 3 ms
MAX_AHEAD_MS = 2 * 86_400_000
UNITS_PER_TURN = 4096  # 5 ms
CLOCK_SET_BACK_MS = 60_000  # margin before the time in Apache's file, from which on copies are searched


class TimerRecovery:
    """Reads the timer log once, at a start, for timers that wait. Its public fields are the result."""

    def __init__(
        self,
        store: Storage,
        queue: ConsumeQueue | None,
        timer_log: TimerLog,
        check: TimerCheck | None,
        log_end: int,
        now_ms: int,
        precision_ms: int,
    ) -> None:
        if check is not None and check.read_ms > now_ms + MAX_AHEAD_MS:
            check = None  # it cannot be right, however the clock was set
        self._store = store
        self._queue = queue
        self._log = timer_log
        self._check = check
        self._log_end = log_end
        self._precision_ms = precision_ms
        self._done: set[int] = set()
        self._end = timer_log.begin
        self._last_offset = -1
        note = None if check is None else check.note
        self._read_ms = 0 if check is None else check.read_ms
        self._precision_before_ms = precision_ms if note is None else note.precision_ms
        self.begin_ms = self._read_ms - self._read_ms % precision_ms
        self.current_ms = max(now_ms - now_ms % precision_ms, self.begin_ms)
        self.slots: dict[int, Slot] = {}
        self.overdue: list[int] = []
        self.recalls: list[int] = []
        self.waiting: Counter[int] = Counter()  # by the hash of their topic
        self.timers_from = 0
        self.copies_from = log_end

    async def run(self) -> set[int]:
        """Reads the files. Returns the physical offsets of timers that were delivered or rewritten before.

        Those with a unit in the timer log are marked as dead there.
        """
        check, note = self._check, None if self._check is None else self._check.note
        if check is not None and note is None:
            # Apache's broker has run since, or a crash left half of a file of ours.
            self.copies_from = await self._store.times.stored_since(check.read_ms - CLOCK_SET_BACK_MS)
            await self._look_back(self.copies_from)
            await self._read_log(None)
            self.timers_from = self._apache_reached(check)
            self._log.cut(self._end)
            await self._pass_delivered(check.read_ms)
        else:
            is_whole = await self._read_ours(check)
            self._log.cut(self._end)
            if not is_whole:
                await self._pass_delivered(0)
        return self._done

    async def _read_ours(self, check: TimerCheck | None) -> bool:
        """Recovers from files that this broker wrote. False: `timercheck` or units it counts are missing."""
        note = None if check is None else check.note
        if check is not None and note is not None:
            self.copies_from, self.timers_from = note.copies_from, note.timers_from
            await self._look_back(note.copies_from)
            await self._read_log(check.log_end)
            if self._end == check.log_end:
                return True
        first = self._first_record()
        self.copies_from = min(self.copies_from, first)
        await self._look_back(first)
        await self._read_log(None)
        self.timers_from = self._last_offset + 1
        return False

    async def _look_back(self, at: int) -> None:
        """Adds to `_done` the originals of all copies in the log from physical offset `at` on."""
        end = self._store.log.committed
        while at < end:
            named, at = self._store.log.references(at, RECORDS_PER_TURN)
            self._done.update(
                origin for number in named if (origin := level_records.origin(number)) is not None
            )
            await asyncio.sleep(0)

    def _first_record(self) -> int:
        first = None if self._queue is None else self._queue.entry(self._queue.min_offset)
        return self._log_end if first is None else first[0]

    async def _read_log(self, end: int | None) -> None:
        self.slots, self.overdue, self.recalls, self.waiting = {}, [], [], Counter()
        self._end, self._last_offset = self._log.begin, -1
        for count, (at, unit) in enumerate(self._log.scan()):
            if (end is not None and at >= end) or unit.offset + unit.size > self._log_end:
                break
            self._end, self._last_offset = at + UNIT_SIZE, unit.offset
            self._take(at, unit)
            if count % UNITS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _take(self, at: int, unit: Unit) -> None:
        slot_ms = timer_records.slot_of(unit, self._precision_ms)
        if slot_ms < self.begin_ms or unit.offset < self._store.log.min_offset:
            return
        was_over = timer_records.slot_of(unit, self._precision_before_ms) < self._read_ms
        if (was_over or unit.offset in self._done) and unit.magic != DEAD:
            self._log.disable(at)
            return
        before = self.slots.get(slot_ms)
        if before is not None and unit.previous != before.last:
            self._log.relink(at, before.last)
        count = -1 if unit.recalls else 1
        self.waiting[unit.topic_hash] += 0 if unit.recalls else 1
        self.slots[slot_ms] = (
            Slot(at, at, count) if before is None else Slot(before.first, at, before.units + count)
        )
        if slot_ms <= self.current_ms:
            (self.recalls if unit.magic & RECALL else self.overdue).append(at)

    def _apache_reached(self, check: TimerCheck) -> int:
        """Returns the physical offset from which on Apache's broker had not read the queue of timers.

        It writes no unit for messages due on arrival, so the end of the timer log is not enough.
        """
        after_units = self._last_offset + 1
        if self._queue is None or self._store.recovered_end is not None:
            return after_units
        reached = self._queue.entry(min(check.queue_offset, self._queue.first_at_or_after(self._log_end)) - 1)
        return after_units if reached is None else max(after_units, reached[0] + 1)

    async def _pass_delivered(self, since_ms: int) -> None:
        """Finds timers delivered after `since_ms` by their copies: marks them dead or adds them to `_done`.

        No file records these: they are found by copies with the same unique key in the log.
        """
        units = {at: unit for at in self.overdue if (unit := self._log.unit(at)) is not None}
        waiting = self._not_in_timer_log()
        if not units and not waiting:
            return
        begin = min(waiting, default=self._log_end)
        if units:
            since = await self._store.times.stored_since(since_ms - CLOCK_SET_BACK_MS)
            begin = min(begin, max(since, min(unit.offset for unit in units.values())))
        copies = await self._copies(begin)
        delivered = {at for at, unit in units.items() if self._has_copy(unit.offset, unit.rolls, copies)}
        for at in delivered:
            self._log.disable(at)
        self.overdue = [at for at in self.overdue if at not in delivered]
        self.waiting.subtract(units[at].topic_hash for at in delivered)
        self._done.update(
            offset
            for offset in waiting
            if any(self._has_copy(offset, rolls, copies) for rolls in (False, True))
        )

    def _not_in_timer_log(self) -> list[int]:
        if self._queue is None:
            return []
        first, end = self._queue.first_at_or_after(self.timers_from), self._queue.max_offset
        entries = (self._queue.entry(offset) for offset in range(first, end))
        return [entry[0] for entry in entries if entry is not None]

    async def _copies(self, at: int) -> Counter[Name]:
        found: Counter[Name] = Counter()
        while at < self._log_end:
            records, at = self._store.log.carrying(timer_records.DELIVERED_MARK, at, RECORDS_PER_TURN)
            found.update(name for one in records if (name := timer_records.name_of_copy(one)) is not None)
            await asyncio.sleep(0)
        return found

    def _has_copy(self, offset: int, rolls: bool, copies: Counter[Name]) -> bool:
        """Returns whether `copies` has a copy of the timer at physical `offset`, and counts it off.

        Each copy counts once: a message may have been sent twice.
        """
        if not copies or (record := self._store.log.look_up(offset)) is None:
            return False
        name = timer_records.name_of_copy_of(record, rolls)
        if copies[name] <= 0:
            return False
        copies[name] -= 1
        return True
