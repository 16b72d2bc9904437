"""Delivers messages with a delay level: each when its delay is over, once, also across restarts and crashes.

In: the queues of SCHEDULE_TOPIC_XXXX, which `level_records.py` fills, and the time. Out: copies in the topics
where the messages belong, many in one append, in short turns between other work. `pending.py` knows what
waits.

What was delivered is written to delayOffset.json every ten seconds and at a stop, never before the copies are
on the medium. With it goes where the log ended at that moment. After a crash the log is read from there on:
every copy names its original, so what was delivered since is known as well, and nothing is delivered twice.
Apache forgets it, and delivers those ten seconds again. Only a copy that the crash took is made again.

Before the store deletes a file of the log, the messages that still wait in it are rewritten, at the end of
their queue and with their old time of delivery.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec

from turbopump.broker.delay import level_records
from turbopump.broker.delay.pacing import TurnPacer
from turbopump.broker.delay.pending import DueRun, Entry, PendingDelays, QueuePosition
from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.protocol import dialect, names
from turbopump.protocol.bodies import DataVersion, DelayOffsetSerializeWrapper
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import BrokenBody, MessageIllegal, Refused, SystemBusy
from turbopump.protocol.record import Record
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock, NeverSet
from turbopump.runtime.disk import Workers
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks
from turbopump.store.append import Appended, Draft
from turbopump.store.consume_queue import BLANK_SIZE, ENTRY, ConsumeQueue
from turbopump.store.queue_ext import is_address

log = logging.getLogger(__name__)

FILE = "delayOffset.json"
MAX_FILE_BYTES = 64 << 20

TICK_S = 0.1  # the most that a message may be late on an idle machine
MIN_PAUSE_S = 0.01  # messages that fall due within it are delivered together
MAX_PAUSE_S = 1.0  # the wall clock may be set during the pause ...
MAX_PAUSE_NEVER_SET_S = 86_400.0  # ... but the clock of a test is not
FETCHED_AFTER_MS = 10  # for messages that are read from disk first
RETRY_MS = 10_000  # for a run whose messages cannot be delivered

BATCH = 128  # messages of one append ...
BATCH_BYTES = 1 << 20  # ... and their bytes: about 2 ms
TURN_S = 0.005  # then the event loop serves others
BATCHES_PER_TURN = 4
ENTRIES_PER_TURN = 4096  # of the queues: 1 ms
RECORDS_PER_TURN = 4096  # of the log: 3 ms
LOST_LINES_PER_MINUTE = 20  # in the log, about skipped messages
REWRITE_PAUSE_S = 60.0  # after rewriting a file that held mostly delayed messages

Append = Callable[[list[Draft]], list[Appended]]
Save = Callable[[str, bytes], None]


class DelayFile(msgspec.Struct, omit_defaults=True):
    """Contents of delayOffset.json: Apache's format (4.9 and 5.x), with two fields of our own."""

    offsetTable: dict[int, int]  # noqa: N815 - the file's spelling; level -> everything before is done
    dataVersion: DataVersion | None = None  # noqa: N815
    logOffset: int | None = None  # noqa: N815 - ours: copies before it are accounted for
    waiting: dict[int, list[int]] = {}  # ours: level -> begin, end, begin, end, ..., and all from the last on

    def position(self, level: int) -> QueuePosition:
        *bounds, rest = self.waiting.get(level) or [self.offsetTable.get(level, 0)]
        return QueuePosition(rest, tuple(zip(bounds[::2], bounds[1::2], strict=True)))


def with_log_offset(data: bytes, log_offset: int) -> bytes:
    """Returns delay offsets of an Apache master as a delayOffset.json that counts up to an end of the log.

    Raises BrokenBody.
    """
    try:
        file = msgspec.json.decode(dialect.standard(data, MAX_FILE_BYTES), type=DelayFile)
    except ValueError as error:
        raise BrokenBody(f"not a table of delay offsets: {error}") from None
    file.logOffset = log_offset
    return msgspec.json.format(msgspec.json.encode(file), indent=1)


class DelayedMessages:
    """Background delivery of the messages of all delay levels; saves which ones were delivered."""

    def __init__(
        self,
        store: Storage,
        topics: TopicTable,
        writer: MessageWriter,
        save: Save,
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._writer = writer
        self._append = writer.append_counted
        self._save = save
        self._workers = workers
        self._clock = clock
        self._max_pause_s = MAX_PAUSE_NEVER_SET_S if isinstance(clock, NeverSet) else MAX_PAUSE_S
        self._pending = PendingDelays()
        self._queues: dict[int, ConsumeQueue] = {}
        self._file: DelayFile | None = None
        self._saved: tuple[dict[int, QueuePosition], int] | None = None
        self._version = 0
        self._is_ready = False
        self._pacing = TurnPacer(store, writer.acknowledgement)
        self._no_rewrite_before = 0.0
        self._fetching: dict[DueRun, asyncio.Task[None]] = {}
        self._tasks = Tasks(log)
        self._trouble = RateLimitedLog(log, 60.0, logging.ERROR)
        self._passed_over = 0
        self._lost = RateLimitedLog(log, 60.0, logging.ERROR, LOST_LINES_PER_MINUTE)

    def routes(self) -> Routes:
        return {RequestCode.GET_ALL_DELAY_OFFSET: Route(None, self.offsets)}

    def offsets(self, request: Request[None]) -> Answer:
        table = {queue_id + 1: position.first for queue_id, position in self._pending.positions().items()}
        version = DataVersion(counter=self._version, stateVersion=0, timestamp=self._clock.now_ms())
        return Answer(body=DelayOffsetSerializeWrapper(dataVersion=version, offsetTable=table).encode())

    def progress(self) -> dict[int, tuple[int, int]]:
        """Returns, by level, the first queue offset that is not delivered and the end of the queue."""
        return {
            queue_id + 1: (self._pending.position(queue_id).first, queue.max_offset)
            for queue_id, queue in sorted(self._queues.items())
        }

    # life

    def load(self, data: bytes) -> int:
        """Reads the bytes of delayOffset.json. Returns the number of levels in it; raises on damage."""
        file = msgspec.json.decode(dialect.standard(data, MAX_FILE_BYTES), type=DelayFile)
        for level in file.waiting:
            file.position(level)
        self._file = file
        self._version = file.dataVersion.counter if file.dataVersion else 0
        return len(file.offsetTable)

    def open(self) -> None:
        """Adds the existing delay queues at their saved positions. `postponed` adds later ones.

        A file that counts more than the log has is not of this log (see `replicas/progress_files.py`).
        """
        if self._file is not None and (self._file.logOffset or 0) > self._store.log.end:
            log.warning("%s counts records beyond the end of the log; reading the log instead", FILE)
            self._file = None
        for queue in self._store.queues.of(names.SCHEDULE_TOPIC):
            self._add(queue, self._written_down(queue))

    async def run(self) -> None:
        """Delivers due messages in the background until cancelled."""
        await self._look_back()
        await self._look_through()
        self._is_ready = True
        while True:
            try:
                pause_s = self.turn()
            except Exception as error:  # an unreadable queue or a defect: the loop must go on
                words = "Cannot read the delay queues; retrying in %d s"
                self._trouble.log(self._clock.monotonic(), words, MAX_PAUSE_S, exc_info=error)
                pause_s = MAX_PAUSE_S
            await self._pacing.rest(pause_s)

    async def keep(self, interval_s: float) -> None:
        """Writes delayOffset.json every `interval_s` seconds, until cancelled.

        The first time when `run` has found out which messages were delivered before.
        """
        while not self._is_ready:
            await self._clock.sleep(TICK_S)
        while True:
            try:
                await self.save()
            except OSError as error:
                log.error("Cannot write %s; retrying in %d s: %s", FILE, interval_s, error)
            await self._clock.sleep(interval_s)

    async def close(self) -> None:
        """Writes delayOffset.json a last time. Called after `run` and `keep` have ended."""
        await self._tasks.close()
        self._is_ready, was_ready = False, self._is_ready
        if was_ready:
            try:
                await self.save()
            except OSError as error:
                log.error("Cannot write %s: %s", FILE, error)

    def postponed(self, queue: ConsumeQueue) -> None:
        """Adds `queue` if it is new, and wakes `run`: a delayed message was just appended to this queue.

        With SYNC_FLUSH the message is not in its queue yet.
        """
        # A new queue of this number: the saved position belongs to the one before it.
        if self._queues.get(queue.queue_id) is not queue:
            self._add(queue, QueuePosition(0))
        self._pacing.wake_within(TICK_S)

    # delivering

    def turn(self) -> float:
        """Reads new queue entries, delivers some due messages. Returns seconds to pause; 0: there is more."""
        is_behind = self._look()
        began = self._clock.monotonic()
        for _ in range(BATCHES_PER_TURN):
            now_ms = self._clock.now_ms()
            run = self._pending.due(now_ms)
            if run is None:
                return 0.0 if is_behind else self._until_next(now_ms)
            if not self._work_off(run, now_ms):
                return TICK_S
            if self._clock.monotonic() - began > TURN_S:
                break
        return 0.0

    def _until_next(self, now_ms: int) -> float:
        pause_s = self._max_pause_s
        next_due_ms = self._pending.next_due_ms
        if next_due_ms is not None:
            pause_s = min(pause_s, max((next_due_ms - now_ms) / 1000, MIN_PAUSE_S))
        if any(queue.next_offset > queue.max_offset for queue in self._queues.values()):
            pause_s = min(pause_s, TICK_S)  # entries appear after the next sync
        return pause_s

    async def _look_through(self) -> None:
        """Reads all entries of the delay queues that may still wait, in short turns.

        Only then may positions be saved: they leave out delivered messages.
        """
        is_behind = True
        while is_behind:
            is_behind = self._look()
            await asyncio.sleep(0)
        self._pending.forget_done()

    def _look(self) -> bool:
        """Reads at most `ENTRIES_PER_TURN` new queue entries. Returns whether there may be more."""
        left = ENTRIES_PER_TURN
        for queue_id, queue in self._queues.items():
            while (wanted := self._pending.wanted(queue_id, queue.max_offset)) is not None:
                begin, end = wanted
                entries = self._entries(queue, begin, min(end, begin + left))
                if not entries:
                    break
                self._pending.saw(queue_id, begin, entries)
                left -= len(entries)
                if left <= 0:
                    return True
        return False

    def _work_off(self, run: DueRun, now_ms: int) -> bool:
        """Delivers due messages at the front of a run, in one append. False: the store refuses messages now.

        A run whose messages cannot be delivered for another reason is put off.
        """
        try:
            due, next_due_ms = self._due_of(run, now_ms)
            if not self._in_memory(run, due):
                self._pending.put_off(run, now_ms + FETCHED_AFTER_MS)
                return True
            self._deliver([draft for at, size, _ in due if (draft := self._copy(at, size)) is not None])
        except Refused as refused:
            words = "Cannot deliver delayed messages; retrying in %.1f s: %s"
            self._trouble.log(self._clock.monotonic(), words, TICK_S, refused.remark)
            return False
        except Exception as error:  # whatever is wrong with this run, the others must not wait behind it
            words = "Cannot deliver delayed messages of level %d from offset %d on; retrying in %d s"
            now = self._clock.monotonic()
            self._trouble.log(now, words, run.queue_id + 1, run.at, RETRY_MS // 1000, exc_info=error)
            self._pending.put_off(run, now_ms + RETRY_MS)
            return True
        self._pending.done(run, len(due), next_due_ms)
        return True

    def _due_of(self, run: DueRun, now_ms: int) -> tuple[list[Entry], int]:
        """Returns the first due entries of a run, at most one append, and when (ms) the next entry is due."""
        queue = self._queues[run.queue_id]
        entries = self._entries(queue, run.at, min(run.end, run.at + BATCH))
        size = 0
        for count, (_, length, due_ms) in enumerate(entries):
            if due_ms > now_ms or (count and size + length > BATCH_BYTES):
                return entries[:count], due_ms
            size += length
        after = run.at + len(entries)
        if after == run.end:
            return entries, 0
        following = self._entries(queue, after, after + 1)
        if not entries or not following:
            raise OSError(f"queue {queue.queue_id} of {queue.topic} has no entry at {after}")
        return entries, following[0][2]

    def _in_memory(self, run: DueRun, due: list[Entry]) -> bool:
        """Returns whether the records of entries are in memory; if not, starts reading them in a thread."""
        fetching = self._fetching.get(run)
        if fetching is not None:
            if fetching.done():
                del self._fetching[run]
            return fetching.done()
        places = self._store.reader.missing([(at, size) for at, size, _ in due])
        if places:
            self._fetching = {run: task for run, task in self._fetching.items() if run}
            self._fetching[run] = self._tasks.start(self._fetch(places), name="read delayed messages")
        return not places

    async def _fetch(self, places: list[tuple[str, int, int]]) -> None:
        with contextlib.suppress(OSError):  # the next reader of the record meets the same error
            if places:
                await self._store.reader.fetch(places)
            else:
                await asyncio.sleep(0)

    def _entries(self, queue: ConsumeQueue, begin: int, end: int) -> list[Entry]:
        """Returns queue entries from `begin` to before `end`, fewer where the queue file ends."""
        entries: list[Entry] = list(ENTRY.iter_unpack(queue.units(begin, end - begin)))
        if any(due_ms < 0 for _, _, due_ms in entries):
            entries = [(at, size, self._due_ms(queue, at, stored)) for at, size, stored in entries]
        return entries

    def _due_ms(self, queue: ConsumeQueue, at: int, stored: int) -> int:
        """Returns the delivery time (ms) of the entry for the record at `at`, whose tag code is `stored`.

        Usually `stored` is that time. Apache's brokers may keep it in an extension of the queue.
        """
        if not is_address(stored):
            return stored
        due_ms = queue.tags_code(stored)
        if due_ms is not None:
            return due_ms
        record = self._store.log.look_up(at)
        delay_ms = self._store.delays.delay_ms(queue.queue_id + 1)
        return record.store_timestamp + delay_ms if record is not None else 0

    def _copy(self, at: int, size: int) -> Draft | None:
        record = self._record(at, size)
        if record is None:
            return None
        queue = self._target(record)
        if queue is None:
            self._pass_over(at, "has no destination")
            return None
        return level_records.delivered(record, queue)

    def _record(self, at: int, size: int) -> Record | None:
        if size == BLANK_SIZE or at < self._store.log.min_offset:
            return None  # never in the log, or deleted from it
        record = self._store.log.look_up(at)
        if record is None or record.size != size:
            self._pass_over(at, "cannot be read")
            return None
        return record

    def _pass_over(self, at: int | None, why: str) -> None:
        self._passed_over += 1
        words = "Skipping the delayed message at log offset %s: it %s (%d skipped since the start)"
        self._lost.log(self._clock.monotonic(), words, at, why, self._passed_over)

    def _target(self, record: Record) -> ConsumeQueue | None:
        found = level_records.destination(record, self._topics)
        return None if found is None else self._store.queues.queue(*found)

    def _deliver(self, drafts: list[Draft]) -> None:
        try:
            if drafts:
                self._append(drafts)
        except MessageIllegal as refused:
            if len(drafts) > 1:
                for draft in drafts:
                    self._deliver([draft])
                return
            origin = level_records.origin(drafts[0].prepared_transaction_offset)
            self._pass_over(origin, f"cannot be stored any more ({refused.remark})")

    # before a file of the log is deleted

    async def rescue(self, below: int) -> bool:
        """Rewrites waiting messages below physical offset `below`. True: none is left there.

        Called before the log deletes the file up to that offset. False, also when the copies are not on disk:
        the log must keep the file.
        """
        if not self._is_ready:
            return False
        is_behind = True
        while is_behind:
            is_behind = self._look()
            await asyncio.sleep(0)
        size = 0
        try:
            for run in self._pending.runs():
                while entries := self._first_below(run, below):
                    await self._fetch(self._store.reader.missing([(at, length) for at, length, _ in entries]))
                    # Asked again: some may have been delivered during the read.
                    size += self._rewrite(run, self._first_below(run, below))
        except Refused as refused:
            words = "Cannot rewrite delayed messages; keeping their file of the log: %s"
            self._trouble.log(self._clock.monotonic(), words, refused.remark)
            return False
        if size:
            log.info("Rewrote delayed messages before their file is deleted: %d bytes", size)
        if size > self._store.config.commit_log_file_size // 2:
            self._no_rewrite_before = self._clock.monotonic() + REWRITE_PAUSE_S
        return await self._writer.acknowledgement.on_disk(self._store.log.end)

    def _first_below(self, run: DueRun, below: int) -> list[Entry]:
        """Returns the first entries of a run with records below physical `below`, at most one append."""
        queue = self._queues[run.queue_id]
        entries = self._entries(queue, run.at, min(run.end, run.at + BATCH))
        count = size = 0
        while count < len(entries) and entries[count][0] < below and size < BATCH_BYTES:
            size += entries[count][1]
            count += 1
        return entries[:count]

    def _rewrite(self, run: DueRun, moved: list[Entry]) -> int:
        """Appends copies of `moved`, the first entries of a run, which go on waiting; returns how many bytes.

        Raises Refused.
        """
        if not moved:
            return 0
        if self._clock.monotonic() < self._no_rewrite_before:
            raise SystemBusy("a file full of them was rewritten less than a minute ago")
        queue, after = self._queues[run.queue_id], run.at + len(moved)
        found = [(self._record(at, length), due_ms) for at, length, due_ms in moved]
        readable = [(record, due_ms) for record, due_ms in found if record is not None]
        if readable:
            drafts = [level_records.rewritten(record, queue, due_ms) for record, due_ms in readable]
            self._store.log.rewrite(drafts)
        following = self._entries(queue, after, after + 1)
        self._pending.done(run, len(moved), following[0][2] if following else 0)
        return sum(record.size for record, _ in readable)

    # the file

    async def save(self) -> None:
        """Writes delayOffset.json if it has changed, once the delivered copies are on disk. Raises OSError.

        Writes nothing when the copies cannot be synced.
        """
        log_end, positions = self._store.log.end, self._pending.positions()
        if not positions or (positions, log_end) == self._saved:
            return
        if not await self._writer.acknowledgement.on_disk(log_end):
            return
        self._version += 1
        await self._workers.run(self._save, FILE, self._dump(positions, log_end))
        self._saved = positions, log_end

    def _dump(self, positions: dict[int, QueuePosition], log_end: int) -> bytes:
        file = DelayFile(
            {queue_id + 1: position.first for queue_id, position in positions.items()},
            DataVersion(counter=self._version, stateVersion=0, timestamp=self._clock.now_ms()),
            log_end,
            {
                queue_id + 1: [*(bound for bounds in position.ranges for bound in bounds), position.rest]
                for queue_id, position in positions.items()
                if position.ranges
            },
        )
        return msgspec.json.format(msgspec.json.encode(file), indent=1)

    async def _look_back(self) -> None:
        """Finds messages delivered after delayOffset.json was written, by their copies in the log."""
        at, end = self._unaccounted_from(), self._store.log.committed
        found = 0
        while at < end:
            named, at = self._store.log.references(at, RECORDS_PER_TURN)
            done = [origin for number in named if (origin := level_records.origin(number)) is not None]
            self._pending.were_done(done)
            found += len(done)
            await asyncio.sleep(0)
        if found:
            log.info("%d delayed messages were delivered after %s was written", found, FILE)

    def _unaccounted_from(self) -> int:
        """Returns the physical offset from which on copies may be missing in delayOffset.json."""
        if self._file is not None:  # Apache's file has no offset, and its copies name no original
            return self._store.log.end if self._file.logOffset is None else self._file.logOffset
        firsts = (queue.entry(queue.min_offset) for queue in self._queues.values())
        return min((first[0] for first in firsts if first is not None), default=self._store.log.end)

    def _written_down(self, queue: ConsumeQueue) -> QueuePosition:
        """Returns a queue's position by delayOffset.json; messages stored after that file count as waiting.

        The file knows nothing of messages that were stored after it was written, whatever their number: a
        queue whose messages were all deleted may have started again at 0 after a crash.
        """
        if self._file is None:
            return QueuePosition(0)
        position = self._file.position(queue.queue_id + 1)
        if self._file.logOffset is None:
            return position
        new = queue.first_at_or_after(self._file.logOffset)
        ranges = tuple((begin, min(end, new)) for begin, end in position.ranges if begin < new)
        return QueuePosition(min(position.rest, new), ranges)

    def _add(self, queue: ConsumeQueue, position: QueuePosition) -> None:
        self._queues[queue.queue_id] = queue
        self._pending.resume(queue.queue_id, position, queue.min_offset, queue.max_offset)
