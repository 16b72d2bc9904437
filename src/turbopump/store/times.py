"""Messages by store time: which message of a queue was stored at or around a time.

Entries carry no time, so each step of the bisection reads the store time of one record in the log. Times are
assumed to rise along a queue; where a clock went back, the answer is as good as Apache's.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from turbopump.protocol.record import Buffer
from turbopump.runtime.disk import Disk, Workers
from turbopump.store.commit_log import CommitLog
from turbopump.store.consume_queue import ConsumeQueue

SYS_FLAG_AT = 36
BORN_V6 = 0x10
SYS_FLAG = struct.Struct(">i")
TIMESTAMP = struct.Struct(">q")
STORE_TIMESTAMP_AT = 56  # 12 further when the born host is IPv6
PROBED = 76


class Boundary(Enum):
    """Which message a search by time returns: LOWER first at or after it, UPPER last at or before it."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class Readable(Protocol):
    """Protocol of a log whose bytes can be read by log offset."""

    def read(self, offset: int, size: int) -> bytes | None: ...


class MessageTimes:
    """Store times of messages, and messages by store time."""

    def __init__(self, log: CommitLog, disk: Disk, workers: Workers) -> None:
        self._log = log
        self._disk = disk
        self._workers = workers

    def offset_by_time(self, queue: ConsumeQueue, time_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Returns a queue offset by store time: LOWER first at or after it, UPPER last at or before it."""
        return offset_by_time(self._log, queue, time_ms, boundary)

    def store_time(self, queue: ConsumeQueue, offset: int) -> int:
        """Returns the store time of the message at a queue offset; -1 when it is not there."""
        return store_time(self._log, queue, offset)

    def earliest(self, queue: ConsumeQueue) -> int:
        """Returns the store time of the first message of a queue; -1 when it has none."""
        return store_time(self._log, queue, queue.min_offset)

    async def read(self, offsets: list[int]) -> dict[int, int]:
        """Returns the store times of the records that begin at these log offsets; -1: no such record.

        Old records come from the disk, so they are read in a worker thread.
        """
        log = self._log
        places = {
            offset: (log.files.path(offset - offset % log.file_size), offset % log.file_size)
            for offset in offsets
            if log.min_offset <= offset < log.committed
        }
        found = await self._workers.run(read_times, self._disk, places) if places else {}
        return {offset: found.get(offset, -1) for offset in offsets}

    async def stored_since(self, time_ms: int) -> int:
        """Returns the start of the log file from which on records stored at `time_ms` or later can be."""
        firsts = {start: self._log.first_record(start) for start in self._log.files.starts}
        times = await self.read(list(firsts.values()))
        before = [start for start, first in firsts.items() if 0 < times[first] < time_ms]
        return before[-1] if before else self._log.min_offset


def offset_by_time(
    log: Readable, queue: ConsumeQueue, time_ms: int, boundary: Boundary = Boundary.LOWER
) -> int:
    """Returns a queue offset by store time: LOWER first at or after it, UPPER last at or before it.

    Where there is none, LOWER gives the end of the queue and UPPER its first message.
    """
    low, high = queue.min_offset, queue.max_offset
    times = _Times(log, queue)
    if boundary is Boundary.LOWER:
        return bisect_left(times, time_ms, low, high)
    return max(low, bisect_right(times, time_ms, low, high) - 1)


def store_time(log: Readable, queue: ConsumeQueue, offset: int) -> int:
    """Returns the store time of the message at a queue offset; -1 when it is not there."""
    entry = queue.entry(offset)
    return -1 if entry is None else record_time(log, entry[0])


def record_time(log: Readable, physical: int) -> int:
    """Returns the store time of the record at a log offset; -1 when the log does not reach there."""
    head = log.read(physical, PROBED)
    if head is None:
        return -1
    return timestamp_at(head, 0)


def read_times(disk: Disk, places: Mapping[int, tuple[str, int]]) -> dict[int, int]:
    """Reads the store times of records from the given files and positions, blocking; -1: deleted.

    Uses no map of the log, so it can run in a worker thread.
    """
    return {offset: _time_in_file(disk, *place) for offset, place in places.items()}


def _time_in_file(disk: Disk, path: str, position: int) -> int:
    try:
        file = disk.open_plain(path)
        try:
            head = file.read_at(position, PROBED)
        finally:
            file.close()
    except FileNotFoundError:  # too old: deleted meanwhile
        return -1
    return timestamp_at(head, 0) if len(head) == PROBED else -1


def timestamp_at(buffer: Buffer, position: int) -> int:
    """Returns the store time of the record at a position of a buffer."""
    shift = 12 if SYS_FLAG.unpack_from(buffer, position + SYS_FLAG_AT)[0] & BORN_V6 else 0
    timestamp: int = TIMESTAMP.unpack_from(buffer, position + STORE_TIMESTAMP_AT + shift)[0]
    return timestamp


class _Times:
    """Sequence view of a queue for `bisect`: item n is the store time of the message at queue offset n."""

    def __init__(self, log: Readable, queue: ConsumeQueue) -> None:
        self._log = log
        self._queue = queue

    def __len__(self) -> int:
        return self._queue.max_offset

    def __getitem__(self, offset: int) -> int:
        return store_time(self._log, self._queue, offset)
