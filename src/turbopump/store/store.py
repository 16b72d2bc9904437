"""The store: a commit log and what is derived from it. `Store` assembles the parts, starts and stops them.

    log         messages: append, look up by log offset, where the log begins and ends   message_log.py
    compiled    appends by the compiled twins                                            compiled_appends.py
    queues      consume queues: find, make, delete                                       queues.py
    lights      light queues that a message is also put into; None: switched off         light_queues.py
    reader      what a pull gets from a queue; brings old records into memory            reading.py
    queries     messages by key                                                          queries.py
    times       messages by store time                                                   times.py
    flusher     brings the log to the medium and reports when a message is there         flush.py
    flags       why nothing can be written at the moment                                 flags.py
    retention   deletes expired files                                                    retention.py
    upkeep      checkpoints, removals, writing out of queues                             upkeep.py
    delays      the delay levels                                                         delays.py
    replica     on a slave: copies the log of the master                                 replica_log.py
    entries     the log of a DLedger node; None: it is a plain commit log                dledger/entry_log.py
    committed   dispatches entries once they are committed; None without DLedger         dledger/committed.py

`commit_log` and `index` are the files below `log` and `queries`; tests look at them, the broker does not. One
event loop owns all of it: what may wait for the disk is a coroutine, everything else returns at once, except
`open`, which blocks. Sockets, topics and consumer groups are not known here.
"""

import asyncio
import logging
import os
from collections.abc import Callable

from turbopump.compiled import Twins
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Lock, Workers
from turbopump.runtime.tasks import Tasks
from turbopump.store.append import Appender
from turbopump.store.checkpoint import Checkpoint
from turbopump.store.commit_log import CommitLog, LogFile
from turbopump.store.compiled_appends import CompiledAppends
from turbopump.store.config import StoreConfig
from turbopump.store.delays import DelayHistory, DelayLevels
from turbopump.store.dispatch import Dispatcher
from turbopump.store.dledger.committed import CommittedEntries
from turbopump.store.dledger.entry_appends import EntryAppender
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.message_recovery import EntryMessageRecovery
from turbopump.store.errors import NoRoom, UnusableStore
from turbopump.store.flags import Flags, Reason, is_no_room
from turbopump.store.flush import Flusher
from turbopump.store.index import Index
from turbopump.store.light_queues import LightQueues
from turbopump.store.message_log import MessageLog
from turbopump.store.queries import KeyQueries
from turbopump.store.queue_files import ANY
from turbopump.store.queues import ConsumeQueues
from turbopump.store.reading import QueueReader
from turbopump.store.recovery import Recovered, Recovery
from turbopump.store.replica_log import ReplicaLog
from turbopump.store.retention import Retention
from turbopump.store.times import MessageTimes
from turbopump.store.upkeep import MaintainedParts, Upkeep

MAX_KEYS = 1 << 20  # messages whose keys recovery on a full disk keeps in memory, about 300 MB

log_line = logging.getLogger("turbopump.store")


class Store:
    """An open message store, assembled from its parts: `Store.open`, `await start()`, `await close()`."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        lock: Lock,
        twins: Twins | None,
    ) -> None:
        self.config = config
        self.flags = Flags()
        self.entries = EntryLog(config, disk) if config.dledger_id else None
        self.commit_log: CommitLog = self.entries or CommitLog(config, disk)
        self.queues = ConsumeQueues(config, disk, self.commit_log)
        self.lights = LightQueues(self.queues, config.max_light_queues) if config.uses_light_queues else None
        self.delays = DelayLevels(config.message_delay_levels)
        self.flusher = Flusher(self.commit_log, self.flags, clock, workers, config)
        # Readers see a message as soon as it is appended.
        immediate = not config.syncs_each and not config.uses_pool and self.entries is None
        self.index = _open_index(config, disk, clock)
        entry_appender = (
            EntryAppender(self.commit_log, self.flags, self.queues, clock, config.max_message_size)
            if self.entries is not None
            else None
        )
        self._appender = entry_appender or Appender(
            self.commit_log, self.flags, self.queues, clock, config.max_message_size, immediate
        )
        self._history = DelayHistory(config.config_dir, disk, config.message_delay_levels)
        self._dispatcher = Dispatcher(
            self.commit_log, self.queues, self._appender, self.index, self._history, twins
        )
        if not immediate and self.entries is None:
            self.flusher.on_synced = self._dispatcher.advance
        parts = MaintainedParts(
            self.commit_log, self.queues, self.index, self._dispatcher, self.flusher, self.flags
        )
        self.upkeep = Upkeep(parts, config, disk, clock, workers)
        self.log = MessageLog(
            self.commit_log,
            self._appender,
            self._dispatcher,
            self.flusher,
            self.flags,
            self.lights,
            immediate,
            self.upkeep.cut_log,
        )
        self.compiled = CompiledAppends(
            twins if immediate else None,
            self.commit_log,
            self.flags,
            self._appender,
            self.queues,
            self._dispatcher,
            clock,
        )
        self.replica = ReplicaLog(self.commit_log, self._dispatcher, self.flusher, self.flags, config)
        self.committed = (
            CommittedEntries(self.entries, self._dispatcher, entry_appender, self.flags)
            if self.entries is not None and entry_appender is not None
            else None
        )
        self.reader = QueueReader(self.commit_log, config, disk, workers)
        self.queries = KeyQueries(self.log, self.index, self._dispatcher, config)
        self.times = MessageTimes(self.commit_log, disk, workers)
        self.recovered_end: int | None = None
        """End of the log after a crash, which may have cost later messages; None after an orderly stop."""
        self._tasks = Tasks(log_line)
        retained = _RetainedLog(self.commit_log, self.upkeep, self.flags, self._tasks)
        self.retention = Retention(retained, config, disk, clock)
        self._twins = twins
        self._disk = disk
        self._lock = lock

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        progress: Callable[[str], None] | None = None,
        twins: Twins | None = None,
    ) -> "Store":
        """Locks the directory, recovers, returns the store; blocks. Raises AlreadyLocked, UnusableStore."""
        check_layout(config, disk)
        disk.make_dirs(config.root_dir)  # the log may be elsewhere
        if not config.dledger_id:
            disk.make_dirs(config.log_dir)
        lock = disk.lock(os.path.join(config.root_dir, "lock"))
        try:
            store = cls(config, disk, clock, workers, lock, twins)
            store._recover(progress)
        except BaseException:
            lock.release()
            raise
        return store

    def _recover(self, progress: Callable[[str], None] | None) -> None:
        crashed = self.upkeep.is_marked
        self.commit_log.load()
        self.queues.load()
        self.queues.files.heals = crashed
        saved = self.upkeep.load_checkpoint()
        self.upkeep.mark_running()
        try:
            found = self._read_log(saved, crashed, progress)
        except NoRoom:
            raise  # `abort` stays, so that the next start continues the recovery
        except UnusableStore:
            if not crashed:
                self.upkeep.mark_stopped()
            raise
        self._dispatcher.continue_after(found.last_record, found.last_timestamp)
        if self.committed is not None:
            self.committed.open(found.end)
        self.reader.written_from = found.end
        self._history.go_on(self.log.min_offset, found.end)
        self.queues.files.heals, self.queues.files.trusted_below = False, ANY
        self.queues.take_counts()  # what recovery found is not new
        if crashed:  # a killed process leaves files and names that were never synced, mostly of queues
            self._disk.sync_all(self.config.root_dir)
        if crashed or not self.upkeep.is_taken(found.end):
            self.upkeep.take_first_checkpoint()
        if crashed:
            self.recovered_end = found.end
            log_line.warning(
                "The last process did not stop cleanly; recovered the log from %d to its end at %d",
                found.read_from,
                found.end,
            )

    def _read_log(
        self, saved: Checkpoint, crashed: bool, progress: Callable[[str], None] | None
    ) -> Recovered:
        """Runs recovery and returns its result. Raises NoRoom when the disk is too full to finish it.

        What can be written later is kept in memory on a full disk.
        """
        dispatcher = _RecoveryDispatcher(
            self.commit_log, self.queues, self._appender, self.index, self._history, self._twins
        )
        disown = self.upkeep.disown_checkpoint
        recovery = (Recovery if self.entries is None else EntryMessageRecovery)(
            self.commit_log,
            self.queues,
            self.index,
            dispatcher,
            self.config,
            saved,
            crashed,
            disown,
            progress,
        )
        if self.flags.is_set(Reason.NO_ABORT) and not recovery.has_nothing_to_do():
            raise NoRoom(f"{self.flags.reason}. Free some space on the disk of {self.config.root_dir}")
        self.queues.waits_for_room = True
        try:
            return recovery.run()
        except OSError as error:
            if not is_no_room(error):
                raise
            raise NoRoom(
                f"the disk is too full to recover the store: {error}. "
                f"Free some space on the disk of {self.config.root_dir}"
            ) from error
        finally:
            self.queues.waits_for_room = False

    def configure(self, config: StoreConfig) -> None:
        """Applies the settings that can change at run time: limits of reading, retention, waiting."""
        self.config = config
        self.reader.configure(config)
        self.queries.configure(config)
        self.retention.configure(config)
        self.flusher.configure(config)

    # life

    async def start(self) -> None:
        self._dispatcher.loop = asyncio.get_running_loop()
        if self.committed is not None:
            self.committed.on_begin = self.retention.follow_log
        self.flusher.start()
        self.upkeep.start(self._tasks)
        self._tasks.start(self.retention.run(), name="delete expired files")

    async def close(self) -> None:
        """Refuses new messages, brings everything to the medium and, if that succeeded, removes `abort`."""
        self.flags.set(Reason.STOPPED)
        await self.upkeep.stop_checkpoints()
        await self._tasks.close()
        self._dispatcher.loop = None
        try:
            await self.flusher.stop()
            # Only now: a sync that is under way would report the end of a record that is removed here.
            is_whole = self._finish_copy()
            self._dispatcher.advance(self.commit_log.synced)
            if is_whole and self.commit_log.synced == self.commit_log.end:
                self.upkeep.take_checkpoint_now()
                self.commit_log.files.drop_ahead()
                self.upkeep.mark_stopped()
        except OSError as error:
            log_line.error("Cannot close the store cleanly; the next start recovers it: %s", error)
        finally:
            if self.index is not None:
                self.index.close()
            self.queues.files.close()
            self.commit_log.close()
            self._lock.release()

    def _finish_copy(self) -> bool:
        """Dispatches the rest of a log that is not dispatched by appending; False: not all could be."""
        if self.committed is not None and self.entries is not None:
            self.entries.state_files.save_checkpoint(self.entries.checkpoint())
            is_whole = self.committed.finish()
            self.committed.follow()  # entries that are not committed stay out of the queues
            return is_whole
        return self.replica.finish() if self.flags.is_set(Reason.SLAVE) else True


class _RetainedLog:
    """The store as retention sees it: implements `retention.Retained`."""

    def __init__(self, log: CommitLog, upkeep: Upkeep, flags: Flags, tasks: Tasks) -> None:
        self._log = log
        self._upkeep = upkeep
        self._flags = flags
        self._tasks = tasks

    def log_files(self) -> list[LogFile]:
        return self._log.file_list()

    def delete_first_log_file(self) -> None:
        self._log.delete_first()

    async def sync_removals(self) -> None:
        await self._upkeep.sync_removals()

    def min_offset_changed(self) -> None:
        self._tasks.start(self._upkeep.follow_log(), name="delete files of queues and index")

    def set_disk_full(self, full: bool, ratio: float) -> None:
        if full:
            self._flags.set(Reason.DISK_FULL, f"[CL: {ratio:.2f}]")
        else:
            self._flags.clear(Reason.DISK_FULL)


class _RecoveryDispatcher(Dispatcher):
    """Dispatcher for recovery: on a full disk it keeps up to MAX_KEYS keys in memory, for upkeep to put."""

    _found_no_room = False

    def put_all_keys(self) -> None:
        if self._found_no_room and len(self._appender.keys) < MAX_KEYS:
            return
        try:
            super().put_all_keys()
        except OSError as error:
            if not is_no_room(error) or self._found_no_room:
                raise
            self._found_no_room = True


def check_layout(config: StoreConfig, disk: Disk) -> None:
    """Raises UnusableStore when `storePathCommitLog` names several directories."""
    if "," in config.log_dir:
        raise UnusableStore("storePathCommitLog names several directories: only one is supported")


def _open_index(config: StoreConfig, disk: Disk, clock: Clock) -> Index | None:
    if not config.index_enabled:
        return None
    return Index.open(config.index_dir, disk, config.index_slots, config.index_items, clock)
