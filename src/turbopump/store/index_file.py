"""One file of the hash index, in Apache's layout.

    header 40 | slots x 4: newest item of the chain | items x 20: hash, offset, seconds since begin, previous

An item is written to the map when it is put. The slots of the file in use are a native array in memory, which
`publish` copies into the map together with the header: a killed process leaves the file as it was published,
and later items are put again. When a new file begins is decided in `index.py`.
"""

import struct
import sys
from array import array
from collections.abc import Iterator

from turbopump.compiled import PutKeys
from turbopump.runtime.disk import MappedFile
from turbopump.store.append import Keys

HEADER = struct.Struct(">qqqqii")  # begin time, end time, begin offset, end offset, used slots, next item
SLOT = struct.Struct(">i")
ITEM = struct.Struct(">iqii")  # hash, offset, seconds since begin time, previous item of the chain

RESERVED_ITEMS = 1 << 18  # blocks of a sparse file are taken 5 MB at a time
STEPS_PER_TURN = 10_000  # items visited by a search, about 5 ms
_MAX_SECONDS = 2**31 - 1
LAST_TIME = 253_402_300_799_999  # the end of the year 9999
_CHUNK = ITEM.size * 50_000
_ZEROS = bytes(_CHUNK)


def file_size(slots: int, items: int) -> int:
    return HEADER.size + slots * SLOT.size + items * ITEM.size


class IndexFile:
    """One index file: its header as numbers, its slots as an array while it is written to."""

    def __init__(self, mapped: MappedFile, slots: int, items: int, is_new: bool = False) -> None:
        self.path = mapped.path
        self.name = mapped.path.rpartition("/")[2]
        self.slot_count = slots
        # A file with other counts, or with an impossible begin time, cannot be searched; it takes no items
        # either, and is deleted with its messages.
        begin_timestamp = HEADER.unpack_from(mapped.buffer)[0]
        self.is_ours = mapped.size == file_size(slots, items) and 0 <= begin_timestamp <= LAST_TIME
        self.item_count = items if self.is_ours else 0
        self._items_at = HEADER.size + slots * SLOT.size
        self._mapped = mapped
        self._buffer = mapped.buffer
        self._slots = _empty(slots) if is_new else None
        self._dirty = self._closed = False
        self._failure: OSError | None = None
        self._reserved = 1
        self._read_header()

    def _read_header(self) -> None:
        header = HEADER.unpack_from(self._buffer)
        self.begin_timestamp: int = header[0]
        self.end_timestamp: int = header[1]
        self.begin_offset: int = header[2]
        self.end_offset: int = header[3]
        # Bounded, as the header may be damaged: the number has to be able to grow.
        self.used = max(0, min(header[4], self.slot_count))
        count: int = header[5]
        self.count = self._published_count = max(1, min(count, self.item_count) if self.is_ours else count)
        self.published = (self.end_timestamp, self.end_offset)

    @property
    def limit(self) -> int:
        """Number of the first item for which disk blocks have to be reserved before it is written."""
        return self._reserved if self.count > 1 else 1

    def working_slots(self) -> "array[int]":
        if self._slots is None:
            self._slots = self._slots_on_disk() if self.is_ours else _empty(0)
            if self._slots and (max(self._slots) >= self.count or min(self._slots) < 0):
                self._slots = array("i", [slot if 0 < slot < self.count else 0 for slot in self._slots])
        return self._slots

    def _slots_on_disk(self) -> "array[int]":
        return native_slots(self._buffer[HEADER.size : self._items_at])

    def rest(self) -> None:
        """Frees the in-memory array of slots of a full file."""
        self._slots = None

    def reserve(self) -> None:
        if self.count < self._reserved:
            return
        room = min(RESERVED_ITEMS, self.item_count - self.count)
        self._mapped.reserve(self._items_at + self.count * ITEM.size, room * ITEM.size)
        self._reserved = self.count + room

    def append(self, packed: list[bytes], used: int, end_timestamp: int, end_offset: int) -> None:
        if not packed:
            return
        at = self._items_at + self.count * ITEM.size
        self._buffer[at : at + len(packed) * ITEM.size] = b"".join(packed)
        self.count += len(packed)
        self.used, self.end_timestamp, self.end_offset = used, end_timestamp, end_offset

    def put_keys(self, put: PutKeys, waiting: list[Keys], most: int, repeat_offset: int) -> int:
        """Puts keys with the compiled `put` while the file has space; returns how many messages are done."""
        done, self.count, self.used, self.end_timestamp, self.end_offset = put(
            waiting,
            most,
            self.working_slots(),
            self._buffer,
            self._items_at,
            self.begin_timestamp,
            self.count,
            self.limit,
            self.used,
            self.end_timestamp,
            self.end_offset,
            repeat_offset,
        )
        return done

    def item(self, number: int) -> tuple[int, int, int, int]:
        item: tuple[int, int, int, int] = ITEM.unpack_from(self._buffer, self._items_at + number * ITEM.size)
        return item

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.is_ours and begin_ms <= self.end_timestamp and end_ms >= self.begin_timestamp

    def search(
        self, key_hash: int, begin_ms: int, end_ms: int, max_count: int, found: dict[int, None]
    ) -> Iterator[int]:
        """Adds log offsets of matching items to `found`, newest first; yields the item count per slice."""
        slot = key_hash % self.slot_count
        if self._slots is not None:
            number = self._slots[slot]
        else:
            (number,) = SLOT.unpack_from(self._buffer, HEADER.size + slot * SLOT.size)
        steps, limit = 0, self.count
        while 0 < number < limit and len(found) < max_count:
            item_hash, offset, seconds, previous = self.item(number)
            item_time = self.begin_timestamp + seconds * 1000
            if item_hash == key_hash and begin_ms <= item_time <= end_ms:
                found[offset] = None
            if item_time < begin_ms:
                break
            limit, number = number, previous  # a chain only leads back, so damage cannot make it endless
            steps += 1
            if steps == STEPS_PER_TURN:
                yield steps
                steps = 0
                if self._closed:  # deleted meanwhile, with its messages
                    return

    def publish(self) -> None:
        if self._failure:
            self._write_again()
        if self._slots is not None and self.count != self._published_count:
            self._publish_slots(self._slots)
        self._published_count = self.count
        self.published = (self.end_timestamp, self.end_offset)
        header = HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used,
            self.count,
        )
        if self.is_ours and self._buffer[: HEADER.size] != header:
            self._buffer[: HEADER.size] = header
            self._dirty = True

    def _publish_slots(self, slots: "array[int]") -> None:
        new = self.count - self._published_count
        if new > self.slot_count // 128:  # one copy of all is quicker than many single ones
            self._buffer[HEADER.size : self._items_at] = memoryview(native_slots(slots)).cast("B")
            return
        for number in range(self._published_count, self.count):
            slot = self.item(number)[0] % self.slot_count
            SLOT.pack_into(self._buffer, HEADER.size + slot * SLOT.size, slots[slot])

    def _write_again(self) -> None:
        """Rewrites header, slots and items in place after a failed sync, so that the next sync writes them.

        The system counts the pages of a failed sync as clean.
        """
        for at in range(0, self._items_at + self.count * ITEM.size, _CHUNK):
            end = min(at + _CHUNK, self._mapped.size)
            self._buffer[at:end] = self._buffer[at:end]
        self._failure, self._dirty = None, True

    def sync(self) -> None:
        if self._failure:
            raise self._failure  # until `publish` has written everything again
        if not self._dirty:
            return
        self._dirty = False
        try:
            self._mapped.sync()
        except OSError as failure:
            if not self._closed:  # not deleted by the loop meanwhile
                self._failure = failure
                raise

    def cut(self, offset: int) -> bool:
        """Keeps the items before log offset `offset`, rebuilds the slots; returns False if none is left."""
        if not self.is_ours:
            return self.end_offset < offset
        if self.count > 1 and self.end_offset < offset and max(self._slots_on_disk()) < self.count:
            self._clear_items_from(self.count)  # header and slots agree
            return True
        slots = _empty(self.slot_count)
        kept = self._link_again(slots, offset)
        if kept == 1:
            return False
        self._clear_items_from(kept)
        _, self.end_offset, seconds, _ = self.item(kept - 1)
        self.end_timestamp = self.begin_timestamp + (seconds * 1000 if kept > 2 else 0)
        self.count, self.used, self._slots = kept, len(slots) - slots.count(0), slots
        self._publish_all()
        self._mapped.sync()
        return True

    def _link_again(self, slots: "array[int]", offset: int) -> int:
        """Fills `slots` and links from the items before `offset`; returns the number of the first other."""
        number, last = 1, self.begin_offset
        for key_hash, item_offset, seconds, previous in self._items():
            is_blank = number > 1 and not (key_hash or item_offset or seconds or previous)
            if item_offset >= offset or item_offset < last or key_hash < 0 or is_blank:
                break
            slot = key_hash % self.slot_count
            if previous != slots[slot]:
                at = self._items_at + number * ITEM.size
                ITEM.pack_into(self._buffer, at, key_hash, item_offset, seconds, slots[slot])
            slots[slot] = number
            last = item_offset
            number += 1
        return number

    def _items(self) -> Iterator[tuple[int, int, int, int]]:
        start, stop = self._items_at + ITEM.size, self._items_at + self.count * ITEM.size
        for at in range(start, stop, _CHUNK):
            yield from ITEM.iter_unpack(bytes(self._buffer[at : min(at + _CHUNK, stop)]))

    def _clear_items_from(self, number: int) -> None:
        """Zeroes what follows the last item, from item `number` on, so that it cannot pass for items later.

        Behind the allocated blocks there are none: items follow one another, and so do their blocks.
        """
        stop = min(self._items_at + self._mapped.allocated(), self._mapped.size)
        for at in range(self._items_at + number * ITEM.size, stop, _CHUNK):
            end = min(at + _CHUNK, stop)
            if self._buffer[at:end] != _ZEROS[: end - at]:
                self._buffer[at:end] = _ZEROS[: end - at]
                self._dirty = True

    def _publish_all(self) -> None:
        self._published_count = 1 - self.slot_count  # more new items than slots: copy them all
        self.publish()

    def close(self) -> None:
        self._closed = True
        self._mapped.close()


def _empty(slots: int) -> "array[int]":
    return array("i", bytes(slots * SLOT.size))


def native_slots(slots: "bytes | bytearray | array[int]") -> "array[int]":
    """Converts slots between the byte order of the file and that of the machine, in either direction."""
    numbers = array("i", slots)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def seconds_between(begin_timestamp: int, timestamp: int) -> int:
    if begin_timestamp <= 0 or timestamp <= begin_timestamp:
        return 0
    return min((timestamp - begin_timestamp) // 1000, _MAX_SECONDS)
