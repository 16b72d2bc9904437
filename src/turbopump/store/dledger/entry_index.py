"""The index of DLedger's log: 32 bytes for each entry, that of index n at n * 32.

In: units as bytes. Out: the place of an entry by its index. Everything in it can be derived from the data
files, so a damaged index is built again. Which entries there are is the business of `entry_log.py`.
"""

import logging
import os

from turbopump.protocol.dledger.entry import UNIT, UNIT_SIZE, EntryUnit, read_unit
from turbopump.runtime.disk import Disk, MappedFile
from turbopump.store.commit_log import COPY_SLICE, ZEROS, ClearedBytes, Directory, Syncable
from turbopump.store.errors import UnusableStore
from turbopump.store.segment import LogFiles

OPEN_FILES = 8  # maps of older index files: 1.3 GB of addresses, no memory

log_line = logging.getLogger("turbopump.store")


class EntryIndex:
    """Files of units, mapped as a whole."""

    def __init__(self, directory: str, units_per_file: int, disk: Disk, syncs_each: bool) -> None:
        self.directory = directory
        self._file_size = units_per_file * UNIT_SIZE
        self._disk = disk
        self._syncs_each = syncs_each
        self._files = self._new_files()

    def load(self) -> bool:
        """Finds the files; False: they could not be used and were removed, so units have to be written."""
        try:
            self._files.load()
        except UnusableStore as error:
            log_line.warning("The index of DLedger's log is built again from its entries: %s", error)
            self.clear()
            return False
        return True

    def clear(self) -> None:
        """Removes all files, durably."""
        self.close()  # those made ahead too: one that stays open keeps its space
        if self._disk.exists(self.directory):
            self._disk.remove_tree(self.directory)
            self._disk.sync_dir(os.path.dirname(self.directory))
        self._files = self._new_files()

    def unit(self, index: int) -> EntryUnit | None:
        """Returns the unit of an entry; None when no file reaches there."""
        at = index * UNIT_SIZE
        position = at % self._file_size
        if index < 0 or not self._files.has(at - position):
            return None
        return read_unit(self._files.mapped(at - position).buffer, position)

    def extent(self, index: int) -> tuple[int, int]:
        """Returns offset and size of an entry that the log has."""
        at = index * UNIT_SIZE
        position = at % self._file_size
        _, pos, size, found, _ = UNIT.unpack_from(self._files.mapped(at - position).buffer, position)
        assert found == index, f"the index has another entry than {index}"
        return pos, size

    # writing

    def reserve(self, index: int, count: int) -> None:
        """Creates the files that units from `index` on need, or raises OSError; then writing cannot fail."""
        begin, end = index * UNIT_SIZE, (index + count) * UNIT_SIZE
        for start in range(begin - begin % self._file_size, end, self._file_size):
            if not self._files.has(start):
                self._files.create_ahead(start)

    def write(self, index: int, units: bytes | bytearray) -> None:
        """Writes units that follow one another, the first for `index`."""
        at, done = index * UNIT_SIZE, 0
        while done < len(units):
            position = at % self._file_size
            size = min(len(units) - done, self._file_size - position)
            buffer = self._file(at - position).buffer
            buffer[position : position + size] = units[done : done + size]
            at, done = at + size, done + size

    def correct(self, index: int, units: bytes | bytearray) -> None:
        """Writes units that are not there already: an index that is right stays as it is on the medium."""
        at, done = index * UNIT_SIZE, 0
        while done < len(units):
            position = at % self._file_size
            size = min(len(units) - done, self._file_size - position)
            buffer = self._file(at - position).buffer
            if buffer[position : position + size] != units[done : done + size]:
                buffer[position : position + size] = units[done : done + size]
            at, done = at + size, done + size

    def _file(self, start: int) -> MappedFile:
        return self._files.mapped(start) if self._files.has(start) else self._files.append_file(start)

    # shortening

    def cut(self, index: int, end: int | None = None) -> list[Syncable]:
        """Removes the units from `index` on; returns what to sync before that is durable.

        `end`: index behind the last unit that there can be; without it all files are looked at.
        """
        at = index * UNIT_SIZE
        while self._files.starts and self._files.starts[-1] >= at:
            self._files.remove(self._files.starts[-1])
        start = at - at % self._file_size
        if not self._files.has(start):
            return []
        mapped = self._files.mapped(start)
        stop = self._file_size if end is None else min(self._file_size, end * UNIT_SIZE - start)
        for low in range(at - start, stop, COPY_SLICE):
            high = min(low + COPY_SLICE, stop)
            if mapped.buffer[low:high] != ZEROS[: high - low]:
                mapped.buffer[low:high] = ZEROS[: high - low]
        return [ClearedBytes(mapped, at - start, stop)]

    def remove_before(self, index: int) -> None:
        """Removes the files that hold only units of entries before `index`, durably."""
        files = self._files
        while len(files.starts) > 1 and files.starts[0] + self._file_size <= index * UNIT_SIZE:
            files.remove(files.starts[0])

    # making durable

    def unsynced(self, begin: int, end: int) -> list[Syncable]:
        """Returns what to sync to have the units [begin, end) on the medium."""
        found: list[Syncable] = []
        if self._files.has_unsynced_names(end * UNIT_SIZE):
            found.append(Directory(self._disk, self.directory))
        return [*found, *self._mapped(begin, end)]

    def mark_synced(self, end: int) -> None:
        self._files.names_synced(end * UNIT_SIZE)
        self._files.pinned_from = end * UNIT_SIZE - end * UNIT_SIZE % self._file_size

    def dirty_again(self, begin: int, end: int) -> None:
        """Rewrites units in place after a failed sync, so that the next one writes them again."""
        for mapped in self._mapped(begin, end):
            start = int(os.path.basename(mapped.path))
            low = max(begin * UNIT_SIZE - start, 0)
            high = min(end * UNIT_SIZE - start, self._file_size)
            mapped.buffer[low:high] = mapped.buffer[low:high]

    def _mapped(self, begin: int, end: int) -> list[MappedFile]:
        first = begin * UNIT_SIZE - begin * UNIT_SIZE % self._file_size
        starts = range(first, end * UNIT_SIZE, self._file_size)
        return [self._files.mapped(start) for start in starts if self._files.has(start)]

    def close(self) -> None:
        self._files.drop_ahead()
        self._files.close()

    def _new_files(self) -> LogFiles:
        return LogFiles(self.directory, self._file_size, self._disk, OPEN_FILES, self._syncs_each)
