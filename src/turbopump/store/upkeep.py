"""The store's own work at intervals: flush, write out queues, make the next file, take checkpoints.

Everything runs on the loop in short slices; blocking calls go to the disk thread. A failure is logged once,
blocks writing where messages could be lost otherwise, and is tried again at the next interval.
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

QUEUES_PER_TURN = 16  # each may need a new file: 0.2 ms
KEYS_PER_TURN = 1024
MIN_WRITE_BYTES = 4096  # entries of one queue that are worth a write of their own
MAX_WAITING_BYTES = 16 << 20  # entries in memory, all queues together, before all of them are written
AHEAD_INTERVAL_S = 0.1
MARK_INTERVAL_S = 1.0

log_line = logging.getLogger("turbopump.store")


@dataclass(slots=True)
class MaintainedParts:
    """The parts of the store that upkeep works on: log, queues, index, dispatcher, flusher and flags."""

    log: CommitLog
    queues: ConsumeQueues
    index: Index | None
    dispatcher: Dispatcher
    flusher: Flusher
    flags: Flags


class Upkeep:
    """Maintains an open store: takes checkpoints, writes out queues, creates and removes files."""

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
        """Starts the periodic work as tasks in `tasks`, which the caller owns and cancels."""
        config = self._config
        work: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (AHEAD_INTERVAL_S, self.make_next_file),
            (config.consume_queue_flush_interval_ms / 1000, self.write_out_full),
            (config.checkpoint_interval_ms / 1000, self.take_checkpoint),
        ]
        if not config.syncs_each:
            work.append((config.flush_interval_ms / 1000, self.flush))
        if config.uses_pool:
            work.append((config.commit_interval_ms / 1000, self.commit))
        if self._flags.is_set(Reason.NO_ABORT):
            work.append((MARK_INTERVAL_S, self.mark_late))
        for seconds, step in work:
            tasks.start(self._every(seconds, step), name=step.__name__)

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(seconds)
            try:
                await step()
            except Exception:  # a bug: log it, but the log has to be flushed all the same
                log_line.exception("Periodic work of the store failed; continuing")

    async def flush(self) -> None:
        self._flusher.flush_in_background()

    async def commit(self) -> None:
        self._log.commit()
        self._flags.clear(Reason.POOL_EMPTY)
        self._dispatcher.advance(self._log.committed)
        if self._dispatcher.on_growth is not None:
            self._dispatcher.on_growth()

    async def make_next_file(self) -> None:
        """Creates the next log file ahead, in a worker thread, if it is time to; ignores OSError.

        When this fails, the append loop tries again and reports the error.
        """
        start = self._log.wants_next(at_once=self._flags.is_set(Reason.NO_ROOM))
        with contextlib.suppress(OSError):
            if start is not None:
                await self._workers.run(self._log.files.create_durably, start)
            self._flags.clear(Reason.NO_ROOM)

    async def write_out_full(self) -> None:
        """Writes entries of queues with at least 4 KiB waiting, or of all if 16 MiB wait or QUEUES_STUCK.

        Those of ten thousand quiet topics can wait.
        """
        waiting = list(self._queues.dirty)
        is_stuck = self._flags.is_set(Reason.QUEUES_STUCK)  # then only an attempt can tell
        if not is_stuck and sum(len(queue.tail) for queue in waiting) < MAX_WAITING_BYTES:
            waiting = [queue for queue in waiting if len(queue.tail) >= MIN_WRITE_BYTES]
        await self.write_out(waiting)

    async def write_out(self, waiting: list[ConsumeQueue]) -> None:
        """Writes entries of these queues to files, in slices; on OSError refuses messages until it works."""
        try:
            for at in range(0, len(waiting), QUEUES_PER_TURN):
                for queue in waiting[at : at + QUEUES_PER_TURN]:
                    queue.write_out()
                await asyncio.sleep(0)
            self._dispatcher.put_keys(1)
        except OSError as error:
            self._stuck(error)
            return
        if self._flags.is_set(Reason.QUEUES_STUCK):
            log_line.info("Consume queues and index can be written again")
            self._flags.clear(Reason.QUEUES_STUCK)

    def _stuck(self, error: OSError) -> None:
        if not self._flags.is_set(Reason.QUEUES_STUCK):
            log_line.error(
                "Cannot write consume queues or index; refusing messages until it works: %s", error
            )
        self._flags.set(Reason.QUEUES_STUCK, str(error))

    # the file `abort`

    @property
    def is_marked(self) -> bool:
        """Whether the file `abort` exists: the last process did not stop in order, or this one runs."""
        return self._disk.exists(self._abort)

    def mark_running(self) -> None:
        """Creates the file `abort` before anything is changed; on a full disk refuses messages instead."""
        try:
            _mark(self._disk, self._abort)
        except OSError as error:
            if not is_no_room(error):
                raise
            log_line.error("Cannot make %s; refusing messages until it works: %s", self._abort, error)
            self._flags.set(Reason.NO_ABORT, str(error))

    async def mark_late(self) -> None:
        """Creates the file `abort` if that failed at the start, and accepts messages once it exists."""
        if self._flags.is_set(Reason.NO_ABORT):
            with contextlib.suppress(OSError):
                await self._workers.run(_mark, self._disk, self._abort)
                self._flags.clear(Reason.NO_ABORT)
                log_line.info("Made %s; accepting messages again", self._abort)

    def mark_stopped(self) -> None:
        """Removes the file `abort`, durably. Called after everything is on the medium."""
        if self.is_marked:  # an operator may have removed it
            self._disk.remove(self._abort)
            self._disk.sync_dir(self._config.root_dir)

    # checkpoints

    async def take_checkpoint(self) -> None:
        """Brings everything below the current end of the log to the medium, then writes a checkpoint.

        One at a time: files that one checkpoint took to sync, and may have to put back, must not count as
        synced for another.
        """
        async with self._one_at_a_time:
            if not self._is_stopping:
                await self._take_checkpoint()

    async def stop_checkpoints(self) -> None:
        """Waits for the checkpoint that is under way; later ones are not begun.

        Afterwards `take_checkpoint_now` has the files to itself.
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
            log_line.error("Cannot take a checkpoint; retrying: %s", error)

    def is_taken(self, complete: int) -> bool:
        """Returns whether the last checkpoint covers the log up to `complete` and all files are synced."""
        note = self._saved.note
        return note is not None and note.complete == complete and self._queues.files.is_synced

    async def _write_out_below(self, complete: int) -> bool:
        """Writes queues and index, waits for the log's sync up to `complete`; False: something failed."""
        await self.write_out(list(self._queues.dirty))
        try:
            while self._dispatcher.indexed < complete:
                self._dispatcher.put_keys(KEYS_PER_TURN)
                await asyncio.sleep(0)
        except OSError as error:
            self._stuck(error)
        if self._flags.is_set(Reason.QUEUES_STUCK):
            return False
        return await self._flusher.wait_durable(complete) is Durability.DISK

    def take_first_checkpoint(self) -> None:
        """Takes a checkpoint after recovery; logs OSError, and refuses messages if entries are unwritten."""
        try:
            self.take_checkpoint_now()
        except OSError as error:
            if self._queues.dirty or self._dispatcher.indexed < self._dispatcher.dispatched:
                self._stuck(error)
            else:
                log_line.error("Cannot take a checkpoint; retrying: %s", error)

    def take_checkpoint_now(self) -> None:
        """Takes a checkpoint, blocking. The log must be synced and dispatched. Raises OSError."""
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
        """Reads the checkpoint of the last process; later ones keep its fields for slaves."""
        self._saved = checkpoints.load(self._disk, self._path)
        return self._saved

    async def follow_log(self) -> None:
        """Removes files of queues and index that point only into deleted files of the log."""
        log_min = self._log.min_offset
        for count, (topic, queue_id) in enumerate(self._queues.on_disk()):
            queue = self._queues.known(topic, queue_id)
            while queue.delete_first_before(log_min):
                await self.sync_removals()
            queue.delete_extension_before_first()
            if count % QUEUES_PER_TURN == 0:
                await asyncio.sleep(0)
        if self._index is not None:
            self._index.delete_before(log_min)

    async def clean_queues(self, is_wanted: Callable[[str, int], bool]) -> list[tuple[str, int]]:
        """Removes queue files of deleted messages, and empty unwanted queues; returns the latter.

        They are named by topic and queue id.
        """
        await self.follow_log()
        queues = self._queues
        unwanted = [key for key in queues.on_disk() if not is_wanted(*key) and queues.known(*key).is_empty]
        gone = []
        for at in range(0, len(unwanted), QUEUES_PER_TURN):
            await self.expect_fewer_queues(len(unwanted[at : at + QUEUES_PER_TURN]))
            for key in unwanted[at : at + QUEUES_PER_TURN]:
                if (
                    not is_wanted(*key) and queues.known(*key).is_empty
                ):  # this may have changed while the disk was busy
                    queues.delete_queue(*key)
                    gone.append(key)
        await self.sync_removals()
        return gone

    async def sync_removals(self) -> None:
        """Makes removals durable: removed files do not come back after a crash of the machine.

        Waits also for what another caller has begun to sync.
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
        """Replaces the saved checkpoint by an empty one before the log is cut or queues rebuilt. Blocks.

        A crash on the way must not find it valid.
        """
        self._saved = Checkpoint(master_flushed=self._saved.master_flushed, confirmed=self._saved.confirmed)
        checkpoints.save(self._disk, self._path, self._saved)

    async def cut_log(self, end: int) -> list[str]:
        """Cuts log, queues and index at `end`; returns the files in `set-aside` that keep what was cut off.

        At `end` a record begins. Nothing may append meanwhile. Blocks the loop while the rest of the file is
        cleared and synced. A crash on the way leaves a log that ends at `end` or later.
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

    async def set_log_aside(self) -> list[str]:
        """Moves all files of the log to `set-aside`, and removes queues and index; returns the files.

        For a slave whose master has deleted everything that would continue this log. Nothing may append
        meanwhile. Afterwards the log is empty and may begin at any file.
        """
        log = self._log
        async with self._one_at_a_time:
            await self._flusher.wait_durable(log.end)
            self.disown_checkpoint()
            log.files.drop_ahead()
            self._queues.clear()
            if self._index is not None:
                self._index.truncate(0)
            kept = [
                log.files.set_aside(start, self._config.set_aside_dir) for start in reversed(log.files.starts)
            ]
            log.start_at(0)
            self._flusher.log_was_cut(0)
            self._dispatcher.start_after_cut()
            # As for a new store: recovery then knows that nothing of the next log was on the medium, and
            # clears a torn first record instead of refusing to start.
            self.take_checkpoint_now()
        return kept

    async def expect_fewer_queues(self, going: int) -> None:
        """Lowers the checkpoint's number of queues by `going` before these are deleted.

        Without that, their absence would count as a loss after a crash. Nothing may be awaited between this
        and the deletion: a checkpoint would count them again.
        """
        async with self._one_at_a_time:
            if (note := self._saved.note) is not None:
                await self._note_queues(min(note.queues, self._queues.files.count) - going)

    async def expect_deletion(self, topic: str) -> None:
        """Lowers the checkpoint's number of queues before a topic is deleted; see `expect_fewer_queues`."""
        await self.expect_fewer_queues(self._queues.count_of(topic))

    async def _recount(self) -> None:
        """Lowers the checkpoint's number of queues if some were deleted while the disk thread wrote it."""
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
        """Writes index headers and slots; returns store time and log offset where the newest file begins."""
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
        """Returns a new checkpoint for the log below `complete`, with fields that are safe for Apache too.

        Apache, started after a kill, deletes the newest index file and puts keys again from where these
        fields allow: that must not be later than where the file begins.
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
    """Creates the file `abort`, empty if the disk is full, and syncs its name. Raises OSError."""
    if not disk.exists(path):
        try:
            disk.write(path, str(os.getpid()).encode())
        except OSError:
            if not disk.exists(path):
                raise
    disk.sync_dir(os.path.dirname(path))
