"""Recovery of DLedger's log: finds its end, completes the index, and cuts what follows the last entry.

In: the files as the last process left them, ours or Apache's. Out: where the log begins and ends. Reading
begins at the third last data file, as in Apache, or earlier: at the file with the last entry that the
checkpoint has on the medium, and at a file whose first entry the index knows. What is read is then synced, so
that no entry that this node says it has can vanish later.
"""

import logging
from dataclasses import dataclass

from turbopump.protocol.dledger.entry import END_OF_FILE, MAGIC, UNIT_SIZE, EntryUnit, measure, read_head
from turbopump.runtime.disk import Buffer, Disk
from turbopump.store.commit_log import BLANK_SIZE, CommitLog
from turbopump.store.dledger.entry_index import EntryIndex
from turbopump.store.dledger.entry_scan import EMPTY, EntryRun, beginning, scan_entries
from turbopump.store.dledger.state_files import EntryCheckpoint
from turbopump.store.errors import UnusableStore

FILES_READ = 3  # Apache's

log_line = logging.getLogger("turbopump.store")


@dataclass(frozen=True, slots=True)
class EntryExtent:
    """Extent of a log: index of the first entry and of the next one, term of the last, its end offset."""

    first: int
    next: int
    term: int
    end: int


class EntryRecovery:
    """One run over the end of the log."""

    def __init__(
        self,
        log: CommitLog,
        index: EntryIndex,
        checkpoint: EntryCheckpoint,
        disk: Disk,
        set_aside_dir: str,
    ) -> None:
        self._log = log
        self._index = index
        self._checkpoint = checkpoint
        self._disk = disk
        self._set_aside_dir = set_aside_dir
        self._size = log.file_size

    def run(self) -> EntryExtent:
        """Reads, cuts and syncs. Raises UnusableStore for damage before the end of the log."""
        files = self._log.files
        files.load()
        knows_places = self._index.load()
        own = [start for start in files.starts if start >= files.divided_at]
        if not own:
            self._index.clear()
            return EntryExtent(0, 0, -1, files.divided_at)
        begin = own[0] + beginning(self._buffer(own[0]), self._size)
        start = max(begin, self._start(own) if knows_places else own[0])
        run = EntryRun()
        end = self._read(start, run)
        if run.next_index == EMPTY:
            return self._empty(own[0])
        first_read = read_head(self._buffer(start - start % self._size), start % self._size).index
        self._check_damage(run.next_index, end)
        self._cut(end, run.next_index)
        self._settle(start, end, first_read, run.next_index)
        first = read_head(self._buffer(own[0]), begin - own[0]).index
        self._index.remove_before(first)
        return EntryExtent(first, run.next_index, run.term, end)

    # where to begin

    def _start(self, own: list[int]) -> int:
        """Returns the start of the file where reading begins."""
        unit = self._index.unit(self._checkpoint.end)
        if unit is None or unit.index != self._checkpoint.end or unit.magic != MAGIC:
            return own[0]  # nothing says that the units of older files are on the medium
        latest = min(own[max(0, len(own) - FILES_READ)], unit.pos - unit.pos % self._size)
        for start in reversed([start for start in own if start <= latest]):
            if self._is_known(start):
                return start
        return own[0]

    def _is_known(self, start: int) -> bool:
        """Whether a file begins with an entry that the index has at this place."""
        buffer = self._buffer(start)
        if measure(buffer, 0, self._size, check_crc=True) <= 0:
            return False
        head = read_head(buffer, 0)
        unit = EntryUnit(MAGIC, head.pos, head.size, head.index, head.term)
        return head.pos == start and self._index.unit(head.index) == unit

    # reading

    def _read(self, offset: int, run: EntryRun) -> int:
        """Reads the entries from `offset` on into `run` and writes their units; returns the end."""
        size = self._size
        while self._log.files.has(start := offset - offset % size):
            buffer = self._log.files.reading_ahead(start).buffer
            position, ended_by = scan_entries(buffer, start, offset - start, size, run)
            if run.units:
                count = len(run.units) // UNIT_SIZE
                self._index.correct(run.next_index - count, run.units)
                run.units.clear()
            offset = start + position
            if ended_by != END_OF_FILE or not self._log.files.has(start + size):
                break
            offset = start + size
        return offset

    def _check_damage(self, next_index: int, end: int) -> None:
        """Raises UnusableStore when entries behind the end are on the medium: one between is damaged.

        To cut them off would take back what this node told its group that it has.
        """
        noted = self._checkpoint.end
        if noted < next_index:
            return
        unit = self._index.unit(noted)
        if unit is not None and unit.index == noted and self._is_entry(unit):
            raise UnusableStore(
                f"entry {next_index} at {end} of {self._log.files.directory} is damaged, but entry {noted} "
                f"behind it is not. Remove the directory dledger-<id>, and the node copies the log of its "
                f"group again"
            )
        log_line.error("DLedger's log ends before entry %d, but had entry %d", next_index, noted)

    def _is_entry(self, unit: EntryUnit) -> bool:
        position = unit.pos % self._size
        start = unit.pos - position
        if unit.pos < 0 or not self._log.files.has(start):
            return False
        buffer = self._buffer(start)
        if measure(buffer, position, self._size, check_crc=True) <= 0:
            return False
        head = read_head(buffer, position)
        return (head.index, head.pos) == (unit.index, unit.pos)

    # ending

    def _empty(self, own: int) -> EntryExtent:
        """Prepares the files for a log without an entry that can be read. Raises UnusableStore.

        That is right only if none ever was on the medium: the log was reset, or the first sync never came.
        """
        files = self._log.files
        if self._checkpoint.end != EMPTY and any(self._buffer(own)[:BLANK_SIZE]):
            raise UnusableStore(
                f"{files.path(own)} does not begin with an entry that can be read. Remove the directory "
                f"dledger-<id>, and the node copies the log of its group again"
            )
        self._cut(own, 0)
        while files.starts and files.starts[-1] >= own:
            files.remove(files.starts[-1])
        files.divided_at = files.starts[-1] + self._size if files.starts else 0
        return EntryExtent(0, 0, -1, files.divided_at)

    def _cut(self, end: int, next_index: int) -> None:
        for path in self._log.cut(end, self._set_aside_dir):
            log_line.error("DLedger's log was cut at %d; the rest is kept as %s", end, path)
        for part in self._index.cut(next_index):
            part.sync()

    def _settle(self, start: int, end: int, first_index: int, next_index: int) -> None:
        """Syncs what was read. What the checkpoint does not have on the medium is written again before."""
        unit = self._index.unit(self._checkpoint.end)
        known = start
        if unit is not None and unit.index == self._checkpoint.end:
            known = min(max(start, unit.pos + unit.size), end)
        self._log.settle(start, known, write_again=False)
        self._log.settle(known, end, write_again=True)
        self._index.dirty_again(max(first_index, min(self._checkpoint.end + 1, next_index)), next_index)
        for part in self._index.unsynced(first_index, next_index):
            part.sync()
        for directory in (self._log.files.directory, self._index.directory):
            self._disk.sync_dir(directory)

    def _buffer(self, start: int) -> Buffer:
        return self._log.files.mapped(start).buffer
