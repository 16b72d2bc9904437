"""Inner batches, which are one record with many messages, taken apart before they become rows.

In: records back to back. Out: the same, with a record for each message. Topics that keep them are few, so it
is enough that others cost one look at a column of flags.
"""

import numpy as np

from turbopump.pipelines.places import Data, Numbers, Places
from turbopump.protocol.inner import FLAGS, messages_of
from turbopump.protocol.record import decode, encode


def is_packed(places: Places) -> bool:
    return bool((places.sys_flags & FLAGS == FLAGS).any())


def taken_apart(data: Data, starts: Numbers) -> tuple[bytes, Numbers]:
    """The records at these places, and where they begin now."""
    found = [encode(message) for start in starts for message in messages_of(decode(data, int(start)))]
    ends = np.cumsum([len(one) for one in found], dtype=np.int64)
    return b"".join(found), np.concatenate((np.zeros(min(len(found), 1), np.int64), ends[:-1]))
