"""The commit log: one long sequence of records, cut into files of equal size.

In: records as bytes, at positions that `append.py` chose. Out: the same bytes by offset. A record never
crosses the end of a file: the rest of the file is marked by a blank record (length, magic) of at least 8
bytes.

    offset                 start of file + position in it
    end                    where the next record goes
    committed, synced      ends of what readers may see (transient pool) and of what is on the medium
"""

import errno
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from turbopump.protocol.record import BLANK, MAGIC_V1, MAGIC_V2, measure
from turbopump.runtime.disk import Buffer, Disk, MappedFile
from turbopump.store.config import StoreConfig
from turbopump.store.read_only_log import ReadOnlyLog
from turbopump.store.segment import FilePart, LogFiles, touch

BLANK_HEAD = struct.Struct(">ii")
BLANK_SIZE = 8
MAGICS = tuple(struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2))
MAGIC_SIZE = MAGIC_AT = 4  # after the record's size
COPY_SLICE = 1 << 20
PAGE = mmap.PAGESIZE
TOUCH_AHEAD = 1 << 17  # 32 pages, about 0.1 ms
ZEROS = bytes(COPY_SLICE)
AHEAD_RATIO = 0.5  # part of the current file that is used when the next file is made


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log: its offsets [start, end), its path and when it was last written."""

    start: int
    end: int
    path: str
    modified_ms: int


class Syncable(Protocol):
    """Protocol of a file or directory whose contents can be synced to the medium."""

    def sync(self) -> None:
        """Blocks until the contents are on the medium; raises OSError when that fails."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory as a `Syncable`: `sync` makes the file names in it durable."""

    disk: Disk
    path: str

    def sync(self) -> None:
        self.disk.sync_dir(self.path)


class CommitLog(ReadOnlyLog):
    """The commit log: files of records, appended to at one end. Knows bytes and offsets, no queues.

    The append loop, and its compiled twin, work on `buffer`, `base`, `position` and `limit`, and keep
    `position` current.
    """

    def __init__(self, config: StoreConfig, disk: Disk, files: LogFiles | None = None) -> None:
        file_size = config.commit_log_file_size
        super().__init__(
            files or LogFiles(config.log_dir, file_size, disk, config.open_log_files, config.syncs_each),
            file_size,
            config.uses_pool,
        )
        self.largest_record = file_size - BLANK_SIZE
        self.buffer: Buffer = bytearray()
        self.limit = -1  # position in the current file where records end at the latest; -1: no file yet
        self.touched = 0  # position in the current file below which pages are in memory
        self.synced = 0
        self._disk = disk
        self._pool_size = config.transient_pool_size
        self._full: list[tuple[int, Buffer, int]] = []  # base, buffer and end of full buffers to commit

    def load(self) -> None:
        """Finds the files of the log. Raises UnusableStore."""
        self.files.load()

    # writing

    def start_at(self, offset: int) -> None:
        """Sets the end of the log, committed and synced, to `offset`; the next record goes there."""
        self.position = offset % self.file_size
        self.base = offset - self.position
        self._committed = self.synced = offset
        self.files.pinned_from = self.base
        if self.files.has(self.base):
            self._write_to(self.files.for_writing(self.base))
        else:
            assert self.position == 0, "a log continues where its last file is"
            self.limit = -1

    def reserve(self, sizes: list[int], together: bool) -> None:
        """Creates the files that records of these sizes need, or raises OSError; then writing cannot fail."""
        position = self.position if self.limit >= 0 else self.file_size
        start = self.base if self.limit >= 0 else self.base - self.file_size
        for size in [sum(sizes)] if together else sizes:
            if position + size > self.largest_record:
                start += self.file_size
                position = 0
                self.files.create_ahead(start)
            position += size

    def roll(self) -> None:
        """Ends the current file with a blank record and continues in the next one."""
        if self.limit >= 0:
            at = self.position
            self._mark_end(at)
            if self.buffers_left:
                self._full.append((self.base, self.buffer, at + BLANK_SIZE))
            else:  # no pool, or the pool became empty among messages that are stored together
                self.position = self.file_size
                self.commit()
            self.base += self.file_size
        self.position = 0
        self._write_to(self.files.append_file(self.base))

    def _mark_end(self, at: int) -> None:
        """Writes at a position of the current file that no record follows in it."""
        BLANK_HEAD.pack_into(self.buffer, at, self.file_size - at, BLANK)

    def copy_in(self, data: memoryview) -> None:
        """Appends bytes of another broker's log as they are, across the ends of files too.

        Raises OSError when the next file cannot be made; what was copied before it stays.
        """
        at = 0
        while at < len(data):
            if self.limit < 0 or self.position == self.file_size:
                self._copy_on_in(self.base if self.limit < 0 else self.base + self.file_size)
            size = min(len(data) - at, self.file_size - self.position)
            end = self.position + size
            if end > self.touched:
                self.touch(end)
            self.buffer[self.position : end] = data[at : at + size]
            self.position = end
            at += size

    def _copy_on_in(self, start: int) -> None:
        mapped = self.files.append_file(start)
        self.base, self.position = start, 0
        self._write_to(mapped)

    def wants_next(self, at_once: bool = False) -> int | None:
        """Returns the start offset of the file that a thread should create ahead now; None: not needed."""
        start = self.base if self.limit < 0 else self.base + self.file_size
        if self.limit >= 0 and self.position < self.file_size * AHEAD_RATIO and not at_once:
            return None
        return None if self.files.is_ready(start) else start

    def touch(self, position: int) -> None:
        """Brings the current file's pages up to `position`, and 128 KiB more, into memory for writing."""
        begin, end = self.touched, min(position + TOUCH_AHEAD, self.file_size)
        end = min(end + -end % PAGE, self.file_size)
        self.touched = end if touch(self.buffer, begin, end) else self.file_size

    def commit(self) -> None:
        """Copies appended bytes from the transient pool into the mapped files; no-op without a pool.

        There readers and the kernel see them.
        """
        if not self.uses_pool or self._committed >= self.end:
            return
        for base, buffer, end in (*self._full, (self.base, self.buffer, self.position)):
            target = self.files.mapped(base).buffer
            for at in range(max(0, self._committed - base), end, COPY_SLICE):
                stop = min(at + COPY_SLICE, end)
                target[at:stop] = buffer[at:stop]
        self._full.clear()
        self._committed = self.end

    @property
    def buffers_left(self) -> int:
        """Transient pool: number of unused buffers. 0 without a pool."""
        used = len(self._full) + (self.limit >= 0)
        return max(0, self._pool_size - used) if self.uses_pool else 0

    @property
    def is_pool_empty(self) -> bool:
        """Whether buffers have to be committed before the log may continue in another file."""
        return bool(self._full) and not self.buffers_left

    def _write_to(self, mapped: MappedFile) -> None:
        if self.uses_pool:
            self.buffer = mmap.mmap(-1, self.file_size)
        else:
            self.buffer = mapped.buffer
        self.limit = self.largest_record
        self.touched = self.file_size if self.uses_pool else self.position - self.position % PAGE

    # making durable

    def unsynced(self, until: int) -> list[Syncable]:
        """Returns the files, perhaps also the directory, to sync to have all below `until` on the medium."""
        names: list[Syncable] = []
        if self.files.has_unsynced_names(until):
            names.append(Directory(self._disk, self.files.directory))
        return [*names, *(mapped for mapped, _, _ in self._parts(self.synced, until))]

    def mark_synced(self, until: int) -> None:
        self.synced = max(self.synced, until)
        self.files.names_synced(until)
        self.files.pinned_from = self.synced - self.synced % self.file_size

    def dirty_again(self, until: int) -> None:
        """Rewrites the unsynced bytes below `until` in place, so that the next sync writes them again.

        The kernel may count the pages as clean after a failed sync, and a later one would succeed without
        writing them.
        """
        for mapped, begin, end in self._parts(self.synced, until):
            _write_again(mapped.buffer, begin, end)

    def settle(self, begin: int, end: int, write_again: bool) -> None:
        """Syncs log bytes [begin, end), which a killed process may have left in the page cache. Blocks."""
        for mapped, at, stop in self._parts(begin, end):
            if write_again:
                _write_again(mapped.buffer, at, stop)
            mapped.sync()

    def _parts(self, begin: int, end: int) -> Iterator[tuple[MappedFile, int, int]]:
        while begin < end:
            at = begin % self.file_size
            stop = min(self.file_size, at + end - begin)
            yield self.files.mapped(begin - at), at, stop
            begin += stop - at

    # shortening

    def cut(
        self, offset: int, aside: str, later: list[Syncable] | None = None, is_kept: bool = False
    ) -> list[str]:
        """Ends the log at `offset`, durably; returns the paths in `aside` that keep records which were cut.

        `later` gets what is to be synced before anything is written behind `offset`; without it, that is
        done here. `is_kept`: the rest of the file at `offset` is in `aside` already (`tail_behind`).

        Bytes behind `offset` can never be taken for records again: zeros are synced over the rest of the file
        before anything else is written there (Apache cuts only in memory, so that a second crash brings the
        old tail back). Whole records in that rest, and later files that hold data, are kept in `aside`; empty
        files are removed.
        """
        kept = []
        while self.files.starts and self.files.starts[-1] >= max(offset, self.min_offset + 1):
            start = self.files.starts[-1]
            if start == offset and not self._holds_data(start):
                break  # a file made ahead stays in use
            if self._holds_data(start):
                kept.append(self.files.set_aside(start, aside))
            else:
                self.files.remove(start)
        start = offset - offset % self.file_size
        if self.files.has(start):
            begin, end = offset - start, self._used(start, offset - start)
            if not is_kept and self._has_record(start, begin, end):
                kept.append(self.files.copy_aside(start, begin, end, aside))
            cleared = self._clear(self.files.mapped(start), begin, end)
            if later is None:
                cleared.sync()
            else:
                later.append(cleared)
        return kept

    def tail_behind(self, offset: int) -> FilePart | None:
        """Returns what a cut at `offset` keeps of the file there, for `LogFiles.keep`; None: no record."""
        start = offset - offset % self.file_size
        if not self.files.has(start):
            return None
        begin, end = offset - start, self._used(start, offset - start)
        if not self._has_record(start, begin, end):
            return None
        return FilePart(self.files.mapped(start).buffer, start, begin, end)

    def shorten(self, offset: int) -> None:
        """Ends a copied log at `offset`, durably: removes the incomplete record that begins there."""
        assert self.base <= offset <= self.end, "only the last record can be incomplete"
        self._clear(self.files.mapped(self.base), offset - self.base, self.position).sync()
        self.position = offset - self.base
        self.synced = min(self.synced, offset)

    def _holds_data(self, start: int) -> bool:
        return bool(any(self.files.mapped(start).buffer[:BLANK_SIZE]))

    def _used(self, start: int, position: int) -> int:
        """Returns a position >= `position` after which the file has only zeros, in steps of 1 MiB."""
        buffer, used = self.files.mapped(start).buffer, position
        for at in range(position, self.file_size, COPY_SLICE):
            end = min(at + COPY_SLICE, self.file_size)
            if buffer[at:end] != ZEROS[: end - at]:
                used = end
        return used

    def _has_record(self, start: int, begin: int, end: int) -> bool:
        """Returns whether a whole record of the file begins at position `begin` or later, before `end`."""
        buffer = self.files.mapped(start).buffer
        for at in range(begin, end, COPY_SLICE):
            piece = bytes(buffer[at : min(at + COPY_SLICE + MAGIC_SIZE - 1, end)])
            for magic in MAGICS:
                found = piece.find(magic)
                while found >= 0:
                    position = at + found - MAGIC_AT
                    if position >= begin and self._is_record(buffer, start, position):
                        return True
                    found = piece.find(magic, found + 1)
        return False

    def _is_record(self, buffer: Buffer, start: int, position: int) -> bool:
        if measure(buffer, position, self.file_size, check_crc=True) <= 0:
            return False
        return self.identify(start + position) is not None

    def _clear(self, mapped: MappedFile, begin: int, end: int) -> "ClearedBytes":
        """Writes zeros, which are durable when what is returned has been synced."""
        for at in range(begin, end, COPY_SLICE):
            stop = min(at + COPY_SLICE, end)
            mapped.buffer[at:stop] = ZEROS[: stop - at]
        # Also when nothing was written: a recovery may have been killed before its sync.
        return ClearedBytes(mapped, begin, end)

    # old files

    def file_list(self) -> list[LogFile]:
        """Returns the files that begin at or before `synced`, oldest first; the last must not be deleted."""
        paths = [(start, self.files.path(start)) for start in self.files.starts if start <= self.synced]
        size = self.file_size
        return [LogFile(start, start + size, path, self._disk.modified_ms(path)) for start, path in paths]

    def delete_first(self) -> None:
        """Removes the oldest file, never the one in use. Raises OSError (EBUSY) when it is not synced yet.

        `files.removed_from` has to be synced before the next one is removed.
        """
        assert len(self.files.starts) > 1, "the file in use cannot be deleted"
        start = self.files.starts[0]
        if start >= self.files.pinned_from:
            raise OSError(errno.EBUSY, "the file is not synced yet", self.files.path(start))
        self.files.remove(start, durably=False)

    def close(self) -> None:
        self.files.drop_ahead()
        self.files.close()


@dataclass(frozen=True, slots=True)
class ClearedBytes:
    """Bytes of a mapped file that were overwritten with zeros. A sync that failed writes them again."""

    mapped: MappedFile
    begin: int
    end: int

    def sync(self) -> None:
        """Brings them to the medium. Blocks; raises OSError."""
        try:
            self.mapped.sync()
        except OSError:
            _write_again(self.mapped.buffer, self.begin, self.end)
            raise


def _write_again(buffer: Buffer, begin: int, end: int) -> None:
    for at in range(begin, end, COPY_SLICE):
        stop = min(at + COPY_SLICE, end)
        buffer[at:stop] = buffer[at:stop]
