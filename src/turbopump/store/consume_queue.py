"""Consume queues: for each queue of a topic, where in the log its messages are.

In: one entry per message, in order. Out: entries by queue offset, and the first and last offset. New entries
wait in memory and are written many at a time, so that an idle queue holds no descriptor and a busy one needs
no map. Entries that are lost with the process are rebuilt from the log.

    entry   i64 log offset | i32 record size | i64 tag code: 20 bytes
    file    named by its first byte's position in the queue, always of full size, zeros after the last entry

A queue whose first message here has offset n > 0 begins inside a file: the entries before it are blank
(0, 2^31-1, 0).
"""

import struct
from bisect import bisect_left
from typing import Protocol

from turbopump.protocol.errors import MessageIllegal
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import LIGHT_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from turbopump.protocol.record import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1
from turbopump.runtime.disk import PlainFile
from turbopump.store.queue_end import Entry, boundary, chain_length
from turbopump.store.queue_ext import Bits, Extension, is_address

ENTRY = struct.Struct(">qiq")
UNIT = ENTRY.size
BLANK_SIZE = 0x7FFFFFFF
BLANK_ENTRY = ENTRY.pack(0, BLANK_SIZE, 0)
NO_ENTRY = bytes(UNIT)
WRITE_CHUNK = 1 << 16
SWEEP_CHUNK = 1 << 12
MAX_QUEUE_OFFSET = 1 << 40  # offset of a queue
MAX_GAP, MAX_GAP_FILES = 1_000_000, 1000  # entries, and files that they would fill

FIXED_PART = 91  # of a record: 88 bytes of head, 1 for the topic's length, 2 for the properties'
MAX_TOPIC = 127
MAX_RETRY_TOPIC = 255  # only of %RETRY% topics, as in Apache 5.x; 4.9 cannot read such records


class QueueContext(Protocol):
    """Protocol: what a consume queue needs of the store: its files, and facts from the log."""

    dirty: "dict[ConsumeQueue, None]"
    fresh: "set[ConsumeQueue]"
    to_sync: set[str]

    extends: bool  # tag codes of new entries go to extension files
    heals: bool  # after a crash: files may have left-overs behind the last entry
    trusted_below: int  # entries that point there or behind may be left-overs

    def size_of_files(self, of_batches: bool) -> int: ...
    def log_min(self) -> int: ...
    def counted(self, physical: int) -> tuple[int, int]: ...
    def confirms(self, topic: str, queue_id: int, queue_offset: int, entry: tuple[int, int, int]) -> bool: ...
    def begin(self, topic: str, queue_id: int) -> None: ...
    def extension(self, topic: str, queue_id: int) -> Extension: ...
    def described(self, topic: str, physical: int) -> tuple[int, bytes]: ...
    def file_starts(self, topic: str, queue_id: int) -> list[int]: ...
    def open_file(self, queue: "ConsumeQueue", start: int, create: bool) -> PlainFile | None: ...
    def remove_file(self, topic: str, queue_id: int, start: int, durably: bool = True) -> None: ...
    def remove_files(self, topic: str, queue_id: int) -> None: ...


class ConsumeQueue:
    """One queue of a topic: the positions of its messages in the log.

    `next_offset` is given to the next message that is appended; `max_offset` is the end that readers see,
    which lags behind while messages wait for their sync.
    """

    layout = ENTRY
    unit = UNIT
    is_batch = False  # see `batch_queue.py`

    __slots__ = (
        "_base",
        "_context",
        "_ext",
        "_file_size",
        "_floor",
        "_floor_for",
        "_written",
        "counted",
        "fixed_size",
        "is_deleted",
        "is_light",
        "is_plain",
        "known_from",
        "last_physical",
        "magic",
        "next_offset",
        "put_bytes",
        "queue_id",
        "tail",
        "topic",
        "topic_field",
        "topic_hash",
    )

    def __init__(self, context: QueueContext, topic: str, queue_id: int) -> None:
        name = topic.encode()
        self.topic = topic
        self.queue_id = queue_id
        if len(name) <= MAX_TOPIC_V1:
            self.magic, self.topic_field = MAGIC_V1, bytes((len(name),)) + name
        else:
            self.magic, self.topic_field = MAGIC_V2, struct.pack(">h", len(name)) + name
        self.fixed_size = FIXED_PART - 1 + len(self.topic_field)
        self.topic_hash = java_hash(topic + "#")  # hashes of index keys are extended from it
        # Plain queues are written by the short loop of `append.py`.
        self.is_plain = self.magic == MAGIC_V1 and topic != SCHEDULE_TOPIC and not context.extends
        self.is_deleted = False
        # The messages of a light queue belong to other topics (`light_queues.py`).
        self.is_light = topic.startswith(LIGHT_PREFIX)
        self.tail = bytearray()  # entries not written yet
        self.last_physical = -1  # log offset of the last entry
        self._context = context
        self._file_size = context.size_of_files(self.is_batch)
        self._ext: Extension | None = None
        self._base = -1  # queue offset at which the first file starts; -1: no file
        self._written = 0  # queue offset of the first entry in `tail`
        self._floor_for = -1
        self._floor = 0
        self._load()
        self.next_offset = self.counted = self.known_from = self.max_offset
        """Entries from `known_from` on were written by this process, so they are usually in memory."""
        # Opened here, because an append that has begun must not wait for the disk.
        if context.extends and not self.is_batch and not self.is_light:
            self._extension.open(self._last_address)
        self.put_bytes = 0  # of messages from `counted` on: see `ConsumeQueues.take_counts`

    # extent

    @property
    def max_offset(self) -> int:
        return self._written + len(self.tail) // UNIT

    @property
    def _end(self) -> int:
        """The number of the next entry."""
        return self._written + len(self.tail) // self.unit

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message that is still in the log; `max_offset` when there is none."""
        log_min = self._context.log_min()
        if self._floor_for != log_min:
            self._floor_for, self._floor = log_min, self.first_at_or_after(log_min)
        return self._floor

    @property
    def max_gap(self) -> int:
        """Largest plausible number of missing entries; a record further ahead has a damaged queue offset.

        An empty queue may begin anywhere, since no gap has to be filled: earlier messages may have left the
        log.
        """
        if self._base < 0 and not self.tail:
            return MAX_QUEUE_OFFSET
        return min(MAX_GAP, MAX_GAP_FILES * (self._file_size // self.unit))

    @property
    def is_empty(self) -> bool:
        """Whether no message of the queue is left in the log, and none waits to become visible."""
        return self.min_offset >= self.next_offset

    def units(self, offset: int, count: int) -> bytes:
        """Returns up to `count` entries from `offset` on, all of one file, as bytes."""
        position = offset * self.unit
        room = self._file_size - position % self._file_size
        length = min(count * self.unit, room)
        in_files = min(length, self._written * self.unit - position)
        if in_files <= 0:
            at = position - self._written * self.unit
            return bytes(self.tail[at : at + length])
        if self._base < 0 or offset < self._base:
            return b""
        found = self._read(position, in_files)
        if len(found) < in_files:
            return found[: len(found) // self.unit * self.unit]
        return found + self.tail[: length - in_files] if in_files < length else found

    def place(self, offset: int, count: int) -> tuple[PlainFile, int, int] | None:
        """Returns file, position and length (bytes) of up to `count` entries; None: not in a file (yet)."""
        position = offset * self.unit
        in_files = min(count * self.unit, self._written * self.unit - position)
        at = position % self._file_size
        if in_files <= 0 or self._base < 0 or offset < self._base:
            return None
        file = self._context.open_file(self, position - at, create=False)
        return None if file is None else (file, at, min(in_files, self._file_size - at))

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Returns log offset, record size and tag code of a message; None when there is no entry."""
        found = self._entry(offset)
        return None if found is None else (found[0], found[1], found[2])

    def _entry(self, number: int) -> Entry | None:
        if not 0 <= number < self._end:
            return None
        unit, ahead = self.unit, number - self._written
        if ahead >= 0:
            return self.layout.unpack_from(self.tail, ahead * unit)
        found = self._read(number * unit, unit) if 0 <= self._base <= number else b""
        return self.layout.unpack(found) if len(found) == unit else None

    def behind(self, offset: int, units: bytes) -> int:
        """Returns the queue offset that follows the entries `units`, the first of which is at `offset`."""
        return offset + len(units) // UNIT

    def next_file_offset(self, offset: int) -> int:
        per_file = self._file_size // self.unit
        return offset - offset % per_file + per_file

    def first_at_or_after(self, physical: int) -> int:
        """Returns the first queue offset at log offset `physical` or later; `max_offset` if there is none."""
        return self._first(physical)

    def _first(self, physical: int) -> int:
        """Returns the number of the first entry pointing to log offset `physical` or later; `_end`: none."""
        if self.last_physical < physical:
            return self._end
        return bisect_left(_Pointers(self), physical, max(self._base, 0), self._end)

    def tags_code(self, stored: int) -> int | None:
        """Returns the tag code for an entry's field, which may be an extension address; None: not found."""
        return self._extension.tags_code(stored) if is_address(stored) else stored

    def excludes(self, stored: int, bits: Bits) -> bool:
        """Returns whether an entry's extension bit map shows that a group's filter rejects the message."""
        return bits.exclude(self._extension.unit(stored))

    @property
    def _extension(self) -> Extension:
        if self._ext is None:
            self._ext = self._context.extension(self.topic, self.queue_id)
        return self._ext

    # adding

    def put(self, queue_offset: int, physical: int, size: int, tags_code: int) -> bool:
        """Adds a message's entry unless it is there; offset 0 restarts the queue; False: a gap, not added."""
        if physical <= self.last_physical or self.is_deleted:
            return True
        if queue_offset < self.max_offset and not self._gives_way(queue_offset):
            return True
        if queue_offset > self.max_offset:
            return False
        if self._context.extends and not self.is_light:
            tags_code = self._extended(physical, tags_code)
        if not self.tail:
            self._context.dirty[self] = None
        self.tail += ENTRY.pack(physical, size, tags_code)
        self.last_physical = physical
        self.next_offset = max(self.next_offset, self.max_offset)
        return True

    def _gives_way(self, queue_offset: int) -> bool:
        """Drops the entries from `queue_offset` on for a later record with that offset; False: they stay."""
        if not queue_offset or self.last_physical < 0:
            # The topic was deleted and made again, or a crash took the files before an empty one.
            self.clear()
            return True
        if self.last_physical >= self._context.log_min():
            return False  # Apache gave the same offset to two messages: the first keeps it
        # They point to deleted messages, or a power cut left a part of the entry that belongs here.
        number = self._number_of(queue_offset)
        if number is None or number < self._base:
            return False
        self._cut(number)
        return True

    def _number_of(self, queue_offset: int) -> int | None:
        """Returns the number of the entry whose first message has this offset; None if there is none."""
        return queue_offset

    def _extended(self, physical: int, tags_code: int) -> int:
        """Puts a tag code into the extension files and returns its address."""
        return self._extension.put(tags_code, *self._context.described(self.topic, physical))

    @property
    def _last_address(self) -> int | None:
        last = self._entry(self._end - 1)
        return last[2] if last is not None and is_address(last[2]) else None

    def skip_to(self, queue_offset: int) -> None:
        """Makes `queue_offset` the next one; blank entries for lost messages fill the gap before it."""
        if self._base < 0 and not self.tail:
            self._written = queue_offset
        self._floor_for = -1  # without an entry in the log it was the end, which is a blank now
        while (missing := queue_offset - self.max_offset) > 0:
            self.tail += BLANK_ENTRY * min(missing, WRITE_CHUNK)
            self.write_out()

    def write_out(self) -> None:
        """Writes waiting entries to files, without a sync; after OSError (full disk) they keep waiting."""
        if self._ext is not None:
            self._ext.write_out()  # first: an entry must not point at nothing
        while self.tail:
            position = self._written * self.unit
            start = position - position % self._file_size
            if self._base < 0:
                self._begin(start, position)
            length = min(len(self.tail), start + self._file_size - position)
            self._write(start, position - start, self.tail[:length])
            del self.tail[:length]
            self._written += length // self.unit
        self._context.dirty.pop(self, None)
        self._context.fresh.add(self)

    def _begin(self, start: int, position: int) -> None:
        self._context.begin(self.topic, self.queue_id)
        for at in range(start, position, WRITE_CHUNK - WRITE_CHUNK % UNIT):
            count = min(WRITE_CHUNK - WRITE_CHUNK % UNIT, position - at) // UNIT
            self._write(start, at - start, BLANK_ENTRY * count)
        self._base = start // self.unit

    # removing

    def truncate(self, physical: int) -> None:
        """Drops, on disk too, the entries that point to log offset `physical` or later."""
        end = self._first(physical)
        if end < self._end:
            self._cut(end)

    def _cut(self, end: int) -> None:
        """Drops the entries from number `end` on."""
        if end >= self._written:
            del self.tail[(end - self._written) * self.unit :]
        else:
            self.tail.clear()
            self._cut_files(end)
        self._set_end()
        self._cut_extension()

    def _cut_extension(self) -> None:
        """Drops the extension units after that of the last entry; all of them when no entry is left."""
        if not self._end > max(self._base, 0):
            self._extension.clear()
        elif (last := self._last_address) is not None:
            self._extension.open(last)

    def sweep(self) -> None:
        """Zeroes the bytes that a crash may have left after the last entry. No entry may wait in memory."""
        if self._base >= 0:
            self._cut_files(self._written)

    def _cut_files(self, end: int) -> None:
        size, position = self._file_size, end * self.unit
        for start in self._context.file_starts(self.topic, self.queue_id):
            if start >= position and start > self._base * self.unit:
                self._context.remove_file(self.topic, self.queue_id, start)
        self._written = end
        for at in range(position, position - position % size + size, SWEEP_CHUNK):
            length = min(SWEEP_CHUNK, position - position % size + size - at)
            if self._read(at, length) == bytes(length):
                break  # bytes behind this many zeros are never read: entries overwrite them first
            self._write(at - at % size, at % size, bytes(length))

    def delete_first_before(self, log_min: int) -> bool:
        """Removes the first file, never the last, if all its entries point before `log_min`; True: removed.

        After True, the directory has to be synced before the next removal: the files that survive a crash
        must have no gap.
        """
        per_file = self._file_size // self.unit
        if not 0 <= self._base < self._written - per_file:
            return False
        last = self._entry(self._base + per_file - 1)
        if last is not None and last[0] >= log_min:
            return False
        self._context.remove_file(self.topic, self.queue_id, self._base * self.unit, durably=False)
        self._base += per_file
        return True

    def delete_extension_before_first(self) -> None:
        """Removes the extension files that no entry points to any more."""
        first = self.entry(self.min_offset)
        if first is not None and is_address(first[2]):
            self._extension.delete_before(first[2])

    def delete(self) -> None:
        """Marks the queue as deleted: this object drops its waiting entries and takes no new ones."""
        self.is_deleted, self.is_plain = True, False
        self.tail.clear()
        self._context.dirty.pop(self, None)
        self._context.fresh.discard(self)

    def clear(self) -> None:
        """Removes all entries and files of the queue; the next message gets queue offset 0."""
        self._context.remove_files(self.topic, self.queue_id)
        self._extension.clear()
        self.tail.clear()
        self._base, self._written = -1, 0
        self.last_physical = -1
        self._floor_for = -1
        self.next_offset = self.counted = 0

    def _set_end(self) -> None:
        last = self._entry(self._end - 1)
        self.last_physical = last[0] if last else -1
        self.next_offset = self.max_offset
        self._floor_for = -1
        if not self.tail:
            self._context.dirty.pop(self, None)

    # files

    def _load(self) -> None:
        starts = self._context.file_starts(self.topic, self.queue_id)
        if starts:
            self._base = starts[0] // self.unit
            self._written = self._base + len(starts) * self._file_size // self.unit  # as if all were full
            self._written = self._find_end()
            self._set_end()

    def _find_end(self) -> int:
        """Returns the number after the last entry in the files that the log, or the chain, confirms."""
        end, per_file = self._written, self._file_size // self.unit
        while end > self._base:
            end = boundary(self._entry, self._base, end, per_file, self._context.trusted_below)
            last = self._entry(end - 1) if end > self._base else None
            if last is None:
                break
            if not self._is_confirmed(end - 1, last):
                end -= 1
                continue
            is_doubtful = self._context.heals and last[0] < self._context.log_min()
            whole = self._chain_end(end) if is_doubtful else end
            if whole == end:
                break
            end = whole
        return end

    def _is_confirmed(self, number: int, entry: Entry) -> bool:
        return self._context.confirms(self.topic, self.queue_id, number, (entry[0], entry[1], entry[2]))

    def _chain_end(self, end: int) -> int:
        """Returns the number after the last entry before `end` that all entries of its file lead up to.

        That tells entries of deleted messages, which the log cannot confirm, from left-overs. 0.1 us each.
        """
        per_file = self._file_size // self.unit
        first = max(self._base, (end - 1) - (end - 1) % per_file)
        found = self._read(first * self.unit, (end - first) * self.unit)
        entries = self.layout.iter_unpack(found[: len(found) // self.unit * self.unit])
        return first + chain_length(entries, BLANK_SIZE)

    def _read(self, position: int, length: int) -> bytes:
        at = position % self._file_size
        file = self._context.open_file(self, position - at, create=False)
        return file.read_at(at, length) if file else b""

    def _write(self, start: int, at: int, data: bytes | bytearray) -> None:
        file = self._context.open_file(self, start, create=True)
        assert file is not None, "a created file is there"
        self._context.to_sync.add(file.path)  # also when the write fails: the file is there now
        file.write_at(at, data)


class _Pointers:
    """Sequence view of a queue for `bisect`: item n is the log offset of entry n, -1 for a blank entry."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue

    def __len__(self) -> int:
        return self._queue._end

    def __getitem__(self, offset: int) -> int:
        entry = self._queue._entry(offset)
        if entry is None or entry[1] == BLANK_SIZE:
            return -1
        return entry[0]


def check_topic_size(topic: str) -> None:
    """Raises MessageIllegal unless the topic has 1 to 127 bytes in UTF-8 (255 for a %RETRY% topic).

    Apache 4.x cannot read longer ones.
    """
    size = len(topic.encode())
    allowed = MAX_RETRY_TOPIC if topic.startswith(RETRY_PREFIX) else MAX_TOPIC
    if not 0 < size <= allowed:
        raise MessageIllegal(f"the topic's name has {size} bytes, {allowed} are allowed: {topic}")
