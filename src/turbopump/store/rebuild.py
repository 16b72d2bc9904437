"""Rebuilds the consume queues and the index of a store from its log. The store must not be in use.

Removed and rebuilt: `consumequeue`, `batchconsumequeue`, `index`. Removed: `consumequeue_ext`, into which
only old entries pointed, and the checkpoint, which described old files. The files of timers are removed when
they are damaged: the next start of our broker rebuilds them from the log. All else is left as it is: the log,
the configuration, RocksDB, compaction. An `abort` file exists meanwhile, so that a store whose rebuild was
interrupted is rebuilt by its next start.
"""

import os
from collections.abc import Generator
from dataclasses import dataclass

from turbopump.protocol.names import TIMER_TOPIC
from turbopump.runtime.clock import Clock, SystemClock
from turbopump.runtime.disk import Buffer, Disk, SystemDisk
from turbopump.store.append import Appender
from turbopump.store.commit_log import CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.delays import DelayHistory
from turbopump.store.dispatch import Dispatcher, Found
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.entry_scan import EntryRun, beginning, scan_messages
from turbopump.store.dledger.entry_walk import store_parts
from turbopump.store.dledger.state_files import StateFiles
from turbopump.store.findings import Findings
from turbopump.store.flags import Flags
from turbopump.store.index import Index
from turbopump.store.index_check import shape_of
from turbopump.store.index_file import HEADER
from turbopump.store.location import dledger_id
from turbopump.store.queue_files import batch_topics
from turbopump.store.queues import ConsumeQueues
from turbopump.store.scan import BLANK, scan
from turbopump.store.verify import Progress
from turbopump.store.wheel_check import WheelCheck

TIMERS = TIMER_TOPIC.encode()
WRITE_OUT_EVERY = 1 << 16  # records


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Result of a rebuild: number of records and queues, extent of the log, unread files."""

    records: int
    queues: int
    log_begin: int
    log_end: int  # end of the last record that could be read
    unread_files: int  # files of the log after that; `verify` reports what is wrong with them
    damaged_timers: int = 0  # problems in the files of timers, which were removed then


def rebuild(
    directory: str, disk: Disk | None = None, clock: Clock | None = None, config: StoreConfig | None = None
) -> Generator[Progress, None, Rebuilt]:
    """Rebuilds queues and index from the log, yielding progress; returns a Rebuilt. Raises AlreadyLocked.

    `config` has the sizes of files; without it they are those of the existing files, or Apache's defaults.
    """
    disk = disk or SystemDisk()
    config = config or config_of(directory, disk)
    lock = disk.lock(os.path.join(directory, "lock"))
    try:
        abort = os.path.join(directory, "abort")
        was_clean = not disk.exists(abort)
        were_of_batches = {topic.name for topic in disk.entries(config.batch_queue_dir) if topic.is_dir}
        _forget(directory, disk, abort)
        work = _Rebuild(config, disk, clock or SystemClock(), were_of_batches, was_clean)
        rebuilt = yield from work.run()
        if was_clean:
            disk.remove(abort)
            disk.sync_dir(directory)
        return rebuilt
    finally:
        lock.release()


def config_of(directory: str, disk: Disk, log_dir: str = "") -> StoreConfig:
    """Returns a configuration with the sizes that the files of a store have."""
    node = dledger_id(directory, disk)
    defaults = StoreConfig(root_dir=directory, commit_log_dir=log_dir, dledger_id=node)
    parts = store_parts(directory, disk, log_dir)
    slots, items = _index_shape(defaults, disk)
    return StoreConfig(
        root_dir=directory,
        commit_log_dir=log_dir,
        dledger_id=node,
        commit_log_file_size=parts[0].size if parts else defaults.commit_log_file_size,
        consume_queue_file_size=_file_size(defaults.queue_dir, disk) or defaults.consume_queue_file_size,
        batch_queue_file_size=_file_size(defaults.batch_queue_dir, disk) or defaults.batch_queue_file_size,
        index_slots=slots,
        index_items=items,
    )


def _file_size(directory: str, disk: Disk) -> int:
    """Returns the size of the queue files below a directory; 0 when there are none."""
    for topic in disk.entries(directory):
        for queue in disk.entries(os.path.join(directory, topic.name)):
            for file in disk.entries(os.path.join(directory, topic.name, queue.name)):
                if file.size:
                    return file.size
    return 0


def _index_shape(defaults: StoreConfig, disk: Disk) -> tuple[int, int]:
    for entry in disk.entries(defaults.index_dir):
        if entry.name.isdecimal() and entry.size > HEADER.size:
            mapped = disk.open_mapped(os.path.join(defaults.index_dir, entry.name), writable=False)
            try:
                if shape := shape_of(mapped.buffer, mapped.size, None):
                    return shape
            finally:
                mapped.close()
    return defaults.index_slots, defaults.index_items


def _forget(directory: str, disk: Disk, abort: str) -> None:
    if not disk.exists(abort):
        disk.write(abort, b"")
    checkpoint = os.path.join(directory, "checkpoint")
    if disk.exists(checkpoint):
        disk.remove(checkpoint)
    disk.sync_dir(directory)
    for name in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index"):
        disk.remove_tree(os.path.join(directory, name))
    disk.sync_dir(directory)


class _Rebuild:
    """One run over the log that dispatches every record again, to new queues and a new index."""

    def __init__(
        self, config: StoreConfig, disk: Disk, clock: Clock, were_of_batches: set[str], was_clean: bool
    ) -> None:
        self._was_clean = was_clean
        self._findings = Findings()
        self._config = config
        self._disk = disk
        self._log = EntryLog(config, disk) if config.dledger_id else CommitLog(config, disk)
        self._committed = StateFiles(config.dledger_dir, disk).peek_checkpoint().committed
        self._run = EntryRun()
        self._queues = ConsumeQueues(config, disk, self._log)
        self._queues.files.batch_topics = batch_topics(config.config_dir, disk) | were_of_batches
        self._index = Index.open(config.index_dir, disk, config.index_slots, config.index_items, clock)
        appender = Appender(self._log, Flags(), self._queues, clock, config.max_message_size, immediate=True)
        delays = DelayHistory(config.config_dir, disk, config.message_delay_levels)
        self._dispatcher = Dispatcher(self._log, self._queues, appender, self._index, delays)
        self._records = 0

    def run(self) -> Generator[Progress, None, Rebuilt]:
        files = self._log.files
        files.load()
        root, begin = self._config.root_dir, self._log.min_offset
        self._wheel = WheelCheck(root, self._disk, self._findings, begin, self._was_clean)
        try:
            end = yield from self._read_all()
            self._queues.write_out(len(self._queues.dirty))
            self._dispatcher.put_all_keys()
            self._queues.files.take_to_sync().sync(self._disk)
            self._index.flush()
            behind = [start for start in files.starts if start > end]
            unread = sum(any(files.mapped(start).buffer[:8]) for start in behind)  # others were made ahead
            damaged = self._forget_damaged_timers()
            return Rebuilt(self._records, self._queues.files.count, begin, end, unread, damaged)
        finally:
            self._queues.files.close()
            self._index.close()
            files.close()

    def _read_all(self) -> Generator[Progress, None, int]:
        """Dispatches the records up to the first damage, yielding progress; returns the end of the last."""
        files, size = self._log.files, self._config.commit_log_file_size
        end = self._log.min_offset
        for number, start in enumerate(files.starts, 1):
            position, ended_by = self._scan(files.reading_ahead(start).buffer, start, size)
            end = start + position
            yield Progress(number * size, len(files.starts) * size)
            if ended_by != BLANK:
                break
        return end

    def _scan(self, buffer: Buffer, start: int, size: int) -> tuple[int, int]:
        """Dispatches the records of a file; of entries, those that are known to be committed."""
        if not self._config.dledger_id or start < self._log.files.divided_at:
            return scan(buffer, start, 0, size, True, self._put)
        begin = beginning(buffer, size)
        return scan_messages(buffer, start, begin, size, self._run, self._committed, self._put)

    def _forget_damaged_timers(self) -> int:
        """Removes the files of timers if they are damaged; returns the number of problems."""
        self._wheel.finish()
        if self._findings.problems:
            self._disk.remove_tree(os.path.join(self._config.root_dir, "timerlog"))
            for name in ("config/timercheck", "config/timercheck.bak", "timerwheel"):
                path = os.path.join(self._config.root_dir, name)
                if self._disk.exists(path):
                    self._disk.remove(path)
        return len(self._findings.problems)

    def _put(self, found: Found) -> None:
        topic, _, _, physical, size, _, _, properties = found
        if topic == TIMERS:
            self._wheel.check(physical, size, properties)
        if not self._dispatcher.dispatch(found, with_entry=True, with_keys=True):
            self._dispatcher.dispatch_after_gap(found)
        self._records += 1
        if self._records % WRITE_OUT_EVERY == 0:
            self._queues.write_out(len(self._queues.dirty))
