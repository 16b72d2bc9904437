"""Reads the files of a commit log as they are, from the first byte to the last, without opening a store.

In: a directory, written by us or by Apache, in use, stopped or copied. Out: one `Piece` after the other; they
cover every byte. Reads only, one file mapped at a time. Whether a record is right is checked elsewhere.
"""

import contextlib
from collections.abc import Iterator
from functools import lru_cache

from turbopump.protocol.record import Buffer
from turbopump.runtime.disk import Disk
from turbopump.store.dispatch import Found
from turbopump.store.dledger.entry_walk import walk_entries
from turbopump.store.pieces import Fields, Kind, LogPart, Piece, fields_of, is_zero, look_at, next_record
from turbopump.store.scan import scan

BATCH = 1000  # records of one scan


def walk(parts: list[LogPart], disk: Disk) -> Iterator[Piece]:
    """Yields pieces that cover every byte of these log files, in order."""
    unknown: list[Piece] = []  # damage if a record follows, otherwise the tail of the log
    for part in parts:
        if part.size == 0:
            continue
        mapped = disk.open_mapped(part.path, writable=False)
        try:
            walk_file = walk_entries if part.holds_entries else _walk_file
            for piece in walk_file(mapped.buffer, part):
                if piece.kind in (Kind.DAMAGE, Kind.BAD_CRC, Kind.EMPTY):
                    fields = fields_of(piece) if piece.kind is Kind.BAD_CRC else None
                    unknown.append(Piece(piece.kind, piece.offset, piece.size, fields=fields))
                    continue
                for old in unknown:
                    old.kind = Kind.BAD_CRC if old.kind is Kind.BAD_CRC else Kind.DAMAGE
                    yield old
                unknown.clear()
                yield piece
        finally:
            mapped.close()
    for piece in unknown:
        piece.kind = Kind.EMPTY if piece.kind is Kind.EMPTY else Kind.TAIL
        yield piece


def _walk_file(buffer: Buffer, part: LogPart) -> Iterator[Piece]:
    position, limit = 0, part.size
    while position < limit:
        records = _records(buffer, position, part)
        for topic, queue_id, queue_offset, offset, size, sys_flag, store_timestamp, properties in records:
            fields = Fields(_text(topic), queue_id, queue_offset, sys_flag, store_timestamp, properties)
            yield Piece(Kind.RECORD, offset, size, buffer, position, fields)
            position += size
        if len(records) == BATCH or position >= limit:
            continue
        kind, size = look_at(buffer, position, part)
        if size < 0:
            size = next_record(buffer, position + 1, part) - position
            kind = Kind.EMPTY if is_zero(buffer, position, position + size) else Kind.DAMAGE
        yield Piece(kind, part.start + position, size, buffer, position)
        position += size


def _records(buffer: Buffer, position: int, part: LogPart) -> list[Found]:
    """Returns the records from a position of a log file on, up to BATCH of them."""
    found: list[Found] = []

    def keep(one: Found) -> None:
        found.append(one)
        if len(found) == BATCH:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        scan(buffer, part.start, position, part.size, True, keep)
    return found


class _EnoughError(Exception):
    """Raised to end a scan that has found BATCH records."""


@lru_cache(maxsize=4096)
def _text(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")
