"""Inner batches, which are one record with many messages, taken apart before they become rows.

In: records back to back. Out: the same, with a record for each message. Topics that keep them are few, so it
is enough that others cost one look at a column of flags.
"""

from collections.abc import Iterator

import numpy as np

from turbopump.pipelines.record_positions import Data, Numbers, RecordPositions
from turbopump.protocol.inner import FLAGS, messages_of
from turbopump.protocol.record import decode, encode

MAX_BYTES_PER_TURN = 16 * 1024 * 1024
"""Bytes of records that are taken apart together: a record of 4 MiB may have 32,767 messages."""


def turns(sizes: Numbers) -> Iterator[slice]:
    """Records of such sizes in runs of at most so many bytes, or of one record."""
    begin = total = 0
    for number, size in enumerate(sizes.tolist()):
        if number > begin and total + size > MAX_BYTES_PER_TURN:
            yield slice(begin, number)
            begin, total = number, 0
        total += size
    yield slice(begin, len(sizes))


def has_inner_batches(places: RecordPositions) -> bool:
    return bool((places.sys_flags & FLAGS == FLAGS).any())


def unpack(data: Data, starts: Numbers) -> tuple[bytes, Numbers]:
    """The records at these places, and where they begin now."""
    found = [encode(message) for start in starts for message in messages_of(decode(data, int(start)))]
    ends = np.cumsum([len(one) for one in found], dtype=np.int64)
    return b"".join(found), np.concatenate((np.zeros(min(len(found), 1), np.int64), ends[:-1]))
