"""Reads the files of a commit log as they are, from the first byte to the last, without opening a store.

In: a directory, written by us or by Apache, in use, stopped or copied. Out: one `Piece` after the other; they
cover every byte. Reads only, one file mapped at a time. Whether a record is right is checked elsewhere.
"""

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from turbopump.protocol.record import HEADS, I16, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, Buffer, measure
from turbopump.protocol.sysflag import HOSTS_MASK
from turbopump.runtime.disk import Disk
from turbopump.store.dispatch import Found
from turbopump.store.scan import scan
from turbopump.store.segment import NAME_DIGITS

OFFSET = struct.Struct(">q")
FIELDS = struct.Struct(">iiiiiqqi")  # size, magic, crc, queue id, flag, queue offset, log offset, sys flag
MAGICS = (struct.pack(">i", MAGIC_V1), struct.pack(">i", MAGIC_V2))
ZEROS = bytes(1 << 20)
BATCH = 1000  # records of one scan


class Kind(Enum):
    """Kind of a piece of the log: record, blank, damaged or unused bytes."""

    RECORD = auto()
    BAD_CRC = auto()  # a record whose body does not match its checksum, with records behind it
    BLANK = auto()  # the end of a full file
    DAMAGE = auto()  # bytes that are no record, with records behind them
    TAIL = auto()  # bytes behind the last record, not all zero
    EMPTY = auto()  # zeros behind the last record


@dataclass(frozen=True, slots=True)
class LogPart:
    """One file of the log: the log offset of its first byte, its size and path."""

    start: int
    size: int
    path: str

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(slots=True)
class Fields:
    """Fields of a record that its queue and the index need."""

    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


@dataclass(slots=True)
class Piece:
    """A piece of the log: a record, or the bytes between two. `buffer` is valid until the next piece."""

    kind: Kind
    offset: int
    size: int
    buffer: Buffer = b""
    position: int = 0
    fields: Fields | None = None  # of a record, whatever its checksum

    @property
    def end(self) -> int:
        return self.offset + self.size


def log_parts(directory: str, disk: Disk) -> list[LogPart]:
    return [
        LogPart(int(entry.name), entry.size, f"{directory}/{entry.name}")
        for entry in disk.entries(directory)
        if not entry.is_dir and len(entry.name) == NAME_DIGITS and entry.name.isdecimal()
    ]


def walk(parts: list[LogPart], disk: Disk) -> Iterator[Piece]:
    """Yields pieces that cover every byte of these log files, in order."""
    unknown: list[Piece] = []  # damage if a record follows, otherwise the tail of the log
    for part in parts:
        if part.size == 0:
            continue
        mapped = disk.open_mapped(part.path, writable=False)
        try:
            for piece in _walk_file(mapped.buffer, part):
                if piece.kind in (Kind.DAMAGE, Kind.BAD_CRC, Kind.EMPTY):
                    fields = _fields_of(piece) if piece.kind is Kind.BAD_CRC else None
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


def _fields_of(piece: Piece) -> Fields:
    buffer, position = piece.buffer, piece.position
    size, magic, _, queue_id, _, queue_offset, _, sys_flag = FIELDS.unpack_from(buffer, position)
    head = HEADS[sys_flag & HOSTS_MASK]
    store_timestamp, body_size = head.unpack_from(buffer, position)[10::4]
    topic_at = position + head.size + body_size
    if magic == MAGIC_V1:
        topic_size = buffer[topic_at]
        topic_at += 1
    else:
        (topic_size,) = I16.unpack_from(buffer, topic_at)
        topic_at += 2
    topic_end = topic_at + topic_size
    topic = bytes(buffer[topic_at:topic_end]).decode("utf-8", "replace")
    properties = bytes(buffer[topic_end + 2 : position + size])
    return Fields(topic, queue_id, queue_offset, sys_flag, store_timestamp, properties)


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
        kind, size = _look(buffer, position, part)
        if size < 0:
            size = _next_record(buffer, position + 1, part) - position
            kind = Kind.EMPTY if _is_zero(buffer, position, position + size) else Kind.DAMAGE
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


def _look(buffer: Buffer, position: int, part: LogPart) -> tuple[Kind, int]:
    """Returns kind and size of what is at a position; size -1: neither a record nor a blank."""
    kind, size = Kind.RECORD, measure(buffer, position, part.size, True)
    if size == 0:
        return Kind.BLANK, part.size - position
    if size < 0:
        kind, size = Kind.BAD_CRC, measure(buffer, position, part.size, False)
    if size > 0 and OFFSET.unpack_from(buffer, position + PHYSICAL_OFFSET_AT)[0] != part.start + position:
        return kind, -1  # its offset is another: a left-over of an earlier use of the file
    return kind, size


def _next_record(buffer: Buffer, position: int, part: LogPart) -> int:
    """Returns the position of the next whole record that names its own offset; the file's size: none."""
    found = [part.size]
    for magic in MAGICS:
        at = position + 3
        while (at := _find(buffer, magic, at + 1)) >= 0:
            kind, size = _look(buffer, at - 4, part)
            if kind is Kind.RECORD and size > 0:
                found.append(at - 4)
                break
    return min(found)


def part_of(disk: Disk, path: str, at: int, length: int) -> bytes:
    """Returns `length` bytes of a file, fewer at its end; none if the file is empty or deleted."""
    try:
        mapped = disk.open_mapped(path, writable=False)
    except (FileNotFoundError, ValueError):
        return b""
    try:
        return bytes(mapped.buffer[at : at + length])
    finally:
        mapped.close()


def _find(buffer: Buffer, pattern: bytes, start: int) -> int:
    assert not isinstance(buffer, memoryview), "files are mapped, not viewed"
    return buffer.find(pattern, start)


def _is_zero(buffer: Buffer, begin: int, end: int) -> bool:
    for at in range(begin, end, len(ZEROS)):
        stop = min(at + len(ZEROS), end)
        if buffer[at:stop] != ZEROS[: stop - at]:
            return False
    return True
