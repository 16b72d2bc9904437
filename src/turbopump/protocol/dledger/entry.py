"""An entry of DLedger's log: as JSON in a push, and as bytes in a data file.

    0   i32 magic 1           24  i64 pos: offset of the entry in the sequence of data files
    4   i32 size = 48 + body  32  i32 channel, 0
    8   i64 index             36  i32 chain checksum, 0
    16  i64 term              40  i32 CRC-32 of the body; Apache writes 0 and never looks at it
    44  i32 length of the body, then the body

The body is a record of the commit log, whose own log offset is pos + 48. After the last entry of a file come
an i32 -1 and an i32 with the bytes left, at least 8. An index file holds a unit of 32 bytes for each entry:
i32 magic, i64 pos, i32 size, i64 index, i64 term.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from turbopump.protocol.bodies.base import Body, always
from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.headers.base import I32, I64
from turbopump.protocol.record import PHYSICAL_OFFSET_AT
from turbopump.protocol.record import Buffer as RecordBuffer

MAGIC = 1
HEAD = struct.Struct(">iiqqqiiii")
HEAD_SIZE = HEAD.size
UNIT = struct.Struct(">iqiqq")
UNIT_SIZE = UNIT.size
END_MARK = struct.Struct(">ii")
END_MAGIC = -1
MIN_BODY_SIZE = PHYSICAL_OFFSET_AT + 8  # up to the field that an append fills in

END_OF_FILE = 0
NO_ENTRY = -1

Buffer: TypeAlias = RecordBuffer
_OFFSET = struct.Struct(">q")
_SIGNED = 1 << 31


class DLedgerEntry(Body):
    """An entry with its place in the log: index, term, and `pos`, the offset of its head."""

    body: bytes = always(b"")
    bodyCrc: I32 = always(0)
    chainCrc: I32 = always(0)
    channel: I32 = always(0)
    index: I64 = always(-1)
    magic: I32 = always(0)
    pos: I64 = always(-1)
    size: I32 = always(0)
    term: I64 = always(-1)


class EntryHead(msgspec.Struct, frozen=True, gc=False):
    """The fields before the body of an entry."""

    magic: int
    size: int
    index: int
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_size: int


class EntryUnit(msgspec.Struct, frozen=True, gc=False):
    """Where an entry lies: one unit of an index file."""

    magic: int
    pos: int
    size: int
    index: int
    term: int


def entry_of(body: bytes, index: int, term: int, pos: int) -> DLedgerEntry:
    """Returns an entry with its size and checksum. The body must hold its own log offset, pos + 48."""
    size = HEAD_SIZE + len(body)
    return DLedgerEntry(body, body_crc(body), index=index, magic=MAGIC, pos=pos, size=size, term=term)


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """Returns the checksum of a body as it is stored: CRC-32 as a signed number; 0 means unknown."""
    crc = zlib.crc32(body)
    return crc - 2 * _SIGNED if crc >= _SIGNED else crc


def pack_entries(out: bytearray, bodies: Sequence[bytes], index: int, term: int, pos: int) -> list[int]:
    """Appends the bytes of entries to `out` and returns where each of them begins, by `pos`.

    The first has this index, term and offset, the others follow. Each record gets its log offset, pos + 48.
    """
    positions = []
    for body in bodies:
        record = bytearray(body)
        _OFFSET.pack_into(record, PHYSICAL_OFFSET_AT, pos + HEAD_SIZE)
        size = HEAD_SIZE + len(record)
        out += HEAD.pack(MAGIC, size, index, term, pos, 0, 0, body_crc(record), len(record))
        out += record
        positions.append(pos)
        index += 1
        pos += size
    return positions


def pack_entry(entry: DLedgerEntry) -> bytes:
    """Returns the bytes of an entry as it is; an unknown checksum is filled in."""
    crc = entry.bodyCrc or body_crc(entry.body)
    head = HEAD.pack(
        *(entry.magic, entry.size, entry.index, entry.term, entry.pos),
        *(entry.channel, entry.chainCrc, crc, len(entry.body)),
    )
    return head + entry.body


def read_entry(buffer: Buffer, position: int, limit: int) -> DLedgerEntry:
    """Decodes the entry at a position, with its checksum. Raises BrokenRecord."""
    head = head_at(buffer, position, limit, check_crc=True)
    if isinstance(head, int):
        raise BrokenRecord(f"no entry at position {position}")
    body = bytes(buffer[position + HEAD_SIZE : position + head.size])
    return DLedgerEntry(
        *(body, head.body_crc, head.chain_crc, head.channel, head.index),
        *(head.magic, head.pos, head.size, head.term),
    )


def read_head(buffer: Buffer, position: int) -> EntryHead:
    """Returns the 48 bytes at a position as the head of an entry, which they may not be."""
    return EntryHead(*HEAD.unpack_from(buffer, position))


def read_unit(buffer: Buffer, position: int) -> EntryUnit:
    """Returns the 32 bytes at a position of an index file as a unit, which they may not be."""
    return EntryUnit(*UNIT.unpack_from(buffer, position))


def is_end_of_file(buffer: Buffer, position: int, limit: int) -> bool:
    """Returns whether a position of a data file holds the mark after its last entry."""
    left = limit - position
    if left < END_MARK.size:
        return False
    magic, size = END_MARK.unpack_from(buffer, position)
    return bool(magic == END_MAGIC and size >= END_MARK.size)


def measure(buffer: Buffer, position: int, limit: int, check_crc: bool) -> int:
    """Returns the size of the entry at a position; END_OF_FILE at the mark, NO_ENTRY for anything else.

    `limit` is where the file ends, or the bytes that may be read. A checksum of 0 is unknown and not checked.
    """
    head = head_at(buffer, position, limit, check_crc)
    return head if isinstance(head, int) else head.size


def head_at(buffer: Buffer, position: int, limit: int, check_crc: bool) -> EntryHead | int:
    """Returns the head of the entry at a position; else END_OF_FILE or NO_ENTRY, as `measure` does."""
    left = limit - position
    if left < END_MARK.size:
        return NO_ENTRY
    magic, size = END_MARK.unpack_from(buffer, position)
    if magic == END_MAGIC:
        return END_OF_FILE if is_end_of_file(buffer, position, limit) else NO_ENTRY
    if magic != MAGIC or not HEAD_SIZE < size <= left:
        return NO_ENTRY
    head = read_head(buffer, position)
    if head.body_size != size - HEAD_SIZE or head.index < 0 or head.term < 0 or head.pos < 0:
        return NO_ENTRY
    if check_crc and head.body_crc:
        body = buffer[position + HEAD_SIZE : position + size]
        if body_crc(body) != head.body_crc:
            return NO_ENTRY
    return head
