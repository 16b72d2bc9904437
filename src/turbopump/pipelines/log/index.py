"""Looks a key up in a store's index files: where in the log messages with the key may be.

In: topics and a key. Out: log offsets, and the range of the log that the index covers. Two keys may have the
same hash, so the reader compares the keys of the records. Reads only; the number of slots is read from each
file.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.pipelines.log.files import StoreFiles
from turbopump.protocol.hashing import index_hash
from turbopump.runtime.disk import MappedFile, SystemDisk
from turbopump.store.index_check import shape_of
from turbopump.store.index_file import HEADER, IndexFile

EVER_MS = (0, 2**63 - 1)
ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class IndexMatches:
    """Log offsets of records that may have the key, within [begin, end), the indexed part of the log."""

    begin: int
    end: int
    offsets: tuple[int, ...]


def look_up(files: StoreFiles, topics: Sequence[str], key: str) -> IndexMatches | None:
    """Returns log offsets of records that may have the key in these topics; None without a usable index."""
    offsets: set[int] = set()
    begin = end = -1
    for path in _index_files(files.directory):
        opened = SystemDisk().open_mapped(path, writable=False)
        try:
            if HEADER.unpack_from(opened.buffer)[5] <= 1:
                continue  # a new one, without items
            index = _readable(opened)
            if index is None:
                return None
            for topic in topics:
                offsets.update(_search(index, index_hash(f"{topic}#{key}")))
            begin, end = index.begin_offset if begin < 0 else begin, index.end_offset
        finally:
            opened.close()
    if files.part_at(end) is None:
        return None
    # The last record may have keys that are not in the index yet, so it does not count as covered.
    begin = max(begin, files.log_begin)
    return IndexMatches(begin, end, tuple(sorted(offset for offset in offsets if begin <= offset < end)))


def _index_files(directory: str) -> list[str]:
    root = os.path.join(directory, "index")
    return [
        os.path.join(root, entry.name)
        for entry in SystemDisk().entries(root)
        if entry.name.isdecimal() and not entry.is_dir and entry.size >= HEADER.size
    ]


def _readable(mapped: MappedFile) -> IndexFile | None:
    shape = shape_of(mapped.buffer, mapped.size, None)
    index = IndexFile(mapped, *shape) if shape is not None else None
    return index if index is not None and index.is_ours else None


def _search(index: IndexFile, key_hash: int) -> dict[int, None]:
    found: dict[int, None] = {}
    for _ in index.search(key_hash, *EVER_MS, ALL, found):
        pass
    return found
