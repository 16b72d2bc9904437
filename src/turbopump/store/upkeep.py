"""What the store does by itself: flush, write out queues, make the next file, take checkpoints.

Everything runs on the loop in short slices; what blocks goes to the disk thread. A failure is said once in
the log, stops the acceptance of messages where going on would lose them, and is tried again at the next turn.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Workers
from turbopump.runtime.tasks import Tasks
from turbopump.store import checkpoint as checkpoints
from turbopump.store.checkpoint import Checkpoint, CheckpointNote
from turbopump.store.commit_log import CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.dispatch import Dispatcher
from turbopump.store.flags import Flags, Reason, is_no_room
from turbopump.store.flush import Durability, Flusher
from turbopump.store.index import Index
from turbopump.store.queue_files import ToSync
from turbopump.store.queues import ConsumeQueues

QUEUES_PER_SLICE = 16  # of which each may need a new file: 0.2 ms
KEYS_PER_SLICE = 1024
MIN_WRITE_BYTES = 4096  # bytes of entries that are worth a write of their own
MAX_WAITING = 16 << 20  # bytes of entries in memory, all queues together, until the next turn
AHEAD_INTERVAL_S = 0.1
MARK_INTERVAL_S = 1.0

log_line = logging.getLogger("turbopump.store")


@dataclass(slots=True)
class MaintainedParts:
    """What upkeep looks after."""

    log: CommitLog
    queues: ConsumeQueues
    index: Index | None
    dispatcher: Dispatcher
    flusher: Flusher
    flags: Flags


class Upkeep:
    def __init__(
        self, parts: MaintainedParts, config: StoreConfig, disk: Disk, clock: Clock, workers: Workers
    ) -> None:
        self._log = parts.log
        self._queues = parts.queues
        self._index = parts.index
        self._dispatcher = parts.dispatcher
        self._flusher = parts.flusher
        self._flags = parts.flags
        self._config = config
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self._path = os.path.join(config.root_dir, "checkpoint")
        self._abort = os.path.join(config.root_dir, "abort")
        self._saved = Checkpoint()
        self._one_at_a_time = asyncio.Lock()  # held over the syncs of a checkpoint
        self._removing = asyncio.Lock()  # held over the syncs of directories
        self._is_stopping = False

    def start(self, tasks: Tasks) -> None:
        """Starts what is done at intervals. The tasks belong to the caller, which cancels them."""
        config = self._config
        turns: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (AHEAD_INTERVAL_S, self.make_next_file),
            (config.consume_queue_flush_interval_ms / 1000, self.write_out_full),
            (config.checkpoint_interval_ms / 1000, self.take_checkpoint),
        ]
        if not config.syncs_each:
            turns.append((config.flush_interval_ms / 1000, self.flush))
        if config.uses_pool:
            turns.append((config.commit_interval_ms / 1000, self.commit))
        if self._flags.is_set(Reason.NO_ABORT):
            turns.append((MARK_INTERVAL_S, self.mark_late))
        for seconds, turn in turns:
            tasks.start(self._every(seconds, turn), name=turn.__name__)

    async def _every(self, seconds: float, turn: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(seconds)
            try:
                await turn()
            except Exception:  # a fault of ours: said loudly, but the log must go on being flushed
                log_line.exception("upkeep failed and goes on")

    async def flush(self) -> None:
        self._flusher.flush_in_background()

    async def commit(self) -> None:
        self._log.commit()
        self._flags.clear(Reason.POOL_EMPTY)
        self._dispatcher.advance(self._log.committed)

    async def make_next_file(self) -> None:
        """So that the append loop finds it. When this fails, the loop tries, and says what is wrong."""
        start = self._log.wants_next(at_once=self._flags.is_set(Reason.NO_ROOM))
        with contextlib.suppress(OSError):
            if start is not None:
                await self._workers.run(self._log.files.create_durably, start)
            self._flags.clear(Reason.NO_ROOM)

    async def write_out_full(self) -> None:
        """Between checkpoints only queues with a page to write: ten thousand quiet topics are left alone."""
        waiting = list(self._queues.dirty)
        is_stuck = self._flags.is_set(Reason.QUEUES_STUCK)  # then only a try can tell
        if not is_stuck and sum(len(queue.tail) for queue in waiting) < MAX_WAITING:
            waiting = [queue for queue in waiting if len(queue.tail) >= MIN_WRITE_BYTES]
        await self.write_out(waiting)

    async def write_out(self, waiting: list[ConsumeQueue]) -> None:
        """Entries of queues go to their files, those that wait longest first."""
        try:
            for at in range(0, len(waiting), QUEUES_PER_SLICE):
                for queue in waiting[at : at + QUEUES_PER_SLICE]:
                    queue.write_out()
                await asyncio.sleep(0)
            self._dispatcher.put_keys(1)
        except OSError as error:
            self._stuck(error)
            return
        if self._flags.is_set(Reason.QUEUES_STUCK):
            log_line.info("consume queues and index can be written again")
            self._flags.clear(Reason.QUEUES_STUCK)

    def _stuck(self, error: OSError) -> None:
        if not self._flags.is_set(Reason.QUEUES_STUCK):
            log_line.error("queues or index cannot be written, nothing is accepted until they can: %s", error)
        self._flags.set(Reason.QUEUES_STUCK, str(error))

    # whether the process runs

    @property
    def is_marked(self) -> bool:
        """The file `abort` is there: the last process did not stop in order, or this one runs."""
        return self._disk.exists(self._abort)

    def mark_running(self) -> None:
        """Before anything is changed. A disk without room for the mark can be read and cleaned, no more."""
        try:
            _mark(self._disk, self._abort)
        except OSError as error:
            if not is_no_room(error):
                raise
            log_line.error("%s cannot be made, nothing is accepted until it can: %s", self._abort, error)
            self._flags.set(Reason.NO_ABORT, str(error))

    async def mark_late(self) -> None:
        if self._flags.is_set(Reason.NO_ABORT):
            with contextlib.suppress(OSError):
                await self._workers.run(_mark, self._disk, self._abort)
                self._flags.clear(Reason.NO_ABORT)
                log_line.info("%s could be made now", self._abort)

    def mark_stopped(self) -> None:
        """After everything is on the medium."""
        if self.is_marked:  # somebody may have removed it by hand
            self._disk.remove(self._abort)
            self._disk.sync_dir(self._config.root_dir)

    # checkpoints

    async def take_checkpoint(self) -> None:
        """Brings everything below the present end of the log to the medium, then says so. One at a time: what
        one of them has taken to sync, and may yet have to put back, is not to be called synced by another.
        """
        async with self._one_at_a_time:
            if not self._is_stopping:
                await self._take_checkpoint()

    async def stop_checkpoints(self) -> None:
        """The one under way comes to its end, whoever asked for it; later ones are not begun. After this
        `take_checkpoint_now` is alone with the files.
        """
        self._is_stopping = True
        async with self._one_at_a_time:
            pass

    async def _take_checkpoint(self) -> None:
        complete, last_record, timestamp = self._dispatcher.state()
        if self.is_taken(complete) or not await self._write_out_below(complete):
            return
        try:
            index_begin = self._publish_index()
            for path in list(self._queues.files.doubtful):
                self._queues.files.write_again(path)
                await asyncio.sleep(0)
            with self._queues.files.taken_to_sync() as to_sync:
                index_state = await self._workers.run(self._sync_derived, to_sync)
            saved = self._checkpoint(complete, last_record, timestamp, index_begin, index_state)
            await self._save(saved)
            await self._recount()
        except OSError as error:
            log_line.error("no checkpoint could be taken, will try again: %s", error)

    def is_taken(self, complete: int) -> bool:
        """Whether the last checkpoint speaks of all this, and still says the truth."""
        note = self._saved.note
        return note is not None and note.complete == complete and self._queues.files.is_synced

    async def _write_out_below(self, complete: int) -> bool:
        """Whether the log is on the medium so far, and queues and index are in their files."""
        await self.write_out(list(self._queues.dirty))
        try:
            while self._dispatcher.indexed < complete:
                self._dispatcher.put_keys(KEYS_PER_SLICE)
                await asyncio.sleep(0)
        except OSError as error:
            self._stuck(error)
        if self._flags.is_set(Reason.QUEUES_STUCK):
            return False
        return await self._flusher.wait_durable(complete) is Durability.DISK

    def take_first_checkpoint(self) -> None:
        """After recovery. Where it fails, as on a full disk, the store can be read and upkeep tries again."""
        try:
            self.take_checkpoint_now()
        except OSError as error:
            if self._queues.dirty or self._dispatcher.indexed < self._dispatcher.dispatched:
                self._stuck(error)
            else:
                log_line.error("no checkpoint could be taken, will try again: %s", error)

    def take_checkpoint_now(self) -> None:
        """The same without a loop: the log is synced, everything is dispatched. Raises OSError."""
        complete, last_record, timestamp = self._dispatcher.state()
        for queue in list(self._queues.dirty):
            queue.write_out()
        self._dispatcher.put_all_keys()
        index_begin = self._publish_index()
        for path in list(self._queues.files.doubtful):
            self._queues.files.write_again(path)
        with self._queues.files.taken_to_sync() as to_sync:
            index_state = self._sync_derived(to_sync)
        saved = self._checkpoint(complete, last_record, timestamp, index_begin, index_state)
        checkpoints.save(self._disk, self._path, saved)
        self._saved = saved

    def load_checkpoint(self) -> Checkpoint:
        """What the last process left; new ones keep what they do not know."""
        self._saved = checkpoints.load(self._disk, self._path)
        return self._saved

    async def follow_log(self) -> None:
        """Files of the log were deleted: those of queues and index that point into them go too."""
        log_min = self._log.min_offset
        for count, (topic, queue_id) in enumerate(self._queues.on_disk()):
            queue = self._queues.known(topic, queue_id)
            while queue.delete_first_before(log_min):
                await self.sync_removals()
            queue.delete_extension_before_first()
            if count % QUEUES_PER_SLICE == 0:
                await asyncio.sleep(0)
        if self._index is not None:
            self._index.delete_before(log_min)

    async def clean_queues(self, is_wanted: Callable[[str, int], bool]) -> list[tuple[str, int]]:
        """Files of queues go that point at deleted messages alone; and whole queues that have no message
        and that nobody wants. Returns those.
        """
        await self.follow_log()
        queues = self._queues
        unwanted = [key for key in queues.on_disk() if not is_wanted(*key) and queues.known(*key).is_empty]
        gone = []
        for at in range(0, len(unwanted), QUEUES_PER_SLICE):
            await self.expect_fewer_queues(len(unwanted[at : at + QUEUES_PER_SLICE]))
            for key in unwanted[at : at + QUEUES_PER_SLICE]:
                if not is_wanted(*key) and queues.known(*key).is_empty:  # still so after the disk was busy
                    queues.delete_queue(*key)
                    gone.append(key)
        await self.sync_removals()
        return gone

    async def sync_removals(self) -> None:
        """Names that were removed do not come back after this, whatever happens to the machine. Waits also
        for what another caller has begun to sync.
        """
        async with self._removing:
            await self._sync_removals()

    async def _sync_removals(self) -> None:
        directories = self._queues.files.removed_from | self._log.files.removed_from
        self._queues.files.removed_from, self._log.files.removed_from = set(), set()
        try:
            if directories:
                await self._workers.run(_sync_directories, self._disk, directories)
        except BaseException:
            self._queues.files.removed_from |= directories
            raise

    def disown_checkpoint(self) -> None:
        """Before what it speaks of is cut: a crash in the middle must not find it true."""
        self._saved = Checkpoint(master_flushed=self._saved.master_flushed, confirmed=self._saved.confirmed)
        checkpoints.save(self._disk, self._path, self._saved)

    async def cut_log(self, end: int) -> list[str]:
        """Removes every record from `end` on, in the log, the queues and the index; `end` begins a record.

        Nothing may append meanwhile. Blocks the loop while the rest of the file is cleared and synced.
        Returns files in `set-aside` that keep some of what was cut. A crash on the way leaves a log that ends
        at `end` or later.
        """
        log = self._log
        assert log.min_offset <= end <= log.end, "the log can only be cut where it has records"
        async with self._one_at_a_time:
            # Afterwards no sync is under way, which would report offsets that are gone.
            if await self._flusher.wait_durable(log.end) is not Durability.DISK:
                raise self._flags.refusal()
            self._dispatcher.advance(log.synced)
            self._dispatcher.put_all_keys()
            self.disown_checkpoint()
            log.files.drop_ahead()
            # Queues before the log: those that are opened here ask it whether their last entry is true.
            for queue in self._queues.every():
                queue.truncate(end)
            if self._index is not None and self._index.end_offset >= end:
                self._index.truncate(end)
            kept = log.cut(end, self._config.set_aside_dir)
            log.start_at(end)
            self._flusher.log_was_cut(end)
            self._dispatcher.start_after_cut()
        return kept

    async def expect_fewer_queues(self, going: int) -> None:
        """Before so many queues are deleted: if a checkpoint counted them, a crash would look like a loss.

        Nothing may be awaited between this and the deletion: a checkpoint would count them again.
        """
        async with self._one_at_a_time:
            if (note := self._saved.note) is not None:
                await self._note_queues(min(note.queues, self._queues.files.count) - going)

    async def expect_deletion(self, topic: str) -> None:
        """Prepares the checkpoint for the deletion of a topic's queues; see `expect_fewer_queues`."""
        await self.expect_fewer_queues(self._queues.count_of(topic))

    async def _recount(self) -> None:
        """Queues may have been deleted while the disk thread wrote a checkpoint that counts them."""
        while self._saved.note is not None and self._queues.files.count < self._saved.note.queues:
            await self._note_queues(self._queues.files.count)

    async def _note_queues(self, count: int) -> None:
        assert self._saved.note is not None
        await self._save(replace(self._saved, note=replace(self._saved.note, queues=count)))

    async def _save(self, saved: Checkpoint) -> None:
        await self._workers.run(checkpoints.save, self._disk, self._path, saved)
        self._saved = saved

    def _sync_derived(self, to_sync: ToSync) -> tuple[int, int]:
        to_sync.sync(self._disk)
        return self._index.sync() if self._index is not None else (0, 0)

    def _publish_index(self) -> tuple[int, int]:
        """Returns store time and offset of the first message in its newest file."""
        if self._index is None:
            return sys.maxsize, sys.maxsize
        self._index.publish()
        return self._index.begin

    def _checkpoint(
        self,
        complete: int,
        last_record: int,
        timestamp: int,
        index_begin: tuple[int, int],
        index_state: tuple[int, int],
    ) -> Checkpoint:
        """Apache, started after a kill, deletes the newest index file and puts keys again from where these
        fields allow: that must not be later than where the file began.
        """
        begin_timestamp, begin_offset = index_begin
        return replace(
            self._saved,
            log_timestamp=min(timestamp, begin_timestamp),
            queue_timestamp=min(timestamp, begin_timestamp),
            index_timestamp=index_state[0],
            queue_offset=min(max(last_record, 0), begin_offset),
            note=CheckpointNote(complete, last_record, index_state[1], self._queues.files.count),
        )


def _sync_directories(disk: Disk, directories: set[str]) -> None:
    for directory in sorted(directories):
        with contextlib.suppress(FileNotFoundError):
            disk.sync_dir(directory)


def _mark(disk: Disk, path: str) -> None:
    """Makes the file `abort`. An empty one says the same, and a full disk often has room for that."""
    if not disk.exists(path):
        try:
            disk.write(path, str(os.getpid()).encode())
        except OSError:
            if not disk.exists(path):
                raise
    disk.sync_dir(os.path.dirname(path))
