"""Reads the data files of DLedger entry by entry, as recovery and the tools do.

In: a buffer that holds a whole file. Out: the entries that follow one another in it, until the mark at its
end or the first bytes that are no entry. An entry is accepted if magic and size agree, its pos is where it
lies, its index follows that of the entry before, its term is not smaller, and its body is whole: by the
checksum in its head, or by those of the record in it where Apache wrote none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from turbopump.protocol import record as records
from turbopump.protocol.dledger.entry import (
    END_MAGIC,
    END_MARK,
    HEAD_SIZE,
    MAGIC,
    NO_ENTRY,
    UNIT,
    Buffer,
    EntryHead,
    head_at,
)
from turbopump.protocol.record import PHYSICAL_OFFSET_AT
from turbopump.store.dispatch import Found
from turbopump.store.scan import OFFSET, scan_one

EMPTY = -1
"""Index of the last entry of a log without any."""


@dataclass(slots=True)
class EntryRun:
    """Entries that follow one another: what the next one must be, and the units of those found."""

    next_index: int = EMPTY  # any
    term: int = -1
    units: bytearray = field(default_factory=bytearray)

    def take(self, head: EntryHead, offset: int) -> bool:
        """Adds the entry at an offset of the log if it follows; returns whether it does."""
        if head.pos != offset or head.term < self.term or self.next_index not in (EMPTY, head.index):
            return False
        self.next_index, self.term = head.index + 1, head.term
        self.units += UNIT.pack(MAGIC, head.pos, head.size, head.index, head.term)
        return True


def scan_entries(
    buffer: Buffer,
    start: int,
    position: int,
    limit: int,
    run: EntryRun,
    each: Callable[[EntryHead, int], None] | None = None,
) -> tuple[int, int]:
    """Takes the entries from `position` on into `run`; returns the position after, and what ended the scan.

    That is END_OF_FILE or NO_ENTRY. `start`: log offset of the buffer's first byte. `each` gets the head of
    every entry and its position.
    """
    while True:
        head = head_at(buffer, position, limit, check_crc=True)
        if isinstance(head, int):
            return position, head
        if not head.body_crc and not _is_record(buffer, start, position, head.size):
            return position, NO_ENTRY
        if not run.take(head, start + position):
            return position, NO_ENTRY
        if each is not None:
            each(head, position)
        position += head.size


def scan_messages(
    buffer: Buffer,
    start: int,
    position: int,
    limit: int,
    run: EntryRun,
    last: int,
    each: Callable[[Found], None],
) -> tuple[int, int]:
    """Calls `each` for the records in the entries from `position` to index `last`; returns as `scan_entries`.

    An entry whose body is no record is passed over: other programs may use DLedger too.
    """

    def look(head: EntryHead, at: int) -> None:
        if head.index > last:
            return
        scan_one(buffer, start, at + HEAD_SIZE, at + head.size, each)

    return scan_entries(buffer, start, position, limit, run, look)


def beginning(buffer: Buffer, file_size: int) -> int:
    """Returns the position of the first entry of a log in its first file.

    A log that begins inside of a file, since that of the leader did, has the mark of a file's end before it,
    with the position as the bytes left.
    """
    magic, position = END_MARK.unpack_from(buffer, 0)
    return position if magic == END_MAGIC and 0 < position < file_size else 0


def _is_record(buffer: Buffer, start: int, position: int, size: int) -> bool:
    """Whether the body of an entry without a checksum is a whole record that names its own offset."""
    at = position + HEAD_SIZE
    if records.measure(buffer, at, position + size, True) != size - HEAD_SIZE:
        return False
    offset: int = OFFSET.unpack_from(buffer, at + PHYSICAL_OFFSET_AT)[0]
    return offset == start + at
