"""Reads the entries of one consume queue from its files: where messages are in the log, and which exist.

Entries are NumPy records over the mapped files. A queue begins where the log begins, since retention removes
the oldest files, and ends with the last entry whose message is complete: behind it are zeros, or what a crash
left. Reads only.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbopump.pipelines.log.files import QueueName, StoreFiles, is_file, mapped
from turbopump.runtime.disk import SystemDisk
from turbopump.store.consume_queue import BLANK_SIZE
from turbopump.store.scan import measure_at

ENTRY = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tags", ">i8")])

Entries = NDArray[np.void]


class QueueEntries:
    """Reads the consume queue files of one queue: its entries, its first offset and its end."""

    folder = "consumequeue"
    layout = ENTRY

    def __init__(self, store: StoreFiles, name: QueueName) -> None:
        self._store = store
        self.name = name
        directory = os.path.join(store.directory, self.folder, name.topic, str(name.queue_id))
        self._files = [
            (int(entry.name) // self.layout.itemsize, os.path.join(directory, entry.name))
            for entry in SystemDisk().entries(directory)
            if is_file(entry) and entry.size >= self.layout.itemsize
        ]
        self._maps: dict[str, Entries] = {}

    @cached_property
    def begin(self) -> int:
        """The queue offset of the first entry whose message is still in the log."""
        return self._first(self._base, self._written, self._is_gone)

    @cached_property
    def end(self) -> int:
        """The queue offset after the last entry whose message is complete.

        A crash may have left entries that point nowhere, or to messages that never reached the disk.
        """
        log_end = self._store.parts[-1].end if self._store.parts else 0
        end = self._first(self._base, self._written, lambda entry: int(entry["physical"]) < log_end)
        while end > self._base and not self.is_whole(self.entry(end - 1)):
            end -= 1
        return end

    def entry(self, offset: int) -> Any:
        """Returns the entry at a queue offset; None if no file holds it."""
        return next((entries[0] for _, entries in self.pieces(offset, offset + 1)), None)

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, Entries]]:
        """Yields the entries of [begin, end) file by file, each time with the queue offset of the first."""
        at = max(bisect_right(self._files, begin, key=lambda file: file[0]) - 1, 0)
        for base, path in self._files[at:]:
            if base >= end:
                return
            found = self._mapped(path)[max(begin - base, 0) : end - base]
            if len(found):
                yield max(begin, base), found

    def physical_end(self) -> int:
        """Returns the log offset after the queue's last message; 0 for an empty queue."""
        last = self.entry(self.end - 1) if self.end > self._base else None
        return 0 if last is None else int(last["physical"]) + int(last["size"])

    def first_at(self, physical: int) -> int | None:
        """Returns the log offset of the queue's first message at or after `physical`; None if none is."""
        found = self._first(self.begin, self.end, lambda entry: int(entry["physical"]) < physical)
        return int(self.entry(found)["physical"]) if found < self.end else None

    def first_since(self, time_ms: int) -> int:
        """Returns the queue offset of the first message stored at `time_ms` or later; the end if none is.

        Store times are taken to rise, as a broker does.
        """

        def is_before(entry: Any) -> bool:
            stored = self._store.store_time(int(entry["physical"]))
            return stored is None or stored < time_ms

        return self._first(self.begin, self.end, is_before)

    def is_whole(self, entry: Any) -> bool:
        """Tells whether an entry points to a complete record."""
        physical = -1 if entry is None else int(entry["physical"])
        part = self._store.part_at(physical)
        if part is None:
            return False
        position = physical - part.start
        return measure_at(self._store.bytes_of(part), part.start, position, part.size, check_crc=True) > 0

    # binary search over the entries

    @property
    def _base(self) -> int:
        return self._files[0][0] if self._files else 0

    @cached_property
    def _written(self) -> int:
        """The queue offset after the last entry that was written; zeros follow in the file."""
        if not self._files:
            return 0
        base, path = self._files[-1]
        return self._first(base, base + len(self._mapped(path)), lambda entry: int(entry["size"]) > 0)

    def _first(self, low: int, high: int, is_before: Any) -> int:
        """Returns the first offset in [low, high) whose entry is not `is_before`; `high` if there is none."""
        while low < high:
            middle = (low + high) // 2
            if is_before(self._nearest(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def _nearest(self, offset: int) -> Any:
        """Returns the entry at a queue offset, or the last one before it where the file is missing."""
        base, path = self._files[max(bisect_right(self._files, offset, key=lambda file: file[0]) - 1, 0)]
        entries = self._mapped(path)
        return entries[min(offset - base, len(entries) - 1)]

    def _is_gone(self, entry: Any) -> bool:
        return int(entry["physical"]) < self._store.log_begin or int(entry["size"]) == BLANK_SIZE

    def _mapped(self, path: str) -> Entries:
        if path not in self._maps:
            data = mapped(path)
            self._maps[path] = np.frombuffer(data, self.layout, len(data) // self.layout.itemsize)
        return self._maps[path]
