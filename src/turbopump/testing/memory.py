"""A disk in memory for embedded servers: nothing is ever slow, full or lost, and nothing is left behind.

`copy` is what a killed process leaves to its successor: the files as they are at that moment. For a disk that
loses and tears writes see `testing.disk`.
"""

import asyncio
import errno
import mmap
import os
from collections.abc import Callable
from typing import TypeVar

from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import AlreadyLocked, Buffer, Entry, Lock, MappedFile, PlainFile, Usage

T = TypeVar("T")

CAPACITY = 1 << 40


class MemoryDisk:
    """`runtime.disk.Disk`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[str, _Content] = {}
        self._directories: set[str] = {""}
        self._locks: set[str] = set()

    def copy(self) -> "MemoryDisk":
        """The files as they are now, unlocked. What happens to the original is not seen here."""
        other = MemoryDisk(self._clock)
        other._files = {path: content.copy() for path, content in self._files.items()}
        other._directories = set(self._directories)
        return other

    def create_mapped(self, path: str, size: int, sparse: bool = False) -> MappedFile:
        return _MappedFile(path, self._put(path, mmap.mmap(-1, size)), self._clock)

    def open_mapped(self, path: str, writable: bool = True) -> MappedFile:
        return _MappedFile(path, self._find(path), self._clock)

    def open_plain(self, path: str, create: bool = False, size: int = 0) -> PlainFile:
        if create and path not in self._files:
            self._put(path, bytearray(size))
        return _PlainFile(path, self._find(path), self._clock)

    def entries(self, directory: str) -> list[Entry]:
        prefix = directory.rstrip("/") + "/"
        inside = [(path, len(content.buffer), False) for path, content in self._files.items()]
        inside += [(path, 0, True) for path in self._directories]
        found = [
            Entry(path[len(prefix) :], size, is_directory)
            for path, size, is_directory in inside
            if path.startswith(prefix) and "/" not in path[len(prefix) :]
        ]
        return sorted(found, key=lambda entry: entry.name)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def make_dirs(self, path: str) -> None:
        while path not in self._directories:
            self._directories.add(path)
            path = os.path.dirname(path)
            if path == "/":
                return

    def remove(self, path: str) -> None:
        self._find(path)
        del self._files[path]

    def remove_tree(self, path: str) -> None:
        inside = path.rstrip("/") + "/"
        self._files = {name: file for name, file in self._files.items() if not name.startswith(inside)}
        self._directories = {
            name for name in self._directories if name != path and not name.startswith(inside)
        }

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._find(old)
        del self._files[old]

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None: ...

    def read(self, path: str) -> bytes:
        return bytes(self._find(path).buffer[:])

    def write(self, path: str, data: bytes, sync: bool = True) -> None:
        self._put(path, bytearray(data))

    def modified_ms(self, path: str) -> int:
        return self._find(path).modified_ms

    def usage(self, path: str) -> Usage:
        return Usage(CAPACITY, CAPACITY - sum(len(content.buffer) for content in self._files.values()))

    def lock(self, path: str) -> Lock:
        if path in self._locks:
            raise AlreadyLocked(errno.EAGAIN, f"another process uses it: {path}")
        self.write(path, b"lock")
        self._locks.add(path)
        return _Lock(self._locks, path)

    def _find(self, path: str) -> "_Content":
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._files[path]

    def _put(self, path: str, buffer: Buffer) -> "_Content":
        self.make_dirs(os.path.dirname(path))
        content = self._files[path] = _Content(buffer, self._clock.now_ms())
        return content


class MemoryWorkers:
    """`runtime.disk.Workers`: the work is done at once, and its result is there in the next turn of the loop.
    Such work takes no time, so nobody needs a thread for it.
    """

    async def run(self, work: Callable[..., T], *args: object) -> T:
        await asyncio.sleep(0)
        return work(*args)

    async def urgent(self, work: Callable[..., T], *args: object) -> T:
        return await self.run(work, *args)

    async def read(self, work: Callable[..., T], *args: object) -> T:
        return await self.run(work, *args)


class _Content:
    """What a file holds: pages that come when they are touched, or bytes that grow."""

    def __init__(self, buffer: Buffer, modified_ms: int) -> None:
        self.buffer = buffer
        self.modified_ms = modified_ms

    def copy(self) -> "_Content":
        if isinstance(self.buffer, bytearray):
            return _Content(bytearray(self.buffer), self.modified_ms)
        pages = mmap.mmap(-1, len(self.buffer))
        pages[:] = self.buffer[:]
        return _Content(pages, self.modified_ms)


class _MappedFile:
    def __init__(self, path: str, content: _Content, clock: Clock) -> None:
        self.path = path
        self.size = len(content.buffer)
        self.buffer = content.buffer
        self._content = content
        self._clock = clock

    def sync(self) -> None:
        self._content.modified_ms = self._clock.now_ms()  # it is synced when something was written

    def reserve(self, offset: int, length: int) -> None: ...

    def allocated(self) -> int:
        return self.size

    def is_cached(self, offset: int, length: int) -> bool:
        return True

    def close(self) -> None: ...


class _PlainFile:
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
        buffer = self._content.buffer
        if offset + len(data) > len(buffer):
            self.truncate(offset + len(data))
        buffer[offset : offset + len(data)] = data
        self._content.modified_ms = self._clock.now_ms()

    def truncate(self, size: int) -> None:
        buffer = self._content.buffer
        assert isinstance(buffer, bytearray), "a mapped file keeps its size"
        del buffer[size:]
        buffer.extend(bytes(size - len(buffer)))
        self._content.modified_ms = self._clock.now_ms()

    def sync(self) -> None: ...

    def close(self) -> None: ...


class _Lock:
    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)
