"""Reads DLedger's log: which entries it has, and an entry by its index.

In: data files, and the index of their entries. Out: entries, terms, offsets. `entry_log.py` adds what changes
the log, and what is committed.
"""

from turbopump.protocol.dledger.entry import (
    END_MAGIC,
    END_MARK,
    HEAD_SIZE,
    MAGIC,
    DLedgerEntry,
    EntryUnit,
    is_end_of_file,
    read_entry,
)
from turbopump.protocol.record import BLANK, MAGIC_V1, MAGIC_V2
from turbopump.runtime.disk import Buffer, Disk
from turbopump.store.commit_log import CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.dledger.entry_index import EntryIndex
from turbopump.store.dledger.entry_scan import EMPTY
from turbopump.store.segment import LogFiles

RECORD_MAGICS = (MAGIC_V1, MAGIC_V2, BLANK)


class IndexedLog(CommitLog):
    """A commit log whose records are the bodies of entries, which are found by index."""

    def __init__(self, config: StoreConfig, disk: Disk, files: LogFiles) -> None:
        super().__init__(config, disk, files)
        self.index = EntryIndex(config.entry_index_dir, config.dledger_index_units, disk, config.syncs_each)
        self._first = 0  # index of the first entry, or of the next one in an empty log
        self._next = 0
        self._term = -1  # of the last entry

    @property
    def begin_index(self) -> int:
        return self._first if self._next > self._first else EMPTY

    @property
    def end_index(self) -> int:
        return self._next - 1 if self._next > self._first else EMPTY

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 in an empty log."""
        return self._term

    @property
    def next_index(self) -> int:
        return self._next

    # reading

    def has(self, index: int) -> bool:
        return self._first <= index < self._next

    def term_of(self, index: int) -> int:
        """Returns the term of an entry; -1 when the log does not have it."""
        return self._unit(index).term if self.has(index) else -1

    def place_of(self, index: int) -> int:
        """Returns the offset of an entry's head."""
        return self.index.extent(index)[0]

    def end_of(self, index: int) -> int:
        """Returns the offset behind an entry."""
        pos, size = self.index.extent(index)
        return pos + size

    def bytes_between(self, first: int, last: int) -> int:
        """Returns how many bytes of the data files lie from entry `first` to the end of entry `last`."""
        return self.end_of(last) - self.place_of(first)

    def entry(self, index: int) -> DLedgerEntry | None:
        """Returns an entry, committed or not; None when the log does not have it. Raises BrokenRecord."""
        found = self.entries(index, 1, 0)
        return found[0] if found else None

    def entries(self, index: int, max_count: int, max_bytes: int) -> list[DLedgerEntry]:
        """Returns entries from `index` on, at least one if the log has it. Raises BrokenRecord."""
        found: list[DLedgerEntry] = []
        size = 0
        while self.has(index) and len(found) < max_count:
            buffer, position = self._located(self.place_of(index))
            while self.has(index) and not is_end_of_file(buffer, position, self.file_size):
                entry = read_entry(buffer, position, self.file_size)
                size += entry.size
                if found and (size > max_bytes or len(found) == max_count):
                    return found
                found.append(entry)
                position += entry.size
                index += 1
        return found[:max_count]

    def head_before(self, buffer: Buffer, position: int) -> int:
        """Returns how many bytes lie before the record of the entry at a position of a file.

        None where a record begins, which may be one of `commitlog/`. At the mark of a file's end or beginning
        these are the bytes that it names.
        """
        if position + END_MARK.size > self.file_size:
            return 0
        first, second = END_MARK.unpack_from(buffer, position)
        if first == END_MAGIC:
            left: int = second + HEAD_SIZE if position == 0 and second < self.file_size else second
            return left
        return HEAD_SIZE if first == MAGIC and second not in RECORD_MAGICS else 0

    def first_record(self, start: int) -> int:
        return start + self.head_before(self.files.mapped(start).buffer, 0)

    def _unit(self, index: int) -> EntryUnit:
        unit = self.index.unit(index)
        assert unit is not None, f"no unit of entry {index}"
        assert unit.index == index, f"the index has another entry than {index}"
        return unit

    def _located(self, offset: int) -> tuple[Buffer, int]:
        position = offset % self.file_size
        return self.files.mapped(offset - position).buffer, position
