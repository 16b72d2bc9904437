"""The wheel of timers, `timerwheel`: for each unit of time, where in the log of timers its chain begins.

A file of 1,209,600 slots, as Apache's, which are reused after a fortnight. All of it can be derived from
`timerlog/`, and is derived at each start. Besides, one byte per slot in memory tells which slots are used, so
that empty times are skipped at once.

    slot   i64 time / precision | i64 first unit | i64 last unit | i32 units less recalls | i32 0
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from turbopump.runtime.disk import Disk, PlainFile

SLOTS = 7 * 86_400 * 2
SLOT = struct.Struct(">qqqii")
NO_SLOT = bytes(SLOT.size)
CHUNK = 4096 * SLOT.size
NO_SLOTS = bytes(CHUNK)


class Slot(NamedTuple):
    """One slot of the timer wheel: positions of its chain's first and last unit; its timers minus recalls."""

    first: int
    last: int
    units: int


EMPTY = Slot(-1, -1, 0)


class TimerWheel:
    """The timer wheel: a file with a slot for each unit of time, found by time in ms."""

    def __init__(self, path: str, disk: Disk, precision_ms: int) -> None:
        self._path = path
        self._disk = disk
        self._precision_ms = precision_ms
        self.slots = SLOTS
        self._occupied = bytearray(self.slots)
        self._unwritten: dict[int, bytes] = {}
        self._file: PlainFile | None = None  # made with the first write

    def begin(self, slots: Mapping[int, Slot]) -> None:
        """Replaces all slots, in memory and on disk, by the given ones, by time in ms. Raises OSError."""
        self._occupied = bytearray(self.slots)
        self._unwritten.clear()
        if self._disk.exists(self._path):
            self._clear_others(self._open(), {time_ms // self._precision_ms for time_ms in slots})
        for time_ms, slot in slots.items():
            self.put(time_ms, slot)
        self.write_out()

    def get(self, time_ms: int) -> Slot:
        index = self._index(time_ms)
        if not self._occupied[index]:
            return EMPTY
        packed = self._unwritten.get(index)
        if packed is None:
            assert self._file is not None
            packed = self._file.read_at(index * SLOT.size, SLOT.size)
        time, first, last, count, _ = SLOT.unpack(packed)
        return Slot(first, last, count) if time == time_ms // self._precision_ms else EMPTY

    def put(self, time_ms: int, slot: Slot) -> None:
        """Sets the slot of a time, in memory until `write_out`."""
        index = self._index(time_ms)
        self._unwritten[index] = SLOT.pack(time_ms // self._precision_ms, *slot, 0)
        self._occupied[index] = 1

    def write_out(self) -> None:
        """Writes the changed slots to the file, without a sync; after OSError they keep waiting."""
        if self._unwritten:
            file = self._file or self._open()
            for index, packed in self._unwritten.items():
                file.write_at(index * SLOT.size, packed)
            self._unwritten.clear()

    def empty(self, time_ms: int) -> None:
        """Marks a time's slot as unused in memory, after its units fired; the file keeps it, as in Apache."""
        self._occupied[self._index(time_ms)] = 0

    def next_after(self, time_ms: int) -> int | None:
        """Returns the next time (ms) with a used slot, within one turn of the wheel; None: all are empty."""
        index = self._index(time_ms)
        at = self._occupied.find(1, index + 1)
        if at < 0:
            at = self._occupied.find(1, 0, index)
        if at < 0:
            return None
        return time_ms - time_ms % self._precision_ms + (at - index) % self.slots * self._precision_ms

    def sync(self) -> None:
        """Syncs the file, blocking, for an orderly stop. After a crash it is rebuilt."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _index(self, time_ms: int) -> int:
        return time_ms // self._precision_ms % self.slots

    def _open(self) -> PlainFile:
        size = self.slots * SLOT.size
        file = self._disk.open_plain(self._path, create=True, size=size)
        if file.size() != size:  # Apache would not start with it
            file.truncate(0)
            file.truncate(size)
        self._file = file
        return file

    def _clear_others(self, file: PlainFile, wanted: set[int]) -> None:
        for at in range(0, self.slots * SLOT.size, CHUNK):
            chunk = file.read_at(at, CHUNK)
            if chunk == NO_SLOTS[: len(chunk)]:
                continue
            for number, (time, *_) in enumerate(SLOT.iter_unpack(chunk)):
                if time and time not in wanted:
                    file.write_at(at + number * SLOT.size, NO_SLOT)
