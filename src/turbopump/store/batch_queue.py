"""Batch consume queues: those of topics with `queue.type=BatchCQ`, whose records may hold several messages.

Offsets count messages, entries count records, so an entry names the offsets that it covers. Files are
appended to from position 0 on, whatever offset the first entry has. All else is as in `consume_queue.py`.

    entry   i64 log offset | i32 record size | i64 tag code | i64 store time |
            i64 first offset | i16 messages | i32 -1 | i32 0: 46 bytes
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator

from turbopump.store.consume_queue import ENTRY, MAX_QUEUE_OFFSET, ConsumeQueue, QueueContext
from turbopump.store.queue_end import Entry

BATCH = struct.Struct(">qiqqqhii")
BATCH_UNIT = BATCH.size
NOT_COMPACTED = -1
FIRST_OFFSET, MESSAGES = 4, 5  # their places in an entry

Covered = tuple[int, int, int, int, int]
"""Log offset, size and tag code of a record, its first offset, its number of messages."""


class BatchQueue(ConsumeQueue):
    """A consume queue whose entries stand for records with several messages."""

    layout = BATCH
    unit = BATCH_UNIT
    is_batch = True

    __slots__ = ("_max",)

    def __init__(self, context: QueueContext, topic: str, queue_id: int) -> None:
        self._max = 0
        super().__init__(context, topic, queue_id)
        self.is_plain = False

    @property
    def max_offset(self) -> int:
        return self._max

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Returns log offset, size and tag code of the record that holds queue offset `offset`, or None."""
        found = self._entry(self._number(offset))
        if found is None or not found[FIRST_OFFSET] <= offset < found[FIRST_OFFSET] + found[MESSAGES]:
            return None
        return found[0], found[1], found[2]

    def units(self, offset: int, count: int) -> bytes:
        """Returns up to `count` entries in 20-byte form, from the record that holds, or follows, `offset`."""
        return b"".join(ENTRY.pack(*entry[:3]) for entry in self.covered(offset, count))

    def covered(self, offset: int, count: int) -> Iterator[Covered]:
        """Yields up to `count` entries of one file, from the record that holds queue offset `offset` on."""
        number = max(self._number(offset), self._base, 0)
        entry = self._entry(number)
        if entry is not None and entry[FIRST_OFFSET] + entry[MESSAGES] <= offset:
            number += 1  # the messages between the two records are in no log
        found = super().units(number, count)
        for physical, size, tags_code, _, first, messages, _, _ in BATCH.iter_unpack(found):
            if first + messages > offset:
                yield physical, size, tags_code, first, messages

    def behind(self, offset: int, units: bytes) -> int:
        for _, _, _, first, messages in self.covered(offset, len(units) // ENTRY.size):
            offset = first + messages
        return offset

    def first_at_or_after(self, physical: int) -> int:
        """Returns the first queue offset at log offset `physical` or later; `max_offset` if there is none.

        A damaged entry cannot lead outside the queue.
        """
        found = self._entry(self._first(physical))
        return self._max if found is None else min(max(found[FIRST_OFFSET], 0), self._max)

    def put(self, queue_offset: int, physical: int, size: int, tags_code: int) -> bool:
        if physical <= self.last_physical or self.is_deleted:
            return True
        if queue_offset < self._max and not self._gives_way(queue_offset):
            return True
        if queue_offset > self._max:
            return False
        store_timestamp, messages = self._context.counted(physical)
        if not self.tail:
            self._context.dirty[self] = None
        self.tail += BATCH.pack(
            physical, size, tags_code, store_timestamp, queue_offset, messages, NOT_COMPACTED, 0
        )
        self.last_physical = physical
        self._max = queue_offset + messages
        self.next_offset = max(self.next_offset, self._max)
        return True

    def skip_to(self, queue_offset: int) -> None:
        self._max = max(self._max, queue_offset)

    def clear(self) -> None:
        super().clear()
        self._max = 0

    def _set_end(self) -> None:
        last = self._entry(self._end - 1)
        self._max = (
            min(last[FIRST_OFFSET] + last[MESSAGES], MAX_QUEUE_OFFSET) if last else 0
        )  # more is damage
        super()._set_end()

    def _number(self, offset: int) -> int:
        """Returns the number of the last entry that begins at `offset` or before; below the first if none."""
        return bisect_right(_FirstOffsets(self), offset, max(self._base, 0), self._end) - 1

    def _number_of(self, queue_offset: int) -> int | None:
        number = self._number(queue_offset)
        entry = self._entry(number)
        return number if entry is not None and entry[FIRST_OFFSET] == queue_offset else None

    def _is_confirmed(self, number: int, entry: Entry) -> bool:
        is_one = entry[FIRST_OFFSET] >= 0 and entry[MESSAGES] > 0
        where = self.topic, self.queue_id, entry[FIRST_OFFSET]
        return is_one and self._context.confirms(*where, (entry[0], entry[1], entry[2]))


class _FirstOffsets:
    """Sequence view of a batch queue for `bisect`: item n is the first queue offset of entry n."""

    def __init__(self, queue: BatchQueue) -> None:
        self._queue = queue

    def __len__(self) -> int:
        return self._queue._end

    def __getitem__(self, number: int) -> int:
        entry = self._queue._entry(number)
        return -1 if entry is None else entry[FIRST_OFFSET]
