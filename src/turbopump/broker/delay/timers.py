"""Delivers timers: each in its millisecond, once, also across restarts and crashes.

In: the queue rmq_sys_wheel_timer, which `timer_intake.py` fills, and the time. Out: copies in the topics
where the messages belong, many in one append, in short turns between other work. Waiting timers are in
Apache's files: a unit in `timerlog/` for each message, chained by the slots of `timerwheel`. Memory holds the
timers of the current slot, sorted by the millisecond: one number for each (`due_timers.py`). A message that
is due later than the wheel reaches waits in a nearer slot, and is put into the queue again from there (it
rolls).

`timercheck` says before which time everything is done, up to where the timer log is whole, and from where on
the commit log has to be read after a crash: every copy names its original, so what was delivered since is
known. The files are never needed for a start (`timer_recovery.py`): each can be rebuilt from the one before.

Before the store deletes a file of the log, the messages that still wait in it are put into the queue again
(`timer_rescue.py`).
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator

from turbopump.broker.config import TimerRules
from turbopump.broker.delay import level_records, timer_records
from turbopump.broker.delay.due_timers import PLACE, DueTimers, Key
from turbopump.broker.delay.pacing import TurnPacer
from turbopump.broker.delay.timer_counts import TimerCounts, TimerProgress
from turbopump.broker.delay.timer_recovery import TimerRecovery
from turbopump.broker.delay.timer_rescue import TimerRescue
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.protocol.bodies import DataVersion, TimerMetrics, TimingCount
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import MessageIllegal, Refused
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.protocol.record import Record
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock, NeverSet
from turbopump.runtime.disk import Disk, PlainFile, Workers
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.store import timer_check
from turbopump.store.append import Appended, Draft
from turbopump.store.consume_queue import BLANK_SIZE, ENTRY, ConsumeQueue
from turbopump.store.timer_check import TimerCheck, TimerCheckNote
from turbopump.store.timer_log import DEAD, NONE, RECALL, TimerLog, Unit
from turbopump.store.timer_wheel import Slot, TimerWheel
from turbopump.store.times import store_time

log = logging.getLogger(__name__)

FILE = "timercheck"

TICK_S = 0.01  # between two looks for messages that wait for a sync
MAX_PAUSE_S = 60.0  # the wall clock may be set during the pause ...
MAX_PAUSE_NEVER_SET_S = 3600.0  # ... but the clock of a test is not
RETRY_S = 1.0  # after a failed write or a defect

BATCH = 128  # messages of one append ...
BATCH_BYTES = 1 << 20  # ... and their bytes: about 2 ms
TURN_S = 0.005  # then the event loop serves others
BATCHES_PER_TURN = 4
MESSAGES_PER_TURN = 256  # from the queue into the wheel: 5 ms
UNITS_PER_TURN = 4096  # of a slot, into memory: 5 ms
MAX_READ_BACK_BYTES = 64 << 20  # of the log, at a start, also when timers are idle
LOST_LINES_PER_MINUTE = 20  # in the log, about skipped messages
DEAD_UNITS_PER_TURN = 512  # marked in the timer log: 3 ms

Append = Callable[[list[Draft]], list[Appended]]
Save = Callable[[str, bytes], None]


class TimedMessages:
    """Background delivery of timers from the wheel; saves which ones were delivered."""

    def __init__(
        self,
        store: Storage,
        topics: TopicTable,
        writer: MessageWriter,
        save: Save,
        workers: Workers,
        clock: Clock,
        disk: Disk,
        rules: TimerRules,
    ) -> None:
        self._store = store
        self._topics = topics
        self._writer = writer
        self._append = writer.append_counted
        self._save = save
        self._workers = workers
        self._clock = clock
        self._rules = rules
        self._precision_ms = rules.precision_ms
        root = store.config.root_dir
        self._log = TimerLog(os.path.join(root, "timerlog"), rules.log_file_size, disk)
        self._wheel = TimerWheel(os.path.join(root, "timerwheel"), disk, rules.precision_ms)
        self._queue: ConsumeQueue | None = None
        self._check: TimerCheck | None = None
        self._opened_at = 0
        self._begin_ms = self._current_ms = 0
        """Slots before `_begin_ms` are done; timers of slots up to `_current_ms` are in `_due`."""
        self._due = DueTimers()
        self._rescue = TimerRescue(store, self._log, self._record, clock, self._moved)
        self._done: set[int] = set()  # at a start: records that were delivered before
        self._next = 0  # offset in the queue: everything before is in the wheel
        self._recalls_end = 0  # offset in the queue: recalls before it must be read before anything fires
        self._timers_from = self._copies_from = 0
        self._saved_from = 0
        self._counter = 0
        self.counts = TimerCounts(topics)
        self._busy = asyncio.Lock()
        self._changed = asyncio.Event()
        self._is_ready = False
        self._pacing = TurnPacer(store, writer.acknowledgement)
        self._trouble = RateLimitedLog(log, 60.0, logging.ERROR)
        self._lost = RateLimitedLog(log, 60.0, logging.ERROR, LOST_LINES_PER_MINUTE)
        self._passed_over = 0

    def routes(self) -> Routes:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: Route(None, self.checkpoint),
            RequestCode.GET_TIMER_METRICS: Route(None, self.metrics),
        }

    def checkpoint(self, request: Request[None]) -> Answer:
        return Answer(body=self._state().public)

    def metrics(self, request: Request[None]) -> Answer:
        now_ms = self._clock.now_ms()
        counts = {
            topic: TimingCount(count, now_ms) for topic, count in self.counts.waiting_by_topic().items()
        }
        version = DataVersion(counter=self.counts.taken_in + self.counts.given_out, timestamp=now_ms)
        return Answer(body=TimerMetrics(dataVersion=version, timingCount=counts).encode())

    @property
    def queue_behind(self) -> int:
        """Number of messages in the queue of timers that are not in the wheel yet."""
        end = self._queue.max_offset if self._queue is not None else 0
        return max(0, end - self._next)

    @property
    def queue_behind_ms(self) -> int:
        """How long (ms) the oldest message that is not in the wheel yet has been stored; 0: none."""
        if self._queue is None or not self.queue_behind:
            return 0
        stored_ms = store_time(self._store.log, self._queue, self._next)
        return max(0, self._clock.now_ms() - stored_ms) if stored_ms > 0 else 0

    def due_within(self, seconds: int) -> Iterator[tuple[float, int]]:
        """Yields (seconds until due, number of timers) for each slot with timers due in the next `seconds`.

        Timers of the current slot come first, with 0 seconds.
        """
        now_ms = self._clock.now_ms()
        if waiting := len(self._due.places()):
            yield 0.0, waiting
        time_ms = self._wheel.next_after(now_ms)
        while time_ms is not None and time_ms <= now_ms + 1000 * seconds:
            if units := self._wheel.get(time_ms).units:
                yield (time_ms - now_ms) / 1000, units
            time_ms = self._wheel.next_after(time_ms)

    @property
    def behind_ms(self) -> int:
        """How late (ms) the first timer of the current or earlier slots is; 0: none is late."""
        first_ms = self._due.next_ms()
        return 0 if first_ms is None else max(0, self._clock.now_ms() - first_ms)

    def progress(self) -> TimerProgress:
        """Returns the counts, lateness and rates of timers that operators and tools see."""
        return TimerProgress(
            self.counts.waiting.total(),
            self.behind_ms,
            self.queue_behind,
            *self.counts.rates(self._clock.monotonic()),
        )

    # life

    def load(self, data: bytes) -> int:
        """Loads the bytes of `timercheck`; returns 1, its number of entries. Raises ValueError on damage."""
        self._check = timer_check.decode(data)
        self._counter = self._check.counter
        return 1

    def open(self) -> None:
        """Finds the queue of timers and notes the end of the log, beyond which a crash has lost records.

        Called before anything is stored. The timer log may have units of lost records.
        """
        self._queue = self._store.queues.find(TIMER_TOPIC, 0)
        self._opened_at = self._store.log.end

    async def run(self) -> None:
        """Recovers the wheel, then delivers due timers in the background until cancelled."""
        while not self._is_ready:
            try:
                async with self._busy:
                    await self._resume()
                self._is_ready = True
            except OSError as error:
                self._trouble.log(
                    self._clock.monotonic(), "Cannot start the timers; retrying in %d s: %s", RETRY_S, error
                )
                await self._clock.sleep(RETRY_S)
        self._changed.set()
        while True:
            try:
                pause_s = await self.turn()
            except Exception as error:  # a full disk or a defect: the loop must go on
                self._trouble.log(
                    self._clock.monotonic(),
                    "Cannot run the timers; retrying in %d s",
                    RETRY_S,
                    exc_info=error,
                )
                pause_s = RETRY_S
            await self._pacing.rest(pause_s)

    async def keep(self, interval_s: float) -> None:
        """Calls `save` `interval_s` seconds after each change, until cancelled."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(interval_s)
            self._changed.clear()
            try:
                await self.save()
            except OSError as error:
                self._changed.set()
                log.error("Cannot write %s; retrying in %d s: %s", FILE, interval_s, error)

    async def close(self) -> None:
        """Saves a last time and closes timer log and wheel. Called after `run` and `keep` have ended."""
        try:
            if self._is_ready and (self._check is not None or self._queue is not None):
                await self.save()
                self._wheel.sync()
        except OSError as error:
            log.error("Cannot write %s: %s", FILE, error)
        finally:
            self._is_ready = False
            self._log.close()
            self._wheel.close()

    def postponed(self) -> None:
        """Wakes `run` after a message was appended to the queue of timers; finds that queue if it is new.

        With SYNC_FLUSH it is not visible in the queue yet.
        """
        if self._queue is None or self._queue.is_deleted:
            self._queue = self._store.queues.queue(TIMER_TOPIC, 0)
            self._next = self._recalls_end = 0
        self._pacing.wake_within(0)

    # a turn

    async def turn(self) -> float:
        """Takes messages into the wheel or, without any, delivers due timers; returns seconds to pause.

        0: there is more to do.
        """
        async with self._busy:
            began = self._clock.monotonic()
            # The wheel is a ring: far behind, a new message could land in a slot that still holds the past.
            if self._is_far_behind():
                await self._advance(self._clock.now_ms())
            # The queue comes before delivery: it may hold a recall of a message that is due. A recall that
            # was put into the queue again has to be read even when the wheel is far behind.
            if (self._next < self._recalls_end or not self._is_far_behind()) and await self._take_in():
                return 0.0
            for _ in range(BATCHES_PER_TURN):
                now_ms = self._clock.now_ms()
                # A recall is appended but not visible in the queue yet (SYNC_FLUSH): nothing may fire before.
                if self._next < self._recalls_end:
                    return self._until_next(now_ms)
                await self._advance(now_ms)
                if not self._due.is_due(now_ms):
                    return self._until_next(now_ms)
                if not await self._fire(now_ms):
                    return TICK_S  # the store accepts nothing now
                if self._clock.monotonic() - began > TURN_S:
                    break
            return 0.0

    def _is_far_behind(self) -> bool:
        """Returns whether the wheel lags so far that past and future slots could share a place in it."""
        behind_slots = (self._clock.now_ms() - self._current_ms) // self._precision_ms
        return behind_slots > self._wheel.slots - self._rules.roll_window_slots - 1

    def _until_next(self, now_ms: int) -> float:
        next_ms = self._due.next_ms()
        if next_ms is None:
            next_ms = self._wheel.next_after(self._current_ms)
        pause_s = MAX_PAUSE_NEVER_SET_S if isinstance(self._clock, NeverSet) else MAX_PAUSE_S
        if next_ms is not None:
            pause_s = min(pause_s, max(next_ms - now_ms, 1) / 1000)
        if self._queue is not None and self._queue.next_offset > self._next:
            is_seen = self._queue.max_offset > self._next  # or it waits for a sync
            pause_s = min(pause_s, 0.0 if is_seen and not self._is_far_behind() else TICK_S)
        return pause_s

    # from the queue into the wheel

    async def _take_in(self) -> bool:
        """Puts some messages of the queue into the wheel. False: there were none. Raises OSError."""
        self._log.write_out()
        self._wheel.write_out()
        queue = self._queue
        if queue is None:
            return False
        self._next = max(self._next, queue.min_offset)
        if self._next >= queue.max_offset:
            return False
        entries = list(ENTRY.iter_unpack(queue.units(self._next, MESSAGES_PER_TURN)))
        await self._store.reader.bring((at, size) for at, size, _ in entries)
        slots: dict[int, Slot] = {}
        for at, size, _ in entries:
            if size != BLANK_SIZE:
                self._put(at, size, slots)
        for slot_ms, slot in slots.items():
            self._wheel.put(slot_ms, slot)
        self._next += max(len(entries), 1)
        self.counts.taken_in += len(entries)
        self._changed.set()
        self._log.write_out()
        self._wheel.write_out()
        return True

    async def _take_in_all(self) -> None:
        is_more = True
        while is_more:
            is_more = await self._take_in()
            await asyncio.sleep(0)

    def _put(self, at: int, size: int, slots: dict[int, Slot]) -> None:
        record = self._record(at, size)
        now_ms = self._clock.now_ms()
        waiting = timer_records.waiting(record, now_ms, self._rules) if record is not None else None
        self._timers_from = max(self._timers_from, at + 1)
        if record is None or waiting is None:
            self._pass_over(at, "has no time of delivery")
            return
        slot_ms = max(waiting.slot_ms, self._current_ms)
        slot = slots.get(slot_ms) or self._wheel.get(slot_ms)
        written_ms = min(now_ms - now_ms % self._precision_ms, slot_ms)
        magic, exact_ms = (DEAD, 0) if at in self._done else (waiting.magic, waiting.exact_ms)
        topic_hash = timer_records.topic_hash(record)
        ahead_ms = slot_ms - written_ms
        unit = Unit(slot.last, magic, written_ms, ahead_ms, at, size, topic_hash, exact_ms)
        placed_at = self._log.append(unit)
        self.counts.enters(unit)
        first = placed_at if slot.first == NONE else slot.first
        slots[slot_ms] = Slot(first, placed_at, slot.units + (-1 if unit.recalls else 1))
        if slot_ms == self._current_ms:
            self._expect(placed_at, unit)

    def _expect(self, at: int, unit: Unit) -> None:
        """Adds a unit of the current or an earlier slot to those in memory; of a recall, what it recalls."""
        if unit.magic & RECALL:
            record = self._store.log.look_up(unit.offset)
            if record is not None and (recalled := timer_records.recalled_by(record)):
                self._due.recalled.add(recalled)
        if unit.recalls:
            return
        due_ms = unit.slot_ms if unit.rolls else unit.exact_ms or unit.slot_ms + self._precision_ms
        self._due.expect(at, unit, due_ms)

    # from slot to slot

    async def _advance(self, now_ms: int) -> None:
        """Moves to the next slot with timers, at most to now, and loads it, when all in memory have fired."""
        present_ms = now_ms - now_ms % self._precision_ms
        while self._due.next_ms() is None and self._current_ms < present_ms:
            next_ms = self._wheel.next_after(self._current_ms)
            self._wheel.empty(self._current_ms)
            self._current_ms = present_ms if next_ms is None else min(next_ms, present_ms)
            self._settle()
            await self._load(self._current_ms)

    def _settle(self) -> None:
        """Notes that all slots before the current one are done and that their copies are in the log."""
        self._begin_ms = self._current_ms
        self._copies_from = self._store.log.end
        self._due.slot_is_over()
        if self._copies_from - self._saved_from > MAX_READ_BACK_BYTES and self._queue is not None:
            self._changed.set()

    async def _load(self, slot_ms: int) -> None:
        at, count = self._wheel.get(slot_ms).last, 0
        recalls: list[tuple[int, Unit]] = []
        while (unit := self._log.unit(at)) is not None and self._slot_of(unit) == slot_ms:
            if unit.magic & RECALL:
                recalls.append((at, unit))
            else:
                self._expect(at, unit)
            at, count = unit.previous, count + 1
            if count % UNITS_PER_TURN == 0:
                await asyncio.sleep(0)
        await self._recall(recalls)

    async def _recall(self, units: list[tuple[int, Unit]]) -> None:
        for begin in range(0, len(units), BATCH):
            some = units[begin : begin + BATCH]
            await self._store.reader.bring((unit.offset, unit.size) for _, unit in some)
            for at, unit in some:
                self._expect(at, unit)

    def _slot_of(self, unit: Unit) -> int:
        return timer_records.slot_of(unit, self._precision_ms)

    # out of the wheel

    async def _fire(self, now_ms: int) -> bool:
        """Delivers timers due by `now_ms`, at most one append. False: the store refuses messages now."""
        taken = self._due_by(now_ms)
        try:
            await self._store.reader.bring((unit.offset, unit.size) for unit in taken.values())
            drafts = {key: self._copy(unit, now_ms) for key, unit in taken.items()}
            for key in [key for key, draft in drafts.items() if draft is None]:
                self._finished(key, taken.pop(key))
            self._deliver({key: draft for key, draft in drafts.items() if draft is not None}, taken)
        except Refused as refused:
            words = "Cannot deliver timed messages; retrying in %.2f s: %s"
            self._trouble.log(self._clock.monotonic(), words, TICK_S, refused.remark)
            return False
        finally:
            for key in taken:  # not delivered
                self._due.put_back(key)
        return True

    def _due_by(self, now_ms: int) -> dict[Key, Unit]:
        taken: dict[Key, Unit] = {}
        size = 0
        while self._due.is_due(now_ms) and len(taken) < BATCH and size < BATCH_BYTES:
            key, known = self._due.take()
            unit = known or self._log.unit(key & PLACE)
            # A unit in `places` was put into the queue again, because its file of the log is deleted.
            if unit is None or unit.recalls or key & PLACE in self._rescue.places:
                continue
            taken[key] = unit
            size += unit.size
        return taken

    def _deliver(self, drafts: dict[Key, Draft], taken: dict[Key, Unit]) -> None:
        if not drafts:
            return
        try:
            self._note_recalls(self._append(list(drafts.values())), [taken[key] for key in drafts])
        except MessageIllegal as refused:
            if len(drafts) > 1:
                for key, draft in drafts.items():
                    self._deliver({key: draft}, taken)
                return
            [key] = drafts
            self._pass_over(taken[key].offset, f"cannot be stored any more ({refused.remark})")
        for key in drafts:
            self.counts.leaves(taken[key])
            self._finished(key, taken.pop(key))
        self.counts.given_out += len(drafts)

    def _note_recalls(self, appended: list[Appended], units: Iterable[Unit]) -> None:
        """Notes up to which queue offset recalls were appended again: these are read before timers fire."""
        for (_, queue_offset, _), unit in zip(appended, units, strict=True):
            if unit.magic & RECALL:
                self._recalls_end = max(self._recalls_end, queue_offset + 1)

    def _finished(self, key: Key, unit: Unit) -> None:
        self._due.finished(key)
        self.counts.waits_no_more([unit])
        self._changed.set()

    def _copy(self, unit: Unit, now_ms: int) -> Draft | None:
        record = self._record(unit.offset, unit.size)
        if record is None:
            return None
        if unit.rolls and self._queue is not None:
            return timer_records.put_again(record, self._queue, unit.written_ms, now_ms)
        if timer_records.is_recalled(record, self._due.recalled):
            return None
        place = level_records.destination(record, self._topics)
        if place is None:
            self._pass_over(unit.offset, "has no destination")
            return None
        queue = self._store.queues.queue(*place)
        return timer_records.delivered(record, queue, unit.written_ms, now_ms)

    def _record(self, at: int, size: int) -> Record | None:
        if at < self._store.log.min_offset:
            return None
        record = self._store.log.look_up(at)
        if record is None or record.size != size or record.topic != TIMER_TOPIC:
            self._pass_over(at, "cannot be read")
            return None
        return record

    def _pass_over(self, at: int, why: str) -> None:
        self._passed_over += 1
        words = "Skipping the timed message at log offset %s: it %s (%d skipped since the start)"
        self._lost.log(self._clock.monotonic(), words, at, why, self._passed_over)

    # a start

    async def _resume(self) -> None:
        now_ms = self._clock.now_ms()
        self._due.clear()
        start = TimerRecovery(
            self._store, self._queue, self._log, self._check, self._opened_at, now_ms, self._precision_ms
        )
        self._done = await start.run()
        self._begin_ms, self._current_ms = start.begin_ms, start.current_ms
        self._wheel.begin(start.slots)
        for slot_ms in start.slots:
            if slot_ms < self._current_ms:  # overdue timers are in memory from here on
                self._wheel.empty(slot_ms)
        self.counts.waiting = start.waiting
        self._timers_from, self._copies_from = start.timers_from, start.copies_from
        self._next = self._queue.first_at_or_after(start.timers_from) if self._queue is not None else 0
        for at in start.overdue:
            unit = self._log.unit(at)
            assert unit is not None
            self._expect(at, unit)
        recalls = [(at, unit) for at in start.recalls if (unit := self._log.unit(at)) is not None]
        await self._recall(recalls)
        await self._take_in_all()
        self._done.clear()  # each of them is marked in the timer log by now

    # before a file of the log is deleted

    async def rescue(self, below: int) -> bool:
        """Puts all waiting timers below log offset `below` into the queue again. True: copies are on disk.

        Called before the log deletes the file up to that offset. False, also when the copies are not on disk:
        the log must keep the file.
        """
        if not self._is_ready:
            return False
        try:
            async with self._busy:
                await self._take_in_all()
                size = await self._put_again(below)
        except Refused as refused:
            words = "Cannot rewrite timed messages; keeping their file of the log: %s"
            self._trouble.log(self._clock.monotonic(), words, refused.remark)
            return False
        if size:
            log.info("Rewrote timed messages before their file is deleted: %d bytes", size)
        moved = set(self._rescue.places)
        if not await self._mark_dead(moved):
            return False
        self._due.forget(moved)
        self._rescue.places -= moved
        if size:
            await self.save()
        return True

    async def _put_again(self, below: int) -> int:
        """Puts all waiting timers below log offset `below` into the queue again; returns how many bytes."""
        if self._queue is None:
            return 0
        still_due = self._due.places()

        def is_over(at: int, unit: Unit) -> bool:
            slot_ms = self._slot_of(unit)
            is_fired = slot_ms <= self._current_ms and at not in still_due and not unit.recalls
            return slot_ms < self._begin_ms or is_fired

        return await self._rescue.put_again(below, self._queue, is_over)

    def _moved(self, appended: list[Appended], units: Iterable[Unit]) -> None:
        self._note_recalls(appended, units)
        self.counts.waits_no_more(units)

    async def _mark_dead(self, places: Iterable[int]) -> bool:
        """Marks units as dead once their copies are on disk. False: they are not, and nothing was marked."""
        if not await self._writer.acknowledgement.on_disk(self._store.log.end):
            return False
        for count, at in enumerate(places):
            self._log.disable(at)
            if count % DEAD_UNITS_PER_TURN == DEAD_UNITS_PER_TURN - 1:
                await asyncio.sleep(0)
        return True

    # the files

    def _state(self) -> TimerCheck:
        copies_from = self._copies_from
        if self._rescue.places:
            copies_from = min(copies_from, self._rescue.copies_from)
        note = TimerCheckNote(copies_from, self._timers_from, self._precision_ms)
        now_ms = self._clock.now_ms()
        return TimerCheck(self._begin_ms, self._log.end, self._next, now_ms, self._counter, note)

    async def save(self) -> None:
        """Writes timer log, wheel and `timercheck`, once the delivered copies are on disk. Raises OSError.

        Timers that fired in a slot that is not over are marked as dead: the next to open the store may be
        Apache's broker, which knows only whole slots.
        """
        async with self._busy:
            if self._next >= self._recalls_end:
                await self._advance(self._clock.now_ms())
            self._log.write_out()
            self._wheel.write_out()
            self._counter += 1
            state, fired = self._state(), self._due.fired
            self._due.fired = []
        if not await self._mark_dead(fired):
            self._due.fired += fired
            return
        files = self._log.to_sync()
        try:
            await self._workers.run(_sync, self._log, files)
            await self._workers.run(self._save, FILE, state.encode())
        except OSError:
            self._log.sync_failed(files)
            raise
        assert state.note is not None
        self._check = state
        self._saved_from = state.note.copies_from
        self._log.delete_before(self._store.log.min_offset)


def _sync(timer_log: TimerLog, files: list[PlainFile]) -> None:
    timer_log.sync_names()
    for file in files:
        file.sync()
