"""Recovery: finds the end of the log and makes queues and index agree with it.

In: the files as the last process left them. Out: a log that ends after its last whole record, and queues and
index that hold exactly what is in the log. The `abort` file and the checkpoint's note tell three cases apart:

    stopped cleanly by us    everything is complete up to the offset in the note: only what follows is read
    crashed, note of ours    queues and index are cut back to where they are complete, and filled again
    written by Apache        its rules choose the file to start from; queues are cut back if it crashed

A record is accepted as Apache accepts it (lengths agree, checksum of the body), and its stored log offset
must be where it lies: this tells records from the left-overs of an earlier use of the file. Unlike Apache,
the record at the largest queue offset is not skipped, the index is rebuilt from where it ends, and the end of
the log is cut on the medium.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.store.checkpoint import Checkpoint
from turbopump.store.commit_log import BLANK_SIZE, CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.dispatch import Dispatcher, Found
from turbopump.store.errors import UnusableStore
from turbopump.store.index import Index
from turbopump.store.queue_files import ANY
from turbopump.store.queues import ConsumeQueues
from turbopump.store.scan import BLANK, NO_RECORD, is_torn, measure_at, scan, unusual
from turbopump.store.times import timestamp_at

CLOCK_MARGIN_MS = 3_000  # Apache's: times of a checkpoint may be this far ahead of what is on disk
WRITE_OUT_EVERY = 1 << 16  # records

log_line = logging.getLogger("turbopump.store")


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of recovery: end of the log, last record, its store time, offset where reading began."""

    end: int
    last_record: int  # -1: there is none
    last_timestamp: int
    read_from: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a recovery: where reading begins, from which log offset on entries and keys are added."""

    start: int
    entries_from: int
    keys_from: int
    cut_queues: bool  # back to `entries_from`, before anything is put
    cut_log: bool  # bytes behind the end may be garbage


class _MissingEntries(Exception):
    """Raised when a queue lacks entries of records that lie before the part of the log that is read."""


class _Torn(Exception):
    """Raised for a record that passes every test although a part of it never reached the medium."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


class Recovery:
    """Reads the log from where queues and index are complete, and completes them."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        dispatcher: Dispatcher,
        config: StoreConfig,
        checkpoint: Checkpoint,
        crashed: bool,
        disown: Callable[[], None],
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._config = config
        self._checkpoint = checkpoint
        self._crashed = crashed
        self._disown = disown  # the checkpoint, on the medium
        self._progress = progress
        self._last_record = -1
        self._last_timestamp = 0

    def run(self) -> Recovered:
        log = self._log
        if not log.files.starts:
            self._forget_everything()
            self._continue_at(0)
            return Recovered(0, -1, 0, 0)
        plan = self._plan()
        try:
            end = self._read(plan)
        except _MissingEntries:
            log_line.warning("A consume queue is incomplete; rebuilding all of them from the log")
            start = log.min_offset
            plan = Plan(start, start, start, cut_queues=True, cut_log=True)
            end = self._read(plan)
        self._cut(end, plan)
        if self._crashed:
            self._settle(plan, end)
        self._continue_at(end)
        return Recovered(end, self._last_record, self._last_timestamp, plan.start)

    def has_nothing_to_do(self) -> bool:
        """Whether everything is as it was noted at an orderly stop, so that nothing has to be written."""
        note, index = self._checkpoint.note, self._index
        if self._crashed or note is None or not self._note_holds():
            return False
        return index is None or note.index_end <= index.end_offset <= note.complete

    # where to begin

    def _plan(self) -> Plan:
        note = self._checkpoint.note
        if note is not None and self._note_holds():
            self._last_record = note.last_record
            self._last_timestamp = self._timestamp(note.last_record)
            keys_from = note.complete
            if self._index is not None:
                # After a crash always: slots may be newer than the header, which shows nothing behind.
                if self._crashed or self._index.end_offset > note.complete:
                    self._index.truncate(note.complete)
                if self._index.end_offset < note.index_end:
                    keys_from = self._index_end()
            start = min(note.complete, keys_from)
            touched = self._crashed or start < note.complete
            return Plan(start, note.complete, keys_from, cut_queues=self._crashed, cut_log=touched)
        if self._crashed:
            start = self._file_by_checkpoint()
            if self._index is not None and note is not None:
                self._index.truncate(note.complete)  # this much of the note holds in any case
            elif self._index is not None:
                self._index.remove_newer(self._checkpoint.index_timestamp)
        else:
            start = self._file_by_queues()
        keys_from = self._index_end() if self._index is not None else start
        return Plan(min(start, keys_from), start, keys_from, cut_queues=self._crashed, cut_log=True)

    def _note_holds(self) -> bool:
        """Returns whether the log and the number of queues still agree with the checkpoint's note."""
        note = self._checkpoint.note
        assert note is not None, "asked only when there is one"
        size = self._size_at(note.last_record)
        if size <= 0 or self._queues.files.count < note.queues:
            return False
        if self._crashed and self._is_torn(note.last_record):
            return False  # the disk has lost what it had reported as written
        end = note.last_record + size
        if end == note.complete:
            return True
        next_start = end - end % self._log.file_size + self._log.file_size
        return self._size_at(end) == 0 and next_start == note.complete

    def _file_by_checkpoint(self) -> int:
        """Returns the start of the last file before which all is on the medium, by the checkpoint."""
        checkpoint = self._checkpoint
        limit = min(checkpoint.log_timestamp, checkpoint.queue_timestamp) - CLOCK_MARGIN_MS

        def is_early_enough(start: int) -> bool:
            if checkpoint.note is not None:  # an offset, where there is one: clocks may have been set back
                return start <= checkpoint.note.complete
            if checkpoint.queue_offset > 0:
                return start <= checkpoint.queue_offset
            return self._timestamp(start) <= limit

        return self._last_file(is_early_enough)

    def _file_by_queues(self) -> int:
        """Returns the start of the last file whose first record, and all before it, were dispatched."""
        newest = max((queue.last_physical for queue in self._queues.every()), default=-1)
        return self._last_file(lambda start: start <= newest)

    def _last_file(self, is_good: Callable[[int], bool]) -> int:
        starts = self._log.files.starts
        for start in reversed(starts):
            record = self._first_record(start)
            if self._size_at(record) > 0 and self._timestamp(record) != 0 and is_good(record):
                return start
        return starts[0]

    def _index_end(self) -> int:
        """Returns the log offset of the last message in the index, where reading for keys can begin."""
        assert self._index is not None, "asked only when there is one"
        end = max(self._index.end_offset, self._log.min_offset)
        return self._begin_of(end) if self._size_at(end) > 0 else self._file_start(end)

    # reading

    def _read(self, plan: Plan) -> int:
        """Dispatches the records from `plan.start` on, after cutting queues if planned; returns the end."""
        note = self._checkpoint.note
        if note is not None and plan.entries_from < note.complete:
            self._disown()  # queues are rebuilt: until then the checkpoint must not count
        if plan.cut_queues:
            self._queues.files.trusted_below = plan.entries_from  # for those that are opened here
            for queue in self._queues.every():
                queue.truncate(plan.entries_from)
                queue.sweep()
        offset = plan.start
        while self._log.files.has(start := self._file_start(offset)):
            position, ended_by = self._scan(start, offset - start, plan)
            self._queues.write_out(len(self._queues.dirty))
            self._report(start + position - plan.start)
            offset = start + position
            if ended_by != BLANK or not self._log.files.has(start + self._log.file_size):
                break
            offset = start + self._log.file_size
        self._check_beginning(offset)
        return offset

    def _scan(self, start: int, position: int, plan: Plan) -> tuple[int, int]:
        """Dispatches a file's records; returns the position after the last, and BLANK or NO_RECORD."""
        buffer = self._log.files.reading_ahead(start).buffer
        each, size = self._put(plan), self._log.file_size
        try:
            return scan(buffer, start, position, size, self._config.check_crc_on_recover, each)
        except _Torn as torn:
            return torn.offset - start, NO_RECORD

    def _put(self, plan: Plan) -> Callable[[Found], None]:
        """Returns a function that dispatches one record by the plan; it raises _Torn or _MissingEntries."""
        dispatch, queues = self._dispatcher.dispatch, self._queues
        entries_from, keys_from = plan.entries_from, plan.keys_from
        durable = plan.entries_from if self._crashed else ANY
        count = 0

        def put(found: Found) -> None:
            nonlocal count
            physical = found[3]
            if physical >= durable and is_torn(found, self._log):
                raise _Torn(physical)
            if not dispatch(found, physical >= entries_from, physical >= keys_from):
                self._gap(found, plan)
            self._last_record, self._last_timestamp = physical, found[6]
            count += 1
            if count % WRITE_OUT_EVERY == 0:
                queues.write_out(len(queues.dirty))

        return put

    def _gap(self, found: Found, plan: Plan) -> None:
        """Fills the gap before a record in its queue; raises _MissingEntries if unread log may fill it."""
        if plan.entries_from > self._log.min_offset:
            raise _MissingEntries
        self._dispatcher.dispatch_after_gap(found)

    def _check_beginning(self, end: int) -> None:
        """Raises UnusableStore for a log without a single readable record, instead of clearing it.

        Unless a crash is known to have come before any record was on the medium.
        """
        start, note = self._log.min_offset, self._checkpoint.note
        if end != start or not any(self._log.files.mapped(start).buffer[:BLANK_SIZE]):
            return
        if not self._crashed or note is None or note.complete > start:
            raise UnusableStore(
                f"{self._log.files.path(start)} does not begin with a record that can be read, so nothing of "
                f"the commit log could be kept. Restore the file, or move it elsewhere to continue without it"
            )

    def _report(self, read: int) -> None:
        if self._progress is not None:
            left = self._log.files.starts[-1] + self._log.file_size - self._log.min_offset
            self._progress(f"recovering: {read >> 20} of at most {left >> 20} MiB read")

    # ending

    def _cut(self, end: int, plan: Plan) -> None:
        if not plan.cut_log and end == plan.start and self._log.files.starts[-1] <= end:
            return
        self._cut_log(end)
        for queue in self._queues.every() if not plan.cut_queues else ():
            queue.truncate(end)
        if self._index is not None:
            self._dispatcher.put_all_keys()
            if self._index.end_offset >= end:
                self._index.truncate(end)

    def _cut_log(self, end: int) -> None:
        for path in self._log.cut(end, self._config.set_aside_dir):
            log_line.error("The log was cut at %d; the rest is kept as %s", end, path)

    def _continue_at(self, end: int) -> None:
        self._log.start_at(end)

    def _settle(self, plan: Plan, end: int) -> None:
        """Syncs the log up to `end`, from the checkpoint's note or from where reading began. Blocks.

        A killed process leaves pages that are on no medium yet, and that may count as clean after a failed
        sync. No record that was read may vanish later.
        """
        note = self._checkpoint.note
        begin = plan.start if note is None else max(note.complete, self._log.min_offset)
        self._log.settle(begin, end, write_again=note is not None)

    def _forget_everything(self) -> None:
        self._queues.clear()
        if self._index is not None:
            self._index.truncate(0)

    # single records

    def _first_record(self, start: int) -> int:
        """Returns the log offset of the first record of a file."""
        return start

    def _begin_of(self, record: int) -> int:
        """Returns where reading begins to find the record at a log offset."""
        return record

    def _file_start(self, offset: int) -> int:
        return offset - offset % self._log.file_size

    def _size_at(self, offset: int) -> int:
        """Returns the size of the record at an offset, 0 for a blank, -1 for neither."""
        start = self._file_start(offset)
        if offset < 0 or not self._log.files.has(start):
            return -1
        buffer = self._log.files.mapped(start).buffer
        return measure_at(
            buffer, start, offset - start, self._log.file_size, self._config.check_crc_on_recover
        )

    def _is_torn(self, offset: int) -> bool:
        """Returns whether a part of the record at an offset is missing."""
        start = self._file_start(offset)
        buffer, size = self._log.files.mapped(start).buffer, self._log.file_size
        found = unusual(buffer, start, offset - start, size, self._config.check_crc_on_recover)
        return isinstance(found, int) or is_torn(found, self._log)

    def _timestamp(self, offset: int) -> int:
        """Returns the store time of the record at an offset."""
        start = self._file_start(offset)
        return timestamp_at(self._log.files.mapped(start).buffer, offset - start)
