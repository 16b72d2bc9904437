"""Unpacks inner batches, which are one record with many messages, before they become rows.

In: records back to back. Out: the same, with one record per message. Few topics keep inner batches, so for
others this costs one look at a column of flags.
"""

from collections.abc import Iterator

import numpy as np

from turbopump.pipelines.record_positions import Data, Numbers, RecordPositions
from turbopump.protocol.inner import FLAGS, messages_of
from turbopump.protocol.record import decode, encode

MAX_BYTES_PER_TURN = 16 * 1024 * 1024
"""Bytes of records that are unpacked together: a record of 4 MiB may hold 32,767 messages."""


def turns(sizes: Numbers) -> Iterator[slice]:
    """Yields slices of consecutive records with at most MAX_BYTES_PER_TURN bytes, or of one larger record."""
    begin = total = 0
    for number, size in enumerate(sizes.tolist()):
        if number > begin and total + size > MAX_BYTES_PER_TURN:
            yield slice(begin, number)
            begin, total = number, 0
        total += size
    yield slice(begin, len(sizes))


def has_inner_batches(places: RecordPositions) -> bool:
    """Tells whether any of the records is an inner batch."""
    return bool((places.sys_flags & FLAGS == FLAGS).any())


def unpack(data: Data, starts: Numbers) -> tuple[bytes, Numbers]:
    """Returns records of one message each from those at `starts`, and where each begins in these bytes."""
    found = [encode(message) for start in starts for message in messages_of(decode(data, int(start)))]
    ends = np.cumsum([len(one) for one in found], dtype=np.int64)
    return b"".join(found), np.concatenate((np.zeros(min(len(found), 1), np.int64), ends[:-1]))
