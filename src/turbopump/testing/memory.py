"""A disk in memory for embedded servers: never slow, never full, without lost writes; it leaves no files.

`copy` returns what a killed process leaves: the files as they are at that moment. For a disk that loses and
tears writes see `testing.disk`.
"""

import asyncio
import errno
import mmap
import os
from collections.abc import Callable
from typing import TypeVar

from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import (
    PRIVATE_MODE,
    PUBLIC_MODE,
    AlreadyLocked,
    Buffer,
    Entry,
    Lock,
    MappedFile,
    PlainFile,
    Usage,
)
from turbopump.testing.simulated_files import check_name

T = TypeVar("T")

CAPACITY = 1 << 40


class MemoryDisk:
    """`runtime.disk.Disk` in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[str, _Content] = {}
        self._directories: dict[str, set[str]] = {"": set()}  # directory -> names in it
        self._locks: set[str] = set()

    def copy(self) -> "MemoryDisk":
        """Returns an independent copy of the files as they are now, unlocked."""
        other = MemoryDisk(self._clock)
        other._files = {path: content.copy() for path, content in self._files.items()}
        other._directories = {path: names.copy() for path, names in self._directories.items()}
        return other

    def create_mapped(
        self, path: str, size: int, sparse: bool = False, durable_name: bool = True
    ) -> MappedFile:
        return _MappedFile(path, self._put(path, mmap.mmap(-1, size)), self._clock)

    def open_mapped(self, path: str, writable: bool = True) -> MappedFile:
        """Maps a file. A map for reading of a file that was never changed does not show later writes."""
        content = self._find(path)
        content.mappable(writable)
        return _MappedFile(path, content, self._clock)

    def open_plain(self, path: str, create: bool = False, size: int = 0) -> PlainFile:
        if create and path not in self._files:
            self._put(path, bytes(size))
        return _PlainFile(path, self._find(path), self._clock)

    def entries(self, directory: str) -> list[Entry]:
        prefix = directory.rstrip("/") + "/"
        if prefix[:-1] not in self._directories:
            check_name(directory)
            return []
        files = self._files
        return [
            Entry(name, 0, True)
            if (file := files.get(prefix + name)) is None
            else Entry(name, len(file.buffer), False)
            for name in sorted(self._directories[prefix[:-1]])
        ]

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def make_dirs(self, path: str) -> None:
        path = path.rstrip("/")
        if path not in self._directories:
            parent, _, name = path.rpartition("/")
            self.make_dirs(parent)
            self._directories[parent].add(name)
            self._directories[path] = set()

    def remove(self, path: str) -> None:
        self._find(path)
        del self._files[path]
        self._unname(path)

    def remove_tree(self, path: str) -> None:
        path = path.rstrip("/")
        inside = path + "/"
        self._files = {name: file for name, file in self._files.items() if not name.startswith(inside)}
        self._directories = {
            name: names
            for name, names in self._directories.items()
            if name != path and not name.startswith(inside)
        }
        self._unname(path)

    def rename(self, old: str, new: str) -> None:
        content = self._find(old)
        self.remove(old)
        self._name(new, content)

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None: ...

    def read(self, path: str) -> bytes:
        return bytes(self._find(path).buffer[:])

    def write(self, path: str, data: bytes, sync: bool = True, private: bool = False) -> None:
        self._put(path, data).mode = PRIVATE_MODE if private else PUBLIC_MODE

    def mode(self, path: str) -> int:
        return self._find(path).mode

    def group(self, path: str) -> int:
        self._find(path)
        return 0

    def modified_ms(self, path: str) -> int:
        return self._find(path).modified_ms

    def usage(self, path: str) -> Usage:
        return Usage(CAPACITY, CAPACITY - sum(len(content.buffer) for content in self._files.values()))

    def lock(self, path: str) -> Lock:
        if path in self._locks:
            raise AlreadyLocked(errno.EAGAIN, f"another process uses {path}")
        self.write(path, b"lock")
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def _find(self, path: str) -> "_Content":
        found = self._files.get(path)
        if found is None:
            check_name(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found

    def _put(self, path: str, buffer: Buffer | bytes) -> "_Content":
        content = _Content(buffer, self._clock.now_ms())
        self._name(path, content)
        return content

    def _name(self, path: str, content: "_Content") -> None:
        check_name(path)
        directory, _, name = path.rpartition("/")
        self.make_dirs(directory)
        self._directories[directory].add(name)
        self._files[path] = content

    def _unname(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        if directory in self._directories:
            self._directories[directory].discard(name)


class MemoryWorkers:
    """`runtime.disk.Workers` without threads: runs each job on the event loop, in its next turn."""

    async def run(self, work: Callable[..., T], *args: object) -> T:
        await asyncio.sleep(0)
        return work(*args)

    async def urgent(self, work: Callable[..., T], *args: object) -> T:
        return await self.run(work, *args)

    async def read(self, work: Callable[..., T], *args: object) -> T:
        return await self.run(work, *args)


class _Content:
    """Content of a file: bytes until the first change, then a bytearray or the pages of a map."""

    __slots__ = ("buffer", "mode", "modified_ms")

    def __init__(self, buffer: Buffer | bytes, modified_ms: int, mode: int = PUBLIC_MODE) -> None:
        self.buffer = buffer
        self.mode = mode
        self.modified_ms = modified_ms

    def copy(self) -> "_Content":
        if isinstance(self.buffer, mmap.mmap):
            return _Content(_pages(self.buffer[:]), self.modified_ms, self.mode)
        return _Content(bytes(self.buffer), self.modified_ms, self.mode)  # bytes are not copied

    def mappable(self, writable: bool) -> None:
        if not self.buffer:
            raise ValueError("cannot mmap an empty file")
        if isinstance(self.buffer, bytearray) or (writable and isinstance(self.buffer, bytes)):
            self.buffer = _pages(self.buffer)

    def changeable(self) -> Buffer:
        if isinstance(self.buffer, bytes):
            self.buffer = bytearray(self.buffer)
        return self.buffer


def _pages(data: bytes | bytearray) -> mmap.mmap:
    pages = mmap.mmap(-1, len(data))
    pages[:] = data
    return pages


class _MappedFile:
    __slots__ = ("_clock", "_content", "buffer", "path", "size")

    def __init__(self, path: str, content: _Content, clock: Clock) -> None:
        self.path = path
        self.size = len(content.buffer)
        self.buffer: Buffer = content.buffer  # type: ignore[assignment]  # bytes: of a map for reading
        self._content = content
        self._clock = clock

    def sync(self) -> None:
        self._content.modified_ms = self._clock.now_ms()  # a sync follows a write

    def reserve(self, offset: int, length: int) -> None: ...

    def allocated(self) -> int:
        return self.size

    def is_cached(self, offset: int, length: int) -> bool:
        return True

    def close(self) -> None: ...


class _PlainFile:
    __slots__ = ("_clock", "_content", "path")

    def __init__(self, path: str, content: _Content, clock: Clock) -> None:
        self.path = path
        self._content = content
        self._clock = clock

    def size(self) -> int:
        return len(self._content.buffer)

    def read_at(self, offset: int, length: int) -> bytes:
        return bytes(self._content.buffer[offset : offset + length])

    def is_cached(self, offset: int, length: int) -> bool:
        return True

    def read_ahead(self, offset: int, length: int) -> None: ...

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        buffer = self._content.changeable()
        if offset + len(data) > len(buffer):
            self.truncate(offset + len(data))
        buffer[offset : offset + len(data)] = data
        self._content.modified_ms = self._clock.now_ms()

    def truncate(self, size: int) -> None:
        buffer = self._content.changeable()
        assert isinstance(buffer, bytearray), "the size of a mapped file must not change"
        del buffer[size:]
        buffer.extend(bytes(size - len(buffer)))
        self._content.modified_ms = self._clock.now_ms()

    def sync(self) -> None: ...

    def close(self) -> None: ...


class MemoryLock:
    """Lock of a path, held until `release`."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)
