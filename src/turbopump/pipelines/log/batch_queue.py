"""Reads one batch consume queue (`queue.type=BatchCQ`) from its files: which records hold which messages.

An entry stands for a record and is found by its number; offsets count messages: an entry says which ones it
covers. To its users the queue has offsets, as any other. Reads only; records are unpacked by the reader.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from turbopump.pipelines.log.files import QueueName, StoreFiles
from turbopump.pipelines.log.queue import Entries, QueueEntries
from turbopump.pipelines.record_positions import Numbers
from turbopump.protocol.record import QUEUE_OFFSET_AT

BLOCK_ENTRIES = 1024
OFFSET = struct.Struct(">q")

LAYOUT = np.dtype(
    [
        ("physical", ">i8"),
        ("size", ">i4"),
        ("tags", ">i8"),
        ("stored", ">i8"),
        ("first", ">i8"),
        ("messages", ">i2"),
        ("compacted", ">i4"),
        ("unused", ">i4"),
    ]
)


class _BatchEntries(QueueEntries):
    """Reads the entries of a batch consume queue by entry number, which is not the queue offset."""

    folder = "batchconsumequeue"
    layout = LAYOUT

    def first_number(self, is_before: Any) -> int:
        return self._first(self.begin, self.end, is_before)

    def is_whole(self, entry: Any) -> bool:
        """Tells whether an entry points to a complete record that has the entry's first queue offset."""
        part = self._store.part_at(int(entry["physical"])) if super().is_whole(entry) else None
        if part is None or int(entry["messages"]) <= 0:
            return False
        at = int(entry["physical"]) - part.start + QUEUE_OFFSET_AT
        return bool(OFFSET.unpack_from(self._store.bytes_of(part), at)[0] == entry["first"])


class BatchQueueFiles:
    """Reads a batch consume queue by queue offsets of messages; an entry covers several messages."""

    def __init__(self, store: StoreFiles, name: QueueName) -> None:
        self.name = name
        self._entries = _BatchEntries(store, name)

    @cached_property
    def begin(self) -> int:
        """The queue offset of the first message whose record is still in the log."""
        return self._offset_at(self._entries.begin)

    @cached_property
    def end(self) -> int:
        last = self._entries.entry(self._entries.end - 1) if self._is_filled else None
        return 0 if last is None else _end_of(last)

    def blocks(self, begin: int, end: int) -> Iterator[Entries]:
        """Yields entries whose records hold messages [begin, end); the first and last may hold others too."""
        low = self._entries.first_number(lambda entry: _end_of(entry) <= begin)
        high = self._entries.first_number(lambda entry: int(entry["first"]) < end)
        for _, found in self._entries.pieces(low, high):
            for at in range(0, len(found), BLOCK_ENTRIES):
                yield found[at : at + BLOCK_ENTRIES]

    def physical_end(self) -> int:
        return self._entries.physical_end()

    def first_at(self, physical: int) -> int | None:
        return self._entries.first_at(physical)

    def first_since(self, time_ms: int) -> int:
        return self._offset_at(self._entries.first_since(time_ms))

    def _offset_at(self, number: int) -> int:
        """Returns the first offset of entry `number`; if it is damaged, one before the next sound entry's.

        A reader that begins there notices the gap. Returns `end` if no sound entry follows.
        """
        for at in range(number, self._entries.end):
            found = self._entries.entry(at)
            if self._entries.is_whole(found):
                return max(int(found["first"]) - (at > number), 0)
        return self.end

    @property
    def _is_filled(self) -> bool:
        return self._entries.end > self._entries.begin


Queue = QueueEntries | BatchQueueFiles


def queue_of(store: StoreFiles, name: QueueName) -> Queue:
    return BatchQueueFiles(store, name) if name.is_batch else QueueEntries(store, name)


def ends_of(entries: Entries) -> Numbers:
    """Returns the queue offset after the last message of each entry."""
    ends: Numbers = entries["first"].astype(np.int64) + entries["messages"]
    return ends


def _end_of(entry: Any) -> int:
    return int(entry["first"]) + int(entry["messages"])
