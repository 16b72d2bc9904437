"""Finds where the entries of a queue end in its files: pure, entries come from the caller.

Zeros follow the last entry. After a power cut also others follow, whose sectors reached the medium unasked.
Whole ones are known by where they point: to log offsets that the checkpoint does not cover. One of which only
the second part is there points to a much older offset, since its pointer begins with zeros, and can look like
the entry of a deleted message.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable

Entry = tuple[int, ...]
"""At least log offset, record size, tag code."""


def boundary(entry: Callable[[int], Entry | None], first: int, end: int, per_file: int, below: int) -> int:
    """Returns the number after the last plausible entry before `end`, by a binary search from `first` on.

    An entry is plausible if it points below log offset `below`. Most queues use little of their file: steps
    begin small.
    """
    is_beyond = _BeyondEntries(entry, below)
    low = max(first, (end - 1) - (end - 1) % per_file)  # the last file
    if is_beyond[low]:
        return bisect_left(is_beyond, 1, first, low)
    step = 1
    while low + step < end and not is_beyond[low + step]:
        low, step = low + step, step * 2
    return bisect_left(is_beyond, 1, low, min(low + step, end))


def chain_length(entries: Iterable[Entry], blank_size: int) -> int:
    """Returns how many of these entries, from the first on, are there and point to ascending log offsets.

    Entries with `blank_size` stand for messages that are in no log, and point nowhere.
    """
    last = count = 0
    for physical, size, *_ in entries:
        if size <= 0 or physical < last:
            break
        if size != blank_size:
            last = physical
        count += 1
    return count


class _BeyondEntries:
    """Sequence view of a queue for `bisect`: item n is 0 where an entry is plausible, else 1."""

    def __init__(self, entry: Callable[[int], Entry | None], below: int) -> None:
        self._entry = entry
        self._below = below

    def __len__(self) -> int:
        raise NotImplementedError  # `bisect` is given both ends

    def __getitem__(self, offset: int) -> int:
        entry = self._entry(offset)
        return 0 if entry is not None and 0 <= entry[0] < self._below and entry[1] > 0 else 1
