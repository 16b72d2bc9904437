"""The log files of a store with DLedger, and the pieces of those that hold entries.

A store that was switched over has files of records in `commitlog/`, and behind them files of entries in
`dledger-<id>/data`. Reads only; `store/walk.py` walks over both.
"""

from collections.abc import Iterator

from turbopump.protocol.dledger.entry import END_OF_FILE, HEAD_SIZE, Buffer, measure, read_head
from turbopump.runtime.disk import Disk
from turbopump.store.dledger.entry_scan import beginning
from turbopump.store.location import dledger_id
from turbopump.store.pieces import Kind, LogPart, Piece, fields_of, is_zero, log_parts, next_record
from turbopump.store.scan import unusual


def entry_parts(directory: str, disk: Disk) -> list[LogPart]:
    """Returns the data files of DLedger in a store; none without such a log."""
    node = dledger_id(directory, disk)
    found = log_parts(f"{directory}/dledger-{node}/data", disk) if node else []
    return [LogPart(part.start, part.size, part.path, holds_entries=True) for part in found]


def store_parts(directory: str, disk: Disk, log_dir: str = "") -> list[LogPart]:
    """Returns the files of a store's log, of records and of entries, in log order."""
    entries = entry_parts(directory, disk)
    older = log_parts(log_dir or f"{directory}/commitlog", disk)
    return [part for part in older if not entries or part.start < entries[0].start] + entries


def walk_entries(buffer: Buffer, part: LogPart) -> Iterator[Piece]:
    """Yields pieces that cover every byte of a file of entries: each head, then the record behind it."""
    position = beginning(buffer, part.size)
    if position:
        yield Piece(Kind.BLANK, part.start, position, buffer, 0)
    while position < part.size:
        size = measure(buffer, position, part.size, check_crc=True)
        if size == END_OF_FILE:
            yield Piece(Kind.BLANK, part.start + position, part.size - position, buffer, position)
            return
        if size < 0 or not _holds_record(buffer, part, position, size):
            size = _next_entry(buffer, position, part) - position
            kind = Kind.EMPTY if is_zero(buffer, position, position + size) else Kind.DAMAGE
            yield Piece(kind, part.start + position, size, buffer, position)
        else:
            at = position + HEAD_SIZE
            yield Piece(Kind.ENTRY_HEAD, part.start + position, HEAD_SIZE, buffer, position)
            record = Piece(Kind.RECORD, part.start + at, size - HEAD_SIZE, buffer, at)
            record.fields = fields_of(record)
            yield record
        position += size


def _holds_record(buffer: Buffer, part: LogPart, position: int, size: int) -> bool:
    if read_head(buffer, position).pos != part.start + position:
        return False
    found = unusual(buffer, part.start, position + HEAD_SIZE, position + size, check_crc=True)
    return not isinstance(found, int) and found[4] == size - HEAD_SIZE


def _next_entry(buffer: Buffer, position: int, part: LogPart) -> int:
    """Returns the position of the next whole entry with a record; the file's size: there is none."""
    record = position + HEAD_SIZE
    while (record := next_record(buffer, record + 1, part)) < part.size:
        head = record - HEAD_SIZE
        size = measure(buffer, head, part.size, check_crc=True)
        if size > 0 and _holds_record(buffer, part, head, size):
            return head
    return part.size
