"""What the files of a log consist of: pieces, and how to find the next record behind damaged bytes.

In: a directory, or a mapped file. Out: log files as `LogPart`, the kind and size of what is at a position.
`walk.py` makes pieces of whole files out of them.
"""

import struct
from dataclasses import dataclass
from enum import Enum, auto

from turbopump.protocol.record import HEADS, I16, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, Buffer, measure
from turbopump.protocol.sysflag import HOSTS_MASK
from turbopump.runtime.disk import Disk
from turbopump.store.segment import NAME_DIGITS

OFFSET = struct.Struct(">q")
FIELDS = struct.Struct(">iiiiiqqi")  # size, magic, crc, queue id, flag, queue offset, log offset, sys flag
MAGICS = (struct.pack(">i", MAGIC_V1), struct.pack(">i", MAGIC_V2))
ZEROS = bytes(1 << 20)


class Kind(Enum):
    """Kind of a piece of the log: record, blank, damaged or unused bytes."""

    RECORD = auto()
    BAD_CRC = auto()  # a record whose body does not match its checksum, with records behind it
    BLANK = auto()  # the end of a full file
    DAMAGE = auto()  # bytes that are no record, with records behind them
    TAIL = auto()  # bytes behind the last record, not all zero
    EMPTY = auto()  # zeros behind the last record
    ENTRY_HEAD = auto()  # in a log of DLedger: the 48 bytes before a record


@dataclass(frozen=True, slots=True)
class LogPart:
    """One file of the log: the log offset of its first byte, its size and path."""

    start: int
    size: int
    path: str
    holds_entries: bool = False  # of DLedger, with a record in each

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


def fields_of(piece: Piece) -> Fields:
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


def look_at(buffer: Buffer, position: int, part: LogPart) -> tuple[Kind, int]:
    """Returns kind and size of what is at a position; size -1: neither a record nor a blank."""
    kind, size = Kind.RECORD, measure(buffer, position, part.size, True)
    if size == 0:
        return Kind.BLANK, part.size - position
    if size < 0:
        kind, size = Kind.BAD_CRC, measure(buffer, position, part.size, False)
    if size > 0 and OFFSET.unpack_from(buffer, position + PHYSICAL_OFFSET_AT)[0] != part.start + position:
        return kind, -1  # its offset is another: a left-over of an earlier use of the file
    return kind, size


def next_record(buffer: Buffer, position: int, part: LogPart) -> int:
    """Returns the position of the next whole record that names its own offset; the file's size: none."""
    found = [part.size]
    for magic in MAGICS:
        at = position + 3
        while (at := _find(buffer, magic, at + 1)) >= 0:
            kind, size = look_at(buffer, at - 4, part)
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


def is_zero(buffer: Buffer, begin: int, end: int) -> bool:
    for at in range(begin, end, len(ZEROS)):
        stop = min(at + len(ZEROS), end)
        if buffer[at:stop] != ZEROS[: stop - at]:
            return False
    return True
