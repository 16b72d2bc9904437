"""Extension files of consume queues, as Apache writes them with `enableConsumeQueueExt`.

An entry's tag code at or below -2^31-1 is then an address: -2^63 plus the position, in the queue's extension
files, of

    i16 size | i64 tag code | i64 store time | i16 length + filter bit map

A unit leaves four bytes of its file free; where it does not fit, there is an i16 of -1 and the unit begins
the next file. Without that setting tag codes are in the entries themselves; both may be in one queue. All
that units hold is also in the log: losing them costs time, not data.
"""

import os
import struct
from collections.abc import Callable
from typing import NamedTuple

from turbopump.runtime.disk import Disk, PlainFile
from turbopump.store.segment import NAME_DIGITS, file_name

UNIT = struct.Struct(">hqqh")
END_OF_FILE = struct.pack(">h", -1)
LEFT_FREE = 4
HIGHEST_ADDRESS = -(2**31) - 1
ADDRESS_BASE = -(2**63)
CHUNK = 1 << 16  # bytes of one read: units are read one after the other
SWEEP_CHUNK = 1 << 12


class ExtUnit(NamedTuple):
    """Extension unit of one queue entry: tag code, store time (ms) and filter bit map."""

    tags_code: int
    store_timestamp: int
    bit_map: bytes

    @property
    def size(self) -> int:
        return UNIT.size + len(self.bit_map)


class Bits(NamedTuple):
    """Bits of a group's filter: a wanted message has all of them in its bit map, if `size` bytes long.

    Bit maps of messages that were stored before `born_ms` say nothing about the group.
    """

    mask: int
    size: int
    born_ms: int

    def exclude(self, unit: ExtUnit | None) -> bool:
        """Returns whether a unit's bit map proves that the group does not want the message."""
        return (
            unit is not None
            and len(unit.bit_map) == self.size
            and unit.store_timestamp > self.born_ms
            and int.from_bytes(unit.bit_map, "little") & self.mask != self.mask
        )


def is_address(tags_code: int) -> bool:
    return tags_code <= HIGHEST_ADDRESS


class Extension:
    """The extension files of one queue. Units wait in memory until `write_out`."""

    def __init__(
        self,
        directory: str,
        file_size: int,
        disk: Disk,
        written: Callable[[str, bool], None] = lambda path, is_new: None,
    ) -> None:
        self._directory = directory
        self._file_size = file_size
        self._disk = disk
        self._written = written  # called with each file that was written, and whether it is new
        self._waiting: dict[int, bytes] = {}
        self._position = -1  # of the next unit; -1: not looked for yet
        self._chunk = b""
        self._chunk_at = 0

    # reading

    def tags_code(self, address: int) -> int | None:
        unit = self.unit(address)
        return None if unit is None else unit.tags_code

    def unit(self, address: int) -> ExtUnit | None:
        position = address - ADDRESS_BASE
        waiting = self._waiting.get(position)
        return _unit(waiting, 0) if waiting is not None else self._read(position)

    def _read(self, position: int) -> ExtUnit | None:
        at = position - self._chunk_at
        if at >= 0 and (found := _unit(self._chunk, at)) is not None:
            return found
        self._chunk = self._bytes(position, CHUNK)
        self._chunk_at = position
        return _unit(self._chunk, 0)

    def _bytes(self, position: int, length: int) -> bytes:
        at = position % self._file_size
        try:
            file = self._disk.open_plain(self._path(position - at))
        except OSError:
            return b""
        try:
            return file.read_at(at, min(length, self._file_size - at))
        finally:
            file.close()

    # writing

    def open(self, last: int | None) -> None:
        """Continues after the unit with address `last`, of the queue's last entry, dropping what follows.

        None: the last entry has no unit, and the files continue after their last one.
        """
        for entry in self._disk.entries(self._directory):
            if not entry.size:  # a crash came before its length was on the medium
                self._disk.remove(os.path.join(self._directory, entry.name))
        if last is None:
            self.cut(self._end())
            return
        position, unit = last - ADDRESS_BASE, self.unit(last)
        if unit is not None:
            self.cut(position + unit.size)
        else:  # lost in a crash: entries before it may point anywhere below it
            self.cut(position - position % self._file_size + self._file_size)

    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int:
        """Adds a unit, in memory until `write_out`, and returns its address."""
        assert self._position >= 0, "opened before"
        size = UNIT.size + len(bit_map)
        left = self._file_size - self._position % self._file_size
        if size > left - LEFT_FREE:
            self._waiting[self._position] = END_OF_FILE
            self._position += left
        position = self._position
        self._waiting[position] = UNIT.pack(size, tags_code, store_timestamp, len(bit_map)) + bit_map
        self._position += size
        return position + ADDRESS_BASE

    def write_out(self) -> None:
        """Writes the waiting units to files, without a sync; after OSError (full disk) they keep waiting."""
        run, begin = bytearray(), 0
        for position, unit in self._waiting.items():
            if position != begin + len(run) or position % self._file_size == 0:
                self._write(begin, run)
                run, begin = bytearray(), position
            run += unit
        self._write(begin, run)
        self._waiting.clear()
        self._chunk = b""

    def _write(self, position: int, data: bytes | bytearray) -> None:
        if not data:
            return
        at = position % self._file_size
        path = self._path(position - at)
        is_new = not self._disk.exists(path)
        file = self._disk.open_plain(path, True, self._file_size)
        try:
            self._written(path, is_new)
            file.write_at(at, data)
        finally:
            file.close()

    # removing

    def cut(self, position: int) -> None:
        """Removes all units from `position` on, in memory and on disk; the next unit goes there."""
        self._waiting = {at: unit for at, unit in self._waiting.items() if at < position}
        self._position = position
        self._chunk = b""
        for start in self._starts():
            if start >= position and start > 0:
                self._disk.remove(self._path(start))
        at = position % self._file_size
        if self._disk.exists(self._path(position - at)):
            file = self._disk.open_plain(self._path(position - at))
            try:
                self._clear(file, at)
            finally:
                file.close()

    def _clear(self, file: PlainFile, at: int) -> None:
        """Zeroes a file from position `at` up to the first 4 KiB that are zero already.

        Bytes behind those are overwritten before they are read.
        """
        while at < self._file_size:
            length = min(SWEEP_CHUNK, self._file_size - at)
            if file.read_at(at, length) == bytes(length):
                break
            self._written(file.path, False)
            file.write_at(at, bytes(length))
            at += length

    def delete_before(self, address: int) -> None:
        """Removes the files whose units are all before this address."""
        position = address - ADDRESS_BASE
        for start in self._starts():
            if start + self._file_size < position:
                self._disk.remove(self._path(start))

    def clear(self) -> None:
        self._disk.remove_tree(self._directory)
        self._waiting.clear()
        self._position, self._chunk = 0, b""

    def _end(self) -> int:
        """Returns the position after the last unit of the last file."""
        starts = self._starts()
        position = starts[-1] if starts else 0
        end = position + self._file_size
        while position < end and (unit := self._read(position)) is not None:
            position += unit.size
        return position

    def _starts(self) -> list[int]:
        names = (entry.name for entry in self._disk.entries(self._directory))
        return sorted(int(name) for name in names if len(name) == NAME_DIGITS and name.isdecimal())

    def _path(self, start: int) -> str:
        return os.path.join(self._directory, file_name(start))


def _unit(data: bytes, at: int) -> ExtUnit | None:
    if len(data) < at + UNIT.size:
        return None
    size, tags_code, store_timestamp, length = UNIT.unpack_from(data, at)
    begin, end = at + UNIT.size, at + size
    if length < 0 or size != UNIT.size + length or end > len(data):
        return None
    return ExtUnit(tags_code, store_timestamp, data[begin:end])
