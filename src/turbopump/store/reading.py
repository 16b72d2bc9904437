"""Reads the records that a pull gets, by the rules and limits of Apache's broker.

In: a queue, an offset, a maximum count, a filter. Out: the records' bytes as they are in the log, neighbours
in one piece, and the offset to continue from. About 15 us for 32 records of 1 KiB.

Old messages are not in memory, and reading their mapped file blocks the whole process until the disk has
answered. A caller that may not block gets NotInMemory instead, has the missing parts read in a worker thread
(`fetch`) and calls again.
"""

import contextlib
import os
import struct
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache

import msgspec

from turbopump.protocol.record import properties_of
from turbopump.runtime.disk import Buffer, Disk, Workers
from turbopump.store.batch_queue import BatchQueue
from turbopump.store.commit_log import CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import BLANK_SIZE, ENTRY, UNIT, ConsumeQueue
from turbopump.store.errors import NotInMemory
from turbopump.store.queue_ext import HIGHEST_ADDRESS, Bits

SCAN_UNITS = 16_000 // UNIT  # entries looked at for one pull, whether the filter accepts them or not
MAX_BYTES = 128 << 20
MIN_ANSWER_BYTES = 100
MATCHED_BYTES = 4 << 20  # of old messages that are read for one pull that filters by properties
MAX_BULK_COUNT = 8_192  # messages in one answer to a bulk pull: 3 ms of the loop
READ_AHEAD = 1 << 20
RECENT_ENTRIES = 300_000  # of a queue that count as in memory, unless an earlier process wrote them
NOTHING = bytearray()
LOG_OFFSET = struct.Struct(">q")  # first field of an entry


Limit = tuple[int, int]
"""Bytes and messages of one answer."""


class GetStatus(Enum):
    """Outcome of a read. The names are Apache's and go into the remark of the response."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9  # set by the broker only, never by a read


class GetResult(msgspec.Struct, gc=False):
    """Result of a read: status, bytes of records, queue offset to continue from, extent of the queue."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    chunks: list[bytes | bytearray] = []
    count: int = 0
    size: int = 0
    is_old: bool = False
    """Whether the last message that was looked at is too old to be in memory: the reader is far behind."""

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


class QueueReader:
    """Reads messages of a queue from the log, and knows which records are in memory."""

    def __init__(self, log: CommitLog, config: StoreConfig, disk: Disk, workers: Workers) -> None:
        self._log = log
        self._disk = disk
        self._workers = workers
        self.written_from = 0
        """Records from this log offset on were written by this process, so they are usually in memory."""
        self.keeps_offsets = False
        """Whether a reader outside of a queue is left where it is, because this store may lack messages.

        So on a slave: what it does not have yet, or has not any more, may be on its master.
        """
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        self._hot_bytes = machine_memory() * config.access_in_memory_ratio // 100
        self._hot = (config.max_bytes_in_memory, config.max_count_in_memory)
        self._cold = (config.max_bytes_on_disk, config.max_count_on_disk)
        self._max_bulk_bytes = config.max_bulk_bytes

    def get(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        max_bytes: int | None = None,
        accepts: Callable[[int], bool] | None = None,
        may_wait: bool = True,
        matches: Callable[[bytes], bool] | None = None,
        most: int = SCAN_UNITS,
        bits: Bits | None = None,
        bulk_bytes: int = 0,
    ) -> GetResult:
        """Reads up to `max_count` messages from queue offset `offset` on, as bytes of records.

        Unless `may_wait`, raises NotInMemory where the disk would block. `accepts` filters by tag code,
        `matches` by the property strings of at most `most` messages; `bits` excludes messages by their bit
        maps before that. `bulk_bytes` raises the limits of one answer.
        """
        low, high = queue.min_offset, queue.max_offset
        outside = _outside(offset, low, high)
        if outside is not None:
            return GetResult(outside[0], offset if self.keeps_offsets else outside[1], low, high)
        hot, cold = self._limits(bulk_bytes)
        if isinstance(queue, BatchQueue):
            hot, cold = _narrowed(hot, max_bytes, hot[1]), _narrowed(cold, max_bytes, cold[1])
            return self._batches(queue, offset, max_count, hot, cold, accepts, may_wait, matches)
        wanted = max(SCAN_UNITS, min(max_count, max(MAX_BULK_COUNT, hot[1], cold[1])))
        count = wanted if accepts else min(wanted, max(max_count, 1))
        if matches:
            count = min(wanted, most)
        if not may_wait and offset < max(queue.known_from, high - RECENT_ENTRIES):
            _look_for_entries(queue, offset, count)
        units = queue.units(offset, count)
        if not units:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)
        hot, cold = _narrowed(hot, max_bytes, max_count), _narrowed(cold, max_bytes, max_count)
        if LOG_OFFSET.unpack_from(units)[0] < self.in_memory_from:
            if matches:
                units, max_seen, max_total = _first(units, MATCHED_BYTES), SCAN_UNITS, MATCHED_BYTES
            else:
                last = LOG_OFFSET.unpack_from(units, len(units) - UNIT)[0]
                max_total, max_seen = hot if self.is_hot(last) else cold
            if not may_wait:
                self._look_for_records(units, max_seen, max_total, accepts)
        return self._scan(queue, units, offset, hot, cold, accepts, matches, bits, (low, high))

    def _limits(self, bulk_bytes: int) -> tuple[Limit, Limit]:
        """Returns the limits (bytes, messages) of one answer: of records in memory, and of those on disk."""
        bulk = min(bulk_bytes, self._max_bulk_bytes)
        if bulk <= self._hot[0]:
            return self._hot, self._cold
        return (bulk, MAX_BULK_COUNT), (bulk, MAX_BULK_COUNT)

    def _batches(
        self,
        queue: BatchQueue,
        offset: int,
        max_count: int,
        hot: Limit,
        cold: Limit,
        accepts: Callable[[int], bool] | None,
        may_wait: bool,
        matches: Callable[[bytes], bool] | None,
    ) -> GetResult:
        """Reads whole records of a batch queue with up to `max_count` messages, but at least one record."""
        found = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset, [])
        looked_at = 0
        for physical, size, tags_code, first, messages in queue.covered(offset, SCAN_UNITS):
            most_bytes, most = hot if self.is_hot(physical) else cold
            is_full = found.count + messages > max_count or found.count >= most
            if found.count and (is_full or found.size + size > most_bytes):
                break
            if looked_at > MATCHED_BYTES:
                break
            found.is_old = not self.is_hot(physical)
            if accepts is None or accepts(tags_code):
                looked_at += size
                if not may_wait and (missing := self.missing([(physical, size)])):
                    raise NotInMemory(missing)
                self._take(found, physical, size, messages, matches)
            found.next_offset = first + messages
        if found.next_offset == offset:
            found.status = GetStatus.OFFSET_FOUND_NULL
        return found

    def _take(
        self,
        found: GetResult,
        physical: int,
        size: int,
        messages: int,
        matches: Callable[[bytes], bool] | None,
    ) -> None:
        data = self._log.read(physical, size)
        if data is None:
            if not found.count:
                found.status = GetStatus.MESSAGE_WAS_REMOVING
        elif matches is None or matches(properties_of(data, 0)):
            found.status = GetStatus.FOUND
            found.chunks.append(data)
            found.count += messages
            found.size += size

    def _look_for_records(
        self, units: bytes, max_count: int, max_total: int, accepts: Callable[[int], bool] | None
    ) -> None:
        in_memory_from = self.in_memory_from
        wanted: list[tuple[int, int]] = []
        total = 0
        for physical, size, tags_code in ENTRY.iter_unpack(units):
            is_full = len(wanted) >= max(max_count, 1) or total > max_total
            if physical >= in_memory_from or is_full:
                break
            if accepts is None or tags_code <= HIGHEST_ADDRESS or accepts(tags_code):
                wanted.append((physical, size))
                total += size
        if missing := self.missing(wanted):
            raise NotInMemory(missing)

    def properties(self, queue: ConsumeQueue, offset: int) -> bytes:
        """Returns the property string of the message at a queue offset; empty when it is not there."""
        entry = queue.entry(offset)
        found = self._log.locate(entry[0]) if entry is not None else None
        return properties_of(*found) if found is not None else b""

    def begins_in_memory(self, queue: ConsumeQueue) -> bool:
        """Whether the very first message of a queue is still there, and recent enough to be in memory."""
        first = queue.entry(0) if queue.min_offset == 0 < queue.max_offset else None
        return first is not None and self.is_hot(first[0])

    async def fetch(self, places: list[tuple[str, int, int]]) -> None:
        """Reads the places that NotInMemory named into the page cache, in a worker thread."""
        await self._workers.read(fetch, self._disk, places)

    async def bring(self, records: Iterable[tuple[int, int]]) -> None:
        """Brings these records (log offset, size) into memory, so that looking them up does not block.

        A failing disk is ignored here: the look-up will raise.
        """
        places = self.missing(records)
        if places:
            with contextlib.suppress(OSError):
                await self.fetch(places)

    @property
    def in_memory_from(self) -> int:
        """Log offset from which on records are taken to be in memory."""
        return max(self.written_from, self._log.committed - self._hot_bytes)

    def missing(self, records: Iterable[tuple[int, int]]) -> list[tuple[str, int, int]]:
        """Returns which of these records (log offset, size) are not in memory, as places for `fetch`."""
        log, in_memory_from = self._log, self.in_memory_from
        found = []
        for physical, size in records:
            at = physical % log.file_size
            is_old = log.min_offset <= physical < in_memory_from and 0 < size <= log.file_size - at
            if is_old and not log.files.mapped(physical - at).is_cached(at, size):
                found.append((log.files.path(physical - at), at, size))
        return found

    def is_hot(self, physical: int) -> bool:
        """Whether a record is recent enough to be in memory, probably."""
        return physical >= self._log.committed - self._hot_bytes

    def _scan(
        self,
        queue: ConsumeQueue,
        units: bytes,
        offset: int,
        hot: Limit,
        cold: Limit,
        accepts: Callable[[int], bool] | None,
        matches: Callable[[bytes], bool] | None,
        bits: Bits | None,
        bounds: tuple[int, int],
    ) -> GetResult:
        """Collects the records that the entries in `units` point to, within the limits.

        Neighbouring records are copied in one piece: most of the time of a pull is spent here.
        """
        log = self._log
        log_min, log_end, file_size = log.min_offset, log.committed, log.file_size
        hot_from = log_end - self._hot_bytes
        status = GetStatus.NO_MATCHED_MESSAGE
        chunks: list[bytes | bytearray] = []
        count = total = 0
        is_cold = True
        chooses = accepts is not None or bits is not None
        byte_limit, count_limit = cold
        buffer: Buffer = NOTHING
        base = top = -1  # `buffer` holds the log in [base, top)
        skip_below = -1  # entries that point below this offset point into a file that is gone
        begin = end = -1  # [begin, end): accepted neighbours that are not copied yet
        for physical, size, tags_code in ENTRY.iter_unpack(units):
            # Log offsets rise along a queue: after the first recent record all are recent.
            if is_cold and physical >= hot_from:
                is_cold = False
                byte_limit, count_limit = hot
            # The first record is returned however large it is, or the reader would never get past it.
            if count and (count >= count_limit or total + size > byte_limit):
                break
            offset += 1
            if chooses:
                is_address = tags_code <= HIGHEST_ADDRESS
                if bits is not None and is_address and queue.excludes(tags_code, bits):
                    continue
                if is_address:
                    tags_code = queue.tags_code(tags_code)
                # None: the extension file is gone. The message is returned; clients filter tags as well.
                if accepts is not None and tags_code is not None and not accepts(tags_code):
                    continue
            # The record is not in the part of the log that is at hand: usually it begins another file.
            if not base <= physical < physical + size <= top:
                if begin >= 0:
                    chunks.append(buffer[begin - base : end - base])
                    begin = end = -1
                if physical < skip_below:
                    continue
                base = physical - physical % file_size
                top = min(base + file_size, log_end)
                if physical < log_min or size <= 0 or physical + size > top:
                    base = top = -1
                    if size != BLANK_SIZE:
                        status = GetStatus.MESSAGE_WAS_REMOVING
                        # The whole file is gone, and with it what the next entries point to. A size of 0 or
                        # less is a damaged entry, which says nothing about others.
                        if size > 0:
                            skip_below = physical - physical % file_size + file_size
                    continue
                buffer = log.files.mapped(base).buffer
            if matches is not None and not matches(properties_of(buffer, physical - base)):
                continue
            # Not the neighbour of the last accepted record: copy what was collected, begin a new piece.
            if physical != end:
                if begin >= 0:
                    chunks.append(buffer[begin - base : end - base])
                begin = physical
            end = physical + size
            count += 1
            total += size
        if begin >= 0:
            chunks.append(buffer[begin - base : end - base])
        if count:
            status = GetStatus.FOUND
        return GetResult(status, offset, bounds[0], bounds[1], chunks, count, total, is_cold)


def fetch(disk: Disk, places: list[tuple[str, int, int]]) -> None:
    """Reads parts (path, position, length) of files, and what follows, into the page cache. Blocks."""
    for path, position, length in places:
        try:
            file = disk.open_plain(path)
        except FileNotFoundError:  # deleted meanwhile: the next read reports it
            continue
        try:
            file.read_ahead(position, READ_AHEAD)
            file.read_at(position, length)
        finally:
            file.close()


def _first(units: bytes, max_total: int) -> bytes:
    """Returns the first entries whose messages have at most `max_total` bytes together, at least one."""
    total = seen = 0
    for _, size, _ in ENTRY.iter_unpack(units):
        total += size
        if seen and total > max_total:
            break
        seen += 1
    return units[: seen * UNIT]


def _look_for_entries(queue: ConsumeQueue, offset: int, count: int) -> None:
    place = queue.place(offset, count)
    if place is not None and not place[0].is_cached(*place[1:]):
        file, position, length = place
        raise NotInMemory([(file.path, position, length)])


def _outside(offset: int, low: int, high: int) -> tuple[GetStatus, int] | None:
    """Returns status and next offset for an offset outside of the queue; None when it is inside."""
    if low <= offset < high:
        return None
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    return GetStatus.OFFSET_OVERFLOW_BADLY, high


def _narrowed(limit: Limit, max_bytes: int | None, max_count: int) -> Limit:
    """Returns the limit (bytes, messages) reduced to the `max_bytes` and `max_count` of a pull."""
    asked = MAX_BYTES if max_bytes is None else min(max(max_bytes, MIN_ANSWER_BYTES), MAX_BYTES)
    return min(limit[0], asked), min(limit[1], max_count)


@cache
def machine_memory() -> int:
    """Returns the bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
