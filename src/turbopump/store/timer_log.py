"""The log of timers, `timerlog/`: one unit for each waiting message, in the order of the commit log.

In: units. Out: units by position. The units of one slot of the wheel (`timer_wheel.py`) are chained from the
last to the first. Files have full size, as Apache's. Appended units wait in memory until `write_out`, and are
safe after a sync. Messages are not known here.

    unit   i32 52 | i64 unit before it in its slot, -1: none | i32 magic | i64 time of writing | i32 time of
           its slot less that | i64 record in the commit log | i32 its size | i32 hash of its topic | i64 the
           exact time
    blank  i32 bytes to the end of the file | i64 0 | i32 0xCBD43194

The last number is reserved and 0 in Apache's units; in ours it is the millisecond in which a message is due.
A unit that must not fire any more becomes one that recalls nothing, for Apache as well as for us.
"""

import logging
import os
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from turbopump.runtime.disk import Disk, PlainFile
from turbopump.store.segment import NAME_DIGITS, file_name

log = logging.getLogger(__name__)

UNIT = struct.Struct(">iqiqiqiiq")
UNIT_SIZE = UNIT.size
BLANK = struct.Struct(">iqi")
BLANK_MAGIC = 0xCBD43194 - (1 << 32)
PREVIOUS_AT, PREVIOUS = 4, struct.Struct(">q")
MAGIC_AT, MAGIC = 12, struct.Struct(">i")
EXACT_AT, EXACT = 44, struct.Struct(">q")

DEFAULT, ROLL, RECALL = 1, 2, 4
DEAD = DEFAULT | RECALL
NONE = -1  # no previous unit
MAX_SLOT_MS = 1_000
UNKNOWN = 1 << 63  # above every offset

REWRITTEN = 1 << 20
BLOCK = 1 << 16  # bytes of one read
CHAIN_BLOCK = 1 << 12  # bytes of one read along a chain: its units may be near one another, or far

KEPT = (
    "Cannot tell whether %s has timers that still wait; it is kept, since its last unit is damaged. "
    "`turbopump store verify` shows the damage"
)


class Unit(NamedTuple):
    """A unit of the timer log: one waiting message, by its record in the commit log, and its slot."""

    previous: int
    magic: int
    written_ms: int
    slot_after_ms: int
    offset: int
    size: int
    topic_hash: int
    exact_ms: int

    @property
    def slot_ms(self) -> int:
        return self.written_ms + self.slot_after_ms

    @property
    def is_sound(self) -> bool:
        """Whether the fields are plausible: no checksum guards a unit, but this shows most damage."""
        return (
            0 < self.magic < 2 * RECALL
            and self.written_ms > 0
            and self.slot_after_ms >= 0
            and self.offset >= 0 < self.size
            and (self.rolls or 0 <= self.exact_ms <= self.slot_ms + MAX_SLOT_MS)
        )

    @property
    def rolls(self) -> bool:
        """Whether the message is due beyond the end of the wheel and re-enters it at its slot's time."""
        return self.magic & ROLL != 0

    @property
    def recalls(self) -> bool:
        """Whether the unit recalls another message; a unit that rolls does not, as in Apache."""
        return self.magic & RECALL != 0 and not self.rolls


class TimerFiles(NamedTuple):
    """The files of `timerlog/` by start: those that form the log, the others, and the size of one."""

    starts: list[int]
    """The oldest file and those that follow it without a gap, all of one size."""
    strays: list[int]
    """All others."""
    size: int
    """Size of a file; 0: there is none."""


def files_of(directory: str, disk: Disk) -> TimerFiles:
    """Lists the files of `timerlog/`; if the first has an impossible size or start, all are strays."""
    found = [
        (int(entry.name), entry.size)
        for entry in disk.entries(directory)
        if len(entry.name) == NAME_DIGITS and entry.name.isdecimal() and not entry.is_dir
    ]
    size = found[0][1] if found else 0
    if size < UNIT_SIZE + BLANK.size or found[0][0] % size:
        return TimerFiles([], [start for start, _ in found], 0)
    starts: list[int] = []
    while len(starts) < len(found) and found[len(starts)] == (found[0][0] + len(starts) * size, size):
        starts.append(found[len(starts)][0])
    return TimerFiles(starts, [start for start, _ in found[len(starts) :]], size)


Read = Callable[[int, int, int], bytes]
"""Reads bytes of a file: its start, the position in it, the length."""


def walk_units(at: int, file_size: int, starts: list[int], read: Read) -> Iterator[tuple[int, Unit]]:
    """Yields position and unit of all units from `at` on, up to the end or the first damage."""
    last_offset = -1
    while at // file_size * file_size in starts:
        start = at - at % file_size
        block = read(start, at - start, BLOCK // UNIT_SIZE * UNIT_SIZE)
        usable = len(block) - len(block) % UNIT_SIZE
        for size, *rest in UNIT.iter_unpack(block[:usable]):
            unit = Unit(*rest)
            if size != UNIT_SIZE or unit.previous >= at or not unit.is_sound:
                if unit.magic == BLANK_MAGIC and size == start + file_size - at:
                    at = start + file_size
                    break
                return
            if unit.offset <= last_offset:
                return
            last_offset = unit.offset
            yield at, unit
            at += UNIT_SIZE
        else:
            if len(block) < UNIT_SIZE:  # too short for a blank: the file ends here
                at = start + file_size


class TimerLog:
    """The timer log: appends units of waiting messages and reads them by position."""

    def __init__(self, directory: str, file_size: int, disk: Disk) -> None:
        """Opens the log. `file_size` is used if there are no files yet; existing ones keep their size."""
        self._directory = directory
        self._disk = disk
        self._has_new_names = False  # files whose names are not synced yet
        self._files: dict[int, PlainFile] = {}
        self._unsynced: set[int] = set()
        self._doubtful: set[int] = set()  # files that a warning named
        self._tail = bytearray()
        found = files_of(directory, disk)
        self._starts, self._strays = found.starts, found.strays
        self.file_size = found.size or file_size
        self.begin = self._starts[0] if self._starts else 0
        self._written = self.begin  # position of the tail
        self._block = (0, b"")

    @property
    def end(self) -> int:
        """Position of the next unit, unless it does not fit into its file."""
        return self._written + len(self._tail)

    # writing

    def next_place(self, end: int) -> int:
        """Returns where the unit after position `end` begins: there, or in the next file."""
        left = self.file_size - end % self.file_size
        return end if left >= UNIT_SIZE + BLANK.size else end + left

    def append(self, unit: Unit) -> int:
        """Appends a unit, in memory until `write_out`, and returns its position."""
        if left := self.next_place(self.end) - self.end:
            self._tail += BLANK.pack(left, 0, BLANK_MAGIC).ljust(left, b"\0")
        at = self.end
        self._tail += UNIT.pack(UNIT_SIZE, *unit)
        return at

    def write_out(self) -> None:
        """Writes the waiting units to files, without a sync; after OSError the rest keeps waiting."""
        while self._tail:
            start = self._written - self._written % self.file_size
            part = self._tail[: start + self.file_size - self._written]
            self._file(start, create=True).write_at(self._written - start, part)
            self._unsynced.add(start)
            self._block = (0, b"")
            self._written += len(part)
            del self._tail[: len(part)]

    def disable(self, at: int) -> None:
        """Marks the unit at a position so that it never fires; it stays in the chain of its slot."""
        self._patch(at + EXACT_AT, EXACT.pack(0))
        self._patch(at + MAGIC_AT, MAGIC.pack(DEAD))

    def relink(self, at: int, previous: int) -> None:
        """Sets the previous unit of the unit at `at`, which was written when slots had another length."""
        self._patch(at + PREVIOUS_AT, PREVIOUS.pack(previous))

    def _patch(self, at: int, data: bytes) -> None:
        self.write_out()
        start = at - at % self.file_size
        self._file(start).write_at(at - start, data)
        self._unsynced.add(start)
        self._block = (0, b"")

    def cut(self, end: int) -> None:
        """Removes everything from position `end` on, also bytes that could be taken for units."""
        self._tail.clear()
        self._block = (0, b"")
        for start in self._strays:
            self._disk.remove(self._path(start))
        self._strays.clear()
        for start in [start for start in self._starts if start >= end and start > self.begin]:
            self._remove(start)
        if self._starts:
            start = self._starts[-1]
            file = self._file(start)
            file.truncate(max(end - start, 0))
            file.truncate(self.file_size)
            self._unsynced.add(start)
        self._written = max(end, self.begin)

    def to_sync(self) -> list[PlainFile]:
        """Returns the files with unsynced bytes, and forgets them: the caller syncs them in a thread."""
        files = [self._file(start) for start in sorted(self._unsynced) if start in self._starts]
        self._unsynced.clear()
        return files

    def sync_names(self) -> None:
        """Syncs the directory if it has new files, before their contents count as safe. Blocks.

        Called in a worker thread.
        """
        if not self._has_new_names:
            return
        self._has_new_names = False  # first: the loop may make another file meanwhile
        try:
            self._disk.sync_dir(self._directory)
            self._disk.sync_dir(os.path.dirname(self._directory))
        except OSError:
            self._has_new_names = True
            raise

    def sync_failed(self, files: list[PlainFile]) -> None:
        """Rewrites files whose sync failed and counts them as unsynced again. Raises OSError.

        Their pages may count as clean now.
        """
        for file in files:
            start = int(os.path.basename(file.path))
            if start in self._starts:
                self._unsynced.add(start)
                for at in range(0, min(self.file_size, self._written - start), REWRITTEN):
                    file.write_at(at, file.read_at(at, REWRITTEN))

    def delete_before(self, log_min: int) -> None:
        """Removes files whose units all point to commit log offsets below `log_min`, never the last file.

        A file of which this cannot be told, because units are damaged, is kept with a warning.
        """
        while len(self._starts) > 1 and self._last_offset(self._starts[0]) < log_min:
            self._remove(self._starts[0])
            self.begin = self._starts[0]

    # reading

    def unit(self, at: int) -> Unit | None:
        """Returns the unit at a position, also an unsound one; None when there is none."""
        if not self.begin <= at or at + UNIT_SIZE > self.end:
            return None
        if at >= self._written:
            found = UNIT.unpack_from(self._tail, at - self._written)
        else:
            base, block = self._block
            if not base <= at <= base + len(block) - UNIT_SIZE:
                base, block = self._read_block(at)
            found = UNIT.unpack_from(block, at - base)
        return Unit(*found[1:]) if found[0] == UNIT_SIZE and found[1] < at else None

    def scan(self, at: int | None = None) -> Iterator[tuple[int, Unit]]:
        """Yields position and unit of all units from `at` on, up to the end or the first damage."""
        self.write_out()
        at = self.begin if at is None else at
        return walk_units(at, self.file_size, self._starts, self._read)

    def _read(self, start: int, at: int, length: int) -> bytes:
        return self._file(start).read_at(at, length)

    def _read_block(self, at: int) -> tuple[int, bytes]:
        """Reads up to 4 KiB that end with the unit at `at`; returns their position and bytes.

        Chains go backwards.
        """
        start = at - at % self.file_size
        base = max(start, at + UNIT_SIZE - CHAIN_BLOCK)
        self._block = base, self._file(start).read_at(base - start, at + UNIT_SIZE - base)
        return self._block

    def _last_offset(self, start: int) -> int:
        """Returns an upper bound of the commit log offsets in a full file: the offset in its last unit.

        If that is unreadable, one less than the offset in the first unit of a later file, since offsets
        ascend; if all these are unreadable, UNKNOWN.
        """
        count = (self.file_size - BLANK.size) // UNIT_SIZE
        if (last := self._sound_unit(start + (count - 1) * UNIT_SIZE)) is not None:
            return last.offset
        for later in self._starts:
            if later > start and (first := self._sound_unit(later)) is not None:
                return first.offset - 1
        if start not in self._doubtful:
            self._doubtful.add(start)
            log.warning(KEPT, self._path(start))
        return UNKNOWN

    def _sound_unit(self, at: int) -> Unit | None:
        unit = self.unit(at)
        return unit if unit is not None and unit.is_sound else None

    # files

    def _file(self, start: int, create: bool = False) -> PlainFile:
        file = self._files.get(start)
        if file is None:
            file = self._files[start] = self._disk.open_plain(self._path(start), create, self.file_size)
            if start not in self._starts:
                self._starts.append(start)
                self._has_new_names = True
        return file

    def _remove(self, start: int) -> None:
        self._starts.remove(start)
        self._unsynced.discard(start)
        if (file := self._files.pop(start, None)) is not None:
            file.close()
        self._disk.remove(self._path(start))

    def _path(self, start: int) -> str:
        return os.path.join(self._directory, file_name(start))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
