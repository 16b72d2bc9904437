"""The commit log's files: found, mapped when needed, created ahead of need, removed from the front.

A file is named by the log offset of its first byte, in 20 digits, and has exactly the configured size. The
files follow one another without a gap. A bounded number of older ones is mapped at a time; those that still
have bytes to be synced stay mapped. What a file holds is not known here.
"""

import contextlib
import errno
import itertools
import mmap
import os
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass

from turbopump.runtime.disk import Buffer, Disk, Entry, MappedFile
from turbopump.store.errors import UnusableStore

NAME_DIGITS = 20
IGNORED = ("lost+found",)
SLICE = 1 << 20
UNFINISHED = "unfinished"  # a copy on its way, in the directory of what is set aside
MADV_POPULATE_WRITE = 23  # not named in the mmap module of Python 3.11


def file_name(start: int) -> str:
    return f"{start:0{NAME_DIGITS}d}"


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file: its bytes, the start of the file, and the positions [begin, end)."""

    buffer: Buffer
    start: int
    begin: int
    end: int


class LogFiles:
    """A sequence of files of one size. With `older_dir` it begins there and goes on in `directory`."""

    def __init__(
        self,
        directory: str,
        file_size: int,
        disk: Disk,
        open_limit: int,
        syncs_each: bool = True,
        older_dir: str = "",
    ) -> None:
        self.directory = directory
        self.divided_at = 0  # files that start below it are in the older directory
        self._older_dir = older_dir
        # A sync after every few records must not write 2 MiB for each: small pages. Two syncs a second may,
        # and large pages cost less to write back (measured: 2 us less per message of 1 KiB).
        self._writing_advice = "MADV_RANDOM" if syncs_each else "MADV_NORMAL"
        self.file_size = file_size
        self.starts: list[int] = []
        self.pinned_from = 0  # files from here on have bytes to be synced and stay mapped
        self._disk = disk
        self._open_limit = max(2, open_limit)
        self._maps: OrderedDict[int, MappedFile] = OrderedDict()
        self._creating = threading.Lock()  # one file is made by one thread; see `create_ahead`
        self._ahead: dict[int, MappedFile] = {}
        self._unsynced_names: set[int] = set()  # starts of files whose names a power failure may take
        self.removed_from: set[str] = set()  # directories to sync, so that removed names do not come back

    def load(self) -> None:
        """Sets `starts` to the log's files; removes an unfinished last one. Raises UnusableStore."""
        self.starts = self._starts_in(self.directory)
        if self._older_dir:
            self._load_older()
        for before, after in itertools.pairwise(self.starts):
            if after != before + self.file_size:
                raise UnusableStore(
                    f"the commit log has a gap: {self.path(before + self.file_size)} is missing, but "
                    f"{file_name(after)} is there. Put the missing file back, or move the files before or "
                    f"after the gap out of {self.directory}"
                )

    def _starts_in(self, directory: str) -> list[int]:
        found = [
            entry
            for entry in self._disk.entries(directory)
            if not entry.name.startswith(".") and entry.name not in IGNORED
        ]
        if found and _is_name(found[-1]) and self._is_unfinished(directory, found[-1]):
            self._disk.remove(os.path.join(directory, found.pop().name))
        return [self._checked_start(directory, entry) for entry in found]

    def _load_older(self) -> None:
        """Puts the files of the older directory first; `divided_at` is where the newer files begin."""
        older = self._starts_in(self._older_dir)
        self.divided_at = older[-1] + self.file_size if older else 0
        if self.starts:
            self.divided_at = self.starts[0]
        self.starts = [start for start in older if start < self.divided_at] + self.starts

    def directory_of(self, start: int) -> str:
        """Returns the directory that has, or gets, the file at `start`."""
        return self._older_dir if start < self.divided_at else self.directory

    def path(self, start: int) -> str:
        return os.path.join(self.directory_of(start), file_name(start))

    def has(self, start: int) -> bool:
        starts = self.starts
        return bool(starts) and starts[0] <= start <= starts[-1] and start % self.file_size == 0

    def mapped(self, start: int) -> MappedFile:
        found = self._maps.get(start)
        if found is not None:
            self._maps.move_to_end(start)
            return found
        assert self.has(start), f"no commit log file starts at {start}"
        found = self._disk.open_mapped(self.path(start))
        if start != self.starts[-1]:
            _advise(found.buffer, "MADV_NORMAL")  # older files are read from front to back
        return self._keep(start, found)

    def reading_ahead(self, start: int) -> MappedFile:
        """Returns the mapped file at `start`, advising the kernel that it is read from front to back."""
        mapped = self.mapped(start)
        _advise(mapped.buffer, "MADV_NORMAL")
        return mapped

    def for_writing(self, start: int) -> MappedFile:
        """Returns the mapped file at `start`, the last one, advising the kernel that it is written to."""
        mapped = self.mapped(start)
        _advise(mapped.buffer, self._writing_advice)
        return mapped

    def append_file(self, start: int) -> MappedFile:
        """Adds the next file, made ahead or now, to the log and returns it. Raises OSError on a full disk."""
        with self._creating:
            made = self._ahead.pop(start, None)
            if made is None:
                made = self._create(start)
            self.starts.append(start)
        _advise(made.buffer, self._writing_advice)
        return self._keep(start, made)

    def create_ahead(self, start: int) -> None:
        """Creates the file that starts at `start` for a later `append_file`; no-op if the log has it."""
        with self._creating:
            is_late = bool(self.starts) and start <= self.starts[-1]  # it may even have been deleted again
            if start not in self._ahead and not is_late:
                self._ahead[start] = self._create(start)

    def create_durably(self, start: int) -> None:
        """Creates a file ahead and syncs its name. Blocks, so it is called in a worker thread.

        The sync holds no lock, so that the append loop never waits for it.
        """
        self.create_ahead(start)
        names = tuple(self._unsynced_names)
        if names:
            self._disk.sync_dir(self.directory)
            self._unsynced_names.difference_update(names)

    def _create(self, start: int) -> MappedFile:
        """Creates and maps a file; its name becomes durable with its first sync, by the flusher.

        Of several such names, file systems keep the earlier ones: the log has no gap after a power failure.
        """
        made = self._disk.create_mapped(self.path(start), self.file_size, durable_name=False)
        self._unsynced_names.add(start)
        return made

    def has_unsynced_names(self, below: int) -> bool:
        return any(start < below for start in tuple(self._unsynced_names))

    def names_synced(self, below: int) -> None:
        self._unsynced_names.difference_update(
            [start for start in tuple(self._unsynced_names) if start < below]
        )

    def is_ready(self, start: int) -> bool:
        return start in self._ahead

    def drop_ahead(self) -> None:
        """Removes files that were made ahead and never used."""
        with self._creating:
            for start, made in self._ahead.items():
                made.close()
                self._disk.remove(self.path(start))
            if self._ahead:
                self._disk.sync_dir(self.directory)
            self._ahead.clear()

    def remove(self, start: int, durably: bool = True) -> None:
        """Removes the first or the last file of the log; asserts that `start` is one of them.

        Unless `durably`, `removed_from` has to be synced before the next one is removed.
        """
        assert start in (self.starts[0], self.starts[-1]), "only the ends of the log can be removed"
        self.starts.remove(start)
        if (mapped := self._maps.pop(start, None)) is not None:
            mapped.close()
        self._disk.remove(self.path(start))
        if durably:
            self._disk.sync_dir(self.directory_of(start))
        else:
            self.removed_from.add(self.directory_of(start))

    def set_aside(self, start: int, directory: str) -> str:
        """Moves the last file out of the log into another directory; returns its new path."""
        assert start == self.starts[-1], "only the last file can be set aside"
        kept = self._free_name(start, directory)
        try:
            self._disk.rename(self.path(start), kept)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            kept = self.copy_aside(start, 0, self.file_size, directory)
            self._disk.remove(self.path(start))
        self.starts.pop()
        if (mapped := self._maps.pop(start, None)) is not None:
            mapped.close()
        self._disk.sync_dir(directory)
        self._disk.sync_dir(self.directory_of(start))
        return kept

    def copy_aside(self, start: int, begin: int, end: int, directory: str) -> str:
        """Copies positions [begin, end) of file `start` to a full-size file in `directory`; returns its path.

        The rest of that file is zeros.
        """
        return self.keep(FilePart(self.mapped(start).buffer, start, begin, end), directory)

    def keep(self, tail: "FilePart", directory: str) -> str:
        """Copies a part of a file, as `copy_aside`. Uses no table of files: a worker may do it."""
        kept = self._free_name(tail.start, directory)
        part = os.path.join(directory, UNFINISHED)
        self._copy(tail, part)
        self._disk.rename(part, kept)
        self._disk.sync_dir(directory)
        return kept

    def _copy(self, tail: "FilePart", path: str) -> None:
        buffer, begin, end = tail.buffer, tail.begin, tail.end
        file = self._disk.open_plain(path, create=True, size=self.file_size)
        try:
            for at in range(begin, end, SLICE):
                piece = bytes(buffer[at : min(at + SLICE, end)])
                if piece != bytes(len(piece)):  # the file is made of zeros
                    file.write_at(at, piece)
            file.sync()
        except BaseException:  # on a full disk a failed copy must not take space
            with contextlib.suppress(OSError):
                self._disk.remove(path)
            raise
        finally:
            file.close()

    def _free_name(self, start: int, directory: str) -> str:
        """Returns an unused path in `directory`, which it makes durably, for a file that is set aside.

        The same file may have been cut before.
        """
        self._disk.make_dirs(directory)
        self._disk.sync_dir(os.path.dirname(directory))
        with contextlib.suppress(FileNotFoundError):  # of a start that was killed
            self._disk.remove(os.path.join(directory, UNFINISHED))
        path = os.path.join(directory, file_name(start))
        names = itertools.chain((path,), (f"{path}.{number}" for number in itertools.count(1)))
        return next(name for name in names if not self._disk.exists(name))

    def close(self) -> None:
        for mapped in self._maps.values():
            mapped.close()
        self._maps.clear()

    def _keep(self, start: int, mapped: MappedFile) -> MappedFile:
        self._maps[start] = mapped
        if len(self._maps) > self._open_limit:
            for old in list(self._maps):
                if old != start and old < self.pinned_from:
                    self._maps.pop(old).close()
                    break
        return mapped

    def _is_unfinished(self, directory: str, entry: Entry) -> bool:
        """Whether the process ended while it was making this file: too short, and nothing but zeros."""
        if entry.size >= self.file_size:
            return False
        path = os.path.join(directory, entry.name)
        file = self._disk.open_plain(path)
        try:
            parts = (file.read_at(at, SLICE) for at in range(0, file.size(), SLICE))
            return all(part == bytes(len(part)) for part in parts)
        finally:
            file.close()

    def _checked_start(self, directory: str, entry: Entry) -> int:
        path = os.path.join(directory, entry.name)
        if not _is_name(entry):
            raise UnusableStore(f"{path} is no commit log file (names have 20 digits). Move it elsewhere")
        if entry.size != self.file_size:
            raise UnusableStore(
                f"{path} has {entry.size} bytes, but the configured file size is {self.file_size}. Set "
                f"mappedFileSizeCommitLog to the size this store was written with; if only this file is "
                f"wrong, it was cut off: restore it, or move it elsewhere if it is the last one"
            )
        start = int(entry.name)
        if start % self.file_size:
            raise UnusableStore(f"{path} does not start at a multiple of the file size {self.file_size}")
        return start


def _is_name(entry: Entry) -> bool:
    name = entry.name
    return not entry.is_dir and len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def touch(buffer: Buffer, begin: int, end: int) -> bool:
    """Brings the pages of bytes [begin, end) into memory for writing; False: the system cannot do it.

    The contents stay. 4 us a page, against 10 us when the append loop faults on each. The call holds the
    interpreter lock, so only small parts are requested at a time.
    """
    if not isinstance(buffer, mmap.mmap) or sys.platform != "linux":
        return False
    try:
        buffer.madvise(MADV_POPULATE_WRITE, begin, end - begin)
    except OSError:  # a kernel before 5.14
        return False
    return True


def _advise(buffer: Buffer, advice: str) -> None:
    """Gives the kernel advice, by a name such as "MADV_NORMAL", about a mapped file; else does nothing.

    Maps are made for random access, which suits writing: see `runtime/disk.py`.
    """
    if isinstance(buffer, mmap.mmap) and hasattr(mmap, advice):
        buffer.madvise(getattr(mmap, advice))
