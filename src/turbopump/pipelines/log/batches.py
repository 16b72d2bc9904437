"""One batch consume queue (`queue.type=BatchCQ`), from its files: which records hold which messages.

Entries are of records and are found by number, offsets are of messages: an entry says which it covers. Seen
from outside a queue has offsets, as any other. Reads only; records are taken apart by who reads them.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from turbopump.pipelines.log.files import QueueName, StoreFiles
from turbopump.pipelines.log.queue import Entries, QueueFiles
from turbopump.pipelines.places import Numbers
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


class _Numbered(QueueFiles):
    """The entries, by their numbers."""

    folder = "batchconsumequeue"
    layout = LAYOUT

    def first_number(self, is_before: Any) -> int:
        return self._first(self.begin, self.end, is_before)

    def offset_of(self, entry: Any) -> int:
        """Of its first message, as the record itself has it: an entry may be damaged. 0 where it points out
        of the log, so that who begins there finds that something is missing.
        """
        part = self._store.part_at(int(entry["physical"]))
        at = -1 if part is None else int(entry["physical"]) - part.start + QUEUE_OFFSET_AT
        if part is None or at + OFFSET.size > part.size:
            return 0
        found: int = OFFSET.unpack_from(self._store.bytes_of(part), at)[0]
        return found

    def _is_whole(self, entry: Any) -> bool:
        is_one = super()._is_whole(entry) and int(entry["messages"]) > 0
        return is_one and self.offset_of(entry) == int(entry["first"])


class BatchQueue:
    """The messages of one queue, by their offsets."""

    def __init__(self, store: StoreFiles, name: QueueName) -> None:
        self.name = name
        self._entries = _Numbered(store, name)

    @cached_property
    def begin(self) -> int:
        """The first message whose record the log still has."""
        return self._offset_at(self._entries.begin)

    @cached_property
    def end(self) -> int:
        last = self._entries.entry(self._entries.end - 1) if self._is_filled else None
        return 0 if last is None else _end_of(last)

    def blocks(self, begin: int, end: int) -> Iterator[Entries]:
        """Entries of the records that hold these messages; those at the ends may hold others, too."""
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
        found = self._entries.entry(number) if number < self._entries.end else None
        return self.end if found is None else self._entries.offset_of(found)

    @property
    def _is_filled(self) -> bool:
        return self._entries.end > self._entries.begin


Queue = QueueFiles | BatchQueue


def queue_of(store: StoreFiles, name: QueueName) -> Queue:
    return BatchQueue(store, name) if name.is_batch else QueueFiles(store, name)


def ends_of(entries: Entries) -> Numbers:
    """Behind the last message of each."""
    ends: Numbers = entries["first"].astype(np.int64) + entries["messages"]
    return ends


def _end_of(entry: Any) -> int:
    return int(entry["first"]) + int(entry["messages"])
