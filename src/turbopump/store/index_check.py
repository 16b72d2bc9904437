"""Checks the index against the records of the log, given in log order. Reads only.

Items are in the order of the log, over all files: they are read as one stream beside it. Each must belong to
a key of the record it points to, and link to the item before it in its chain; at the end of a file its slots
must point to the last item of each chain.
"""

from array import array
from collections.abc import Iterator

from turbopump.protocol.record import Buffer
from turbopump.runtime.disk import Disk
from turbopump.store.findings import Findings
from turbopump.store.index_file import HEADER, ITEM, SLOT, file_size, native_slots

DEFAULT_SHAPE = (5_000_000, 20_000_000)
CHUNK = ITEM.size * 50_000


class IndexCheck:
    """Compares the items of the index with the keys of the records."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        findings: Findings,
        log_begin: int,
        is_clean: bool,
        shape: tuple[int, int] | None,
    ) -> None:
        self._disk = disk
        self._findings = findings
        self._is_clean = is_clean
        entries = disk.entries(directory)
        self._paths = [
            f"{directory}/{entry.name}"
            for entry in entries
            if entry.name.isdecimal() and not entry.is_dir and entry.size >= HEADER.size
        ]
        self.exists = bool(self._paths)
        self._shape = shape or next(filter(None, map(self._shape_of, self._paths)), None)
        self._stream = self._items(log_begin)
        self._item = next(self._stream, None)
        self._begin = self._item[0] if self._item else 0
        self._missing_from: int | None = None
        self._missing = 0

    def check(self, offset: int, hashes: list[int], also_allowed: int | None) -> None:
        """Compares the index items of the record at `offset` with its key hashes; reports foreign items.

        Missing ones are counted and reported by a later record or `finish`. `also_allowed`: the hash of the
        tag, for which Apache 5.5 adds an item.
        """
        found = self._take(offset)
        if not set(hashes) <= found:
            if self._missing_from is None:
                self._missing_from = offset
            self._missing += 1
        elif hashes:
            self._end_gap()
        if extra := found.difference(hashes, (also_allowed,)):
            self._findings.add_problem(
                "foreign item", f"index: keys {sorted(extra)} of the record at {offset}"
            )

    def finish(self, log_end: int) -> None:
        """Reports missing keys and items without a record as findings; to be called after the last record."""
        if self._missing and self.exists:
            text = f"index: {self._missing} records from {self._missing_from} to the end of the log"
            if self._is_clean:
                self._findings.add_problem("missing keys", text, self._missing)
            else:
                self._findings.add_note("keys not written yet", text, self._missing)
        while self._item is not None:
            offset = self._item[0]
            if offset >= log_end and not self._is_clean:
                self._findings.add_note("item behind the end of the log", f"index: {offset}")
            else:
                self._findings.add_problem("extra item", f"index: no record at {offset}")
            self._item = next(self._stream, None)

    def _take(self, offset: int) -> set[int]:
        """Reads items up to log offset `offset`; returns the hashes of those at it, reports earlier ones."""
        found: set[int] = set()
        item = self._item
        while item is not None and item[0] <= offset:
            if item[0] < offset:
                self._findings.add_problem("extra item", f"index: no record with keys at {item[0]}")
            else:
                found.add(item[1])
            item = next(self._stream, None)
        self._item = item
        return found

    def _end_gap(self) -> None:
        if self._missing:
            text = f"index: {self._missing} records from {self._missing_from} on"
            self._findings.add_problem("missing keys", text, self._missing)
        self._missing, self._missing_from = 0, None

    def _shape_of(self, path: str) -> tuple[int, int] | None:
        mapped = self._disk.open_mapped(path, writable=False)
        try:
            return shape_of(mapped.buffer, mapped.size, None)
        finally:
            mapped.close()

    def _items(self, log_begin: int) -> Iterator[tuple[int, int]]:
        """Yields (log offset, key hash) of each item, over all files, whose message is still in the log."""
        for path in self._paths:
            mapped = self._disk.open_mapped(path, writable=False)
            try:
                if HEADER.unpack_from(mapped.buffer)[3] >= log_begin:
                    for offset, key_hash in self._items_of(path, mapped.buffer, mapped.size):
                        if offset >= log_begin:
                            yield offset, key_hash
            finally:
                mapped.close()

    def _items_of(self, path: str, buffer: Buffer, size: int) -> Iterator[tuple[int, int]]:
        count = HEADER.unpack_from(buffer)[5]
        shape = shape_of(buffer, size, self._shape) if count > 1 else None
        if shape is None:
            if count > 1:
                self._findings.add_problem(
                    "unknown index file", f"{path}: the numbers of slots and items are unknown"
                )
            return
        slots = array("i", bytes(shape[0] * SLOT.size))
        items_at = HEADER.size + shape[0] * SLOT.size
        stop = items_at + min(count, shape[1]) * ITEM.size
        number = 1
        for at in range(items_at + ITEM.size, stop, CHUNK):
            for key_hash, offset, _, previous in ITEM.iter_unpack(bytes(buffer[at : min(at + CHUNK, stop)])):
                slot = key_hash % shape[0]
                if previous != slots[slot]:
                    text = f"{path}: item {number} follows {previous}, not {slots[slot]}"
                    self._findings.add_problem("broken chain", text)
                slots[slot] = number
                number += 1
                yield offset, key_hash
        if self._is_clean and slots != native_slots(bytes(buffer[HEADER.size : items_at])):
            self._findings.add_problem(
                "wrong slots", f"{path}: slots do not point to the last items of their chains"
            )


def shape_of(buffer: Buffer, size: int, asked: tuple[int, int] | None) -> tuple[int, int] | None:
    """Returns the numbers of slots and items of an index file; None when they cannot be found out.

    They are as asked, Apache's default, or derived from the last item.
    """
    for shape in (asked, DEFAULT_SHAPE):
        if shape is not None and size == file_size(*shape):
            return shape
    _, _, begin, end, _, count = HEADER.unpack_from(buffer)
    at = HEADER.size
    while (at := _find(buffer, end.to_bytes(8, "big", signed=True), at)) >= 0:
        items_at = at - SLOT.size - (count - 1) * ITEM.size
        slots, rest = divmod(items_at - HEADER.size, SLOT.size)
        items, left = divmod(size - items_at, ITEM.size)
        is_possible = slots > 0 and not rest and not left and items >= count
        if is_possible and _chains_fit(buffer, slots, begin, count):
            return slots, items
        at += 1
    return None


def _chains_fit(buffer: Buffer, slots: int, begin: int, count: int) -> bool:
    """Whether the first items are linked as they would be with this number of slots."""
    items_at = HEADER.size + slots * SLOT.size
    newest: dict[int, int] = {}
    for number in range(1, min(count, 1000)):
        key_hash, offset, _, previous = ITEM.unpack_from(buffer, items_at + number * ITEM.size)
        if (number == 1 and offset != begin) or previous != newest.get(key_hash % slots, 0):
            return False
        newest[key_hash % slots] = number
    return True


def _find(buffer: Buffer, pattern: bytes, start: int) -> int:
    assert not isinstance(buffer, memoryview), "files are mapped, not viewed"
    return buffer.find(pattern, start)
