"""The commit log of a store that is not in use, read without opening the store.

In: a store directory, ours or Apache's. Out: where its log begins and ends, bytes of it, and where its
records begin. Reads only.
"""

from collections.abc import Callable, Iterator

from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.record import Record, decode
from turbopump.runtime.disk import Disk
from turbopump.store.dispatch import Found
from turbopump.store.location import refuse_dledger
from turbopump.store.pieces import LogPart, log_parts, part_of
from turbopump.store.scan import BLANK, scan

HEAD = 8  # bytes of a file that tell whether anything was written to it


class StoppedLog:
    """The log of a store that is not in use, read from its directory."""

    def __init__(self, directory: str, disk: Disk, log_dir: str = "") -> None:
        self._disk = disk
        refuse_dledger(directory, disk, "a comparison of logs")
        parts = log_parts(log_dir or f"{directory}/commitlog", disk)
        self._parts = [part for part in parts if any(part_of(disk, part.path, 0, HEAD))]
        self._ends: dict[int, int] = {}  # of the records in each file, by the file's start

    @property
    def is_empty(self) -> bool:
        return not self._parts

    @property
    def min_offset(self) -> int:
        """Log offset of the first byte."""
        return self._parts[0].start if self._parts else 0

    @property
    def end(self) -> int:
        """Log offset behind the last whole record."""
        return self._end_of(self._parts[-1]) if self._parts else 0

    @property
    def starts(self) -> list[int]:
        """Log offsets at which files begin, and so records."""
        return [part.start for part in self._parts]

    def read(self, begin: int, end: int) -> bytes:
        """Returns the log bytes [begin, end), across files too, as far as the log has them."""
        pieces = []
        for part in self._parts:
            low, high = max(begin, part.start), min(end, part.end)
            if low < high:
                pieces.append(part_of(self._disk, part.path, low - part.start, high - low))
        return b"".join(pieces)

    def records(self, begin: int) -> Iterator[tuple[int, int]]:
        """Yields offset and size of the records that end behind `begin`, in order."""
        for part in self._parts:
            if part.end > begin:
                for offset, size in self._records_of(part):
                    if offset + size > begin:
                        yield offset, size

    def boundary(self, offset: int) -> int:
        """Returns the last place at or before `offset` where a record begins, or the log ends."""
        if offset >= self.end:
            return self.end
        for begin, _ in self.records(offset):
            return min(begin, offset)
        return self.end

    def record(self, offset: int) -> Record | None:
        """Returns the record that begins at an offset; None when none does."""
        for part in self._parts:
            if part.start <= offset < part.end:
                try:
                    found = decode(part_of(self._disk, part.path, offset - part.start, part.end - offset))
                except BrokenRecord:
                    return None
                return found if found.physical_offset == offset else None
        return None

    def _records_of(self, part: LogPart) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []

        def keep(one: Found) -> None:
            found.append((one[3], one[4]))

        self._scan(part, keep)
        return found

    def _end_of(self, part: LogPart) -> int:
        if part.start not in self._ends:
            self._scan(part, lambda found: None)
        return self._ends[part.start]

    def _scan(self, part: LogPart, each: Callable[[Found], None]) -> None:
        mapped = self._disk.open_mapped(part.path, writable=False)
        try:
            position, ended_by = scan(mapped.buffer, part.start, 0, part.size, True, each)
        finally:
            mapped.close()
        self._ends[part.start] = part.end if ended_by == BLANK else part.start + position
