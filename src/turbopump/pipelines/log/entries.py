"""Positions of DLedger's entries in a mapped data file. Pure: a buffer in, positions out."""

import numpy as np

from turbopump.pipelines.record_positions import Data, Numbers
from turbopump.protocol.dledger.entry import END_MAGIC, END_MARK, HEAD_SIZE, MAGIC


def entries_in(data: Data, begin: int, end: int) -> Numbers:
    """Returns the positions of the heads of entries that lie back to back from `begin` on and end by `end`.

    Stops at anything that is no entry; whether their records are complete is checked with the records.
    """
    found: list[int] = []
    at, last, unpack = begin, end - HEAD_SIZE, END_MARK.unpack_from
    while at < last:
        magic, size = unpack(data, at)
        if magic != MAGIC or size <= HEAD_SIZE or at + size > end:
            break
        found.append(at)
        at += size
    return np.array(found, np.int64)


def ends_file(data: Data, position: int) -> bool:
    """Whether the mark of a file's end is at a position, or no space for one."""
    left = len(data) - position
    return left < END_MARK.size or END_MARK.unpack_from(data, position)[0] == END_MAGIC
