"""A key looked up in a store's index files: where in the log messages with it may be.

In: topics and a key. Out: offsets of the log, and how far the index reaches. Two keys may have one hash, so
who reads the records compares. Reads only; how many slots a file has is told by the file.
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
    """Of the log's records in [begin, end) those that may have the key; of others the index tells nothing."""

    begin: int
    end: int
    offsets: tuple[int, ...]


def looked_up(files: StoreFiles, topics: Sequence[str], key: str) -> IndexMatches | None:
    """None: there is no index that could be asked."""
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
    # the last record may have keys that are not put yet, so it is not taken as known
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
