"""Compares the files of `commitlog/` that members of a DLedger group had before entries. Reads only."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from turbopump.runtime.disk import Disk
from turbopump.store.dispatch import Found
from turbopump.store.pieces import LogPart
from turbopump.store.scan import scan

CHUNK = 1 << 20


def compare_older(members: Mapping[str, Sequence[LogPart]], disk: Disk) -> Iterator[str]:
    """Yields what differs between the old files of members, given by directory with all files of their logs.

    A member may lack files: deleted, or never copied to it. Those that it has must be the same.
    """
    older = {
        name: {part.start: part for part in parts if not part.holds_entries}
        for name, parts in members.items()
    }
    for one, other in pairwise([name for name, parts in older.items() if parts]):
        ends = [max(part.end for part in older[name].values()) for name in (one, other)]
        if ends[0] != ends[1]:
            yield f"the old log of {one} ends at {ends[0]}, that of {other} at {ends[1]}"
        for start in sorted(older[one].keys() & older[other].keys()):
            if (at := _first_difference(older[one][start], older[other][start], disk)) is not None:
                yield f"the old logs of {one} and {other} differ at {at}"


def _first_difference(one: LogPart, other: LogPart, disk: Disk) -> int | None:
    """Returns the log offset of the first byte in which the records of two files differ; None: of none."""
    left, right = disk.open_mapped(one.path, writable=False), disk.open_mapped(other.path, writable=False)
    try:
        size = min(one.size, other.size)
        ends = [scan(file.buffer, one.start, 0, size, False, _ignore)[0] for file in (left, right)]
        for at in range(0, max(ends), CHUNK):
            stop = min(at + CHUNK, max(ends))
            a, b = bytes(left.buffer[at:stop]), bytes(right.buffer[at:stop])
            if a != b:
                return one.start + at + next(n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
        return None
    finally:
        left.close()
        right.close()


def _ignore(found: Found) -> None:
    """Takes a record of which only the size matters."""
