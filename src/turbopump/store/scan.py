"""Reads the log record by record, as recovery does: 3 us for a record of 1 KiB.

In: a buffer that holds a whole file. Out: the fields of each record that dispatching needs, until the first
bytes that are no record. A record is accepted as `protocol.record.measure` accepts it, and its stored log
offset must be where it lies. The usual record, with short topic and IPv4 hosts, is read by a shorter loop; a
property test checks that both accept the same records.
"""

import contextlib
import struct
from collections.abc import Callable

from turbopump.protocol.checksum import crc32
from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.properties import SECTOR
from turbopump.protocol.record import BLANK as BLANK_MAGIC
from turbopump.protocol.record import (
    HEAD_V4,
    HEADS,
    I16,
    MAGIC_V1,
    MAX_TOPIC_V1,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET_AT,
    Buffer,
    Record,
    decode,
    measure,
)
from turbopump.protocol.sysflag import COMMIT, HOSTS_MASK, TRANSACTION_MASK
from turbopump.runtime.disk import Buffer as MappedBuffer
from turbopump.store.commit_log import BLANK_HEAD, CommitLog
from turbopump.store.dispatch import Found

HEAD_SIZE = HEAD_V4.size
OFFSET = struct.Struct(">q")
SIZE = struct.Struct(">i")
ORIGIN_BACK = 12  # from the end of the head: the prepared transaction offset, then the body's length
_WALKED = struct.Struct(">ii20xqi")  # size, magic, log offset, sys flag

NO_RECORD = -1
BLANK = 0


def scan(
    buffer: Buffer, start: int, position: int, limit: int, check_crc: bool, each: Callable[[Found], None]
) -> tuple[int, int]:
    """Calls `each` for the records from `position` on; returns the position after, and BLANK or NO_RECORD.

    The second result is what was found at that position. `start`: log offset of the buffer's first byte.
    """
    unpack_head, unpack_short = HEAD_V4.unpack_from, I16.unpack_from
    while position + MIN_RECORD_SIZE <= limit:
        (
            size, magic, crc, queue_id, _, queue_offset, physical, sys_flag,
            _, _, store_timestamp, _, _, _, body_size,
        ) = unpack_head(buffer, position)  # fmt: skip
        if magic != MAGIC_V1 or sys_flag & HOSTS_MASK:
            found = unusual(buffer, start, position, limit, check_crc)
            if isinstance(found, int):
                return position, found
            each(found)
            position += found[4]
            continue
        topic_at = HEAD_SIZE + body_size
        if physical != start + position or body_size < 0 or topic_at + 3 > size or position + size > limit:
            return position, NO_RECORD
        record = buffer[position : position + size]
        topic_size = record[topic_at]
        properties_at = topic_at + topic_size + 3
        if (
            topic_size > MAX_TOPIC_V1
            or properties_at > size
            or unpack_short(record, properties_at - 2)[0] != size - properties_at
            or (check_crc and body_size and crc32(record[HEAD_SIZE:topic_at]) & 0x7FFFFFFF != crc)
        ):
            return position, NO_RECORD
        topic = record[topic_at + 1 : properties_at - 2]
        each(
            (
                bytes(topic), queue_id, queue_offset, physical, size, sys_flag, store_timestamp,
                bytes(record[properties_at:]),
            )
        )  # fmt: skip
        position += size
    return position, measure_at(buffer, start, position, limit, check_crc)


def scan_one(buffer: Buffer, start: int, position: int, limit: int, each: Callable[[Found], None]) -> None:
    """Calls `each` for the record at a position, if there is one; its checksum was looked at before."""
    if position + MIN_RECORD_SIZE > limit:
        return
    (size,) = SIZE.unpack_from(buffer, position)
    if size >= MIN_RECORD_SIZE:  # the loop below ends behind this record
        scan(buffer, start, position, min(position + size, limit), False, each)


def references(log: CommitLog, at: int, count: int) -> tuple[list[int], int]:
    """Returns the "prepared transaction offsets" that the next `count` records name, and where to continue.

    The second result is a log offset. 0.6 us a record: the log is known to be whole here.
    """
    found: list[int] = []

    def look(buffer: Buffer, position: int, size: int, sys_flag: int) -> None:
        (origin,) = OFFSET.unpack_from(buffer, position + HEADS[sys_flag & HOSTS_MASK].size - ORIGIN_BACK)
        if origin or sys_flag & TRANSACTION_MASK == COMMIT:  # the first record of a log is at 0
            found.append(origin)

    return found, _each(log, at, count, look)


def carrying(log: CommitLog, mark: bytes, at: int, count: int) -> tuple[list[Record], int]:
    """Returns those of the next `count` records with `mark` in their properties, and where to continue."""
    found: list[Record] = []

    def look(buffer: Buffer, position: int, size: int, sys_flag: int) -> None:
        assert not isinstance(buffer, memoryview), "files are mapped, not viewed"
        if buffer.find(mark, position, position + size) >= 0:
            with contextlib.suppress(BrokenRecord):
                record = decode(buffer, position)
                if mark in record.properties:
                    found.append(record)

    return found, _each(log, at, count, look)


def _each(log: CommitLog, at: int, count: int, look: Callable[[Buffer, int, int, int], None]) -> int:
    """Calls `look` for the next `count` records and returns the offset to continue from.

    `at` may come from a damaged file: if no record begins there, the next one is taken. In a log of entries
    it may be the offset of an entry or of the record in it.
    """
    at = max(at, log.min_offset)
    while count > 0 and at < log.committed:
        position = at % log.file_size
        base = at - position
        buffer = log.files.mapped(base).buffer
        limit = min(log.file_size, log.committed - base)
        while count > 0 and position + MIN_RECORD_SIZE <= limit:
            position += log.head_before(buffer, position)
            if position + MIN_RECORD_SIZE > limit:
                break
            size, magic, physical, sys_flag = _WALKED.unpack_from(buffer, position)
            if magic == BLANK_MAGIC:
                break
            if physical != base + position or not MIN_RECORD_SIZE <= size <= limit - position:
                position = _next_begin(log, buffer, base, position, limit)
                continue
            look(buffer, position, size, sys_flag)
            position += size
            count -= 1
        at = base + position if count == 0 else base + log.file_size
    return min(at, log.committed)


def _next_begin(log: CommitLog, buffer: MappedBuffer, start: int, position: int, limit: int) -> int:
    """Returns the position of the first record after `position`, walking from the start; `limit`: none."""
    at = log.head_before(buffer, 0)
    while at <= position:
        size = measure_at(buffer, start, at, limit, check_crc=False)
        if size <= 0:
            return limit
        at += size
        at += log.head_before(buffer, at) if at < limit else 0
    return at


def is_torn(found: Found, log: CommitLog) -> bool:
    """Whether a part of the record's topic or properties never reached the medium.

    No checksum covers them, but a new file consists of zeros. A sector that is missing reads as zeros, with
    its neighbours in it; senders may send zeros too, but enough of them to fill a sector are refused
    (`looks_lost`). A sector that was written before the end of the record was copied to it ends in zeros:
    properties with a zero at their end are refused too, and of those in a log of Apache's only one with
    nothing behind it counts.
    """
    topic, _, _, physical, size, _, store_timestamp, properties = found
    if store_timestamp == 0 or 0 in topic:
        return True
    if 0 not in properties:
        return False
    position = physical % log.file_size
    buffer, end = log.files.mapped(physical - position).buffer, position + size
    if properties.endswith(b"\0") and not any(buffer[end : end + BLANK_HEAD.size]):
        return True
    begin = end - len(properties)
    return not all(any(buffer[at : at + SECTOR]) for at in range(begin - begin % SECTOR, end, SECTOR))


def unusual(buffer: Buffer, start: int, position: int, limit: int, check_crc: bool) -> Found | int:
    """Decodes the fields of the record, of any kind, at a position; else returns BLANK or NO_RECORD."""
    size = measure_at(buffer, start, position, limit, check_crc)
    if size <= 0:
        return size
    record = decode(buffer, position)
    return (
        record.topic.encode(), record.queue_id, record.queue_offset, record.physical_offset, size,
        record.sys_flag, record.store_timestamp, record.properties,
    )  # fmt: skip


def measure_at(buffer: Buffer, start: int, position: int, limit: int, check_crc: bool) -> int:
    """Returns the size of the record at a position; or BLANK, or NO_RECORD."""
    size = measure(buffer, position, limit, check_crc)
    if size > 0 and OFFSET.unpack_from(buffer, position + PHYSICAL_OFFSET_AT)[0] != start + position:
        return NO_RECORD
    return size
