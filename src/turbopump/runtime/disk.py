"""The disk: mapped files, files that are read and written at positions, directories, locks.

Blocking work that may take long (a sync, creating a file of a gigabyte) is done through `Workers`, so that
the event loop goes on. `os.fdatasync` and `posix_fallocate` release the interpreter lock; `mmap.flush` and a
large `madvise(POPULATE)` hold it for the whole call, so neither is used here.
"""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644

Buffer = mmap.mmap | bytearray


class AlreadyLocked(OSError):
    """Raised when another process holds the lock."""


class Entry(NamedTuple):
    """An entry of a directory: its name, its size in bytes, whether it is a directory itself."""

    name: str
    size: int
    is_dir: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """The size of a file system and its free bytes."""

    total: int
    free: int

    @property
    def used_ratio(self) -> float:
        return (self.total - self.free) / self.total if self.total else 0.0


class MappedFile(Protocol):
    """A file of fixed size, mapped as a whole: written by slice assignment, durable after `sync`."""

    path: str
    size: int
    buffer: Buffer

    def sync(self) -> None:
        """Blocks until all that was written before is on the medium; raises OSError when it is not."""

    def reserve(self, offset: int, length: int) -> None:
        """Allocates blocks for a part of a sparse file: a full disk is an OSError here, no SIGBUS later."""

    def allocated(self) -> int:
        """Returns how many bytes have blocks; fewer than `size` for a sparse file."""

    def is_cached(self, offset: int, length: int) -> bool:
        """Returns whether that part can be read without waiting for the medium. True if it is unknown."""

    def close(self) -> None: ...


class PlainFile(Protocol):
    """A file read and written at positions, for the many small files that cannot all be mapped."""

    path: str

    def size(self) -> int: ...
    def read_at(self, offset: int, length: int) -> bytes: ...
    def is_cached(self, offset: int, length: int) -> bool: ...
    def read_ahead(self, offset: int, length: int) -> None:
        """Starts reading `length` bytes at `offset` from the medium in advance, without waiting for them."""

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None: ...
    def truncate(self, size: int) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    """A lock of a file against other processes, held until `release`."""

    def release(self) -> None: ...


class Disk(Protocol):
    """File system operations. All of them block."""

    def create_mapped(
        self, path: str, size: int, sparse: bool = False, durable_name: bool = True
    ) -> MappedFile:
        """Creates and maps a file of `size` zeros. Raises OSError, for example ENOSPC.

        A sparse file has no blocks yet: `reserve` what is about to be written. Without `durable_name` the
        caller syncs the directory later, in a worker thread.
        """

    def open_mapped(self, path: str, writable: bool = True) -> MappedFile: ...

    def open_plain(self, path: str, create: bool = False, size: int = 0) -> PlainFile:
        """Opens a file; with `create`, makes it and its directories if absent, `size` bytes of zeros long."""

    def entries(self, directory: str) -> list[Entry]:
        """Returns the entries of a directory, sorted by name; an empty list if there is no such directory."""

    def exists(self, path: str) -> bool: ...
    def make_dirs(self, path: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def sync_all(self, path: str) -> None:
        """Syncs the whole file system that holds `path`: quicker than thousands of files one by one."""

    def read(self, path: str) -> bytes: ...
    def write(self, path: str, data: bytes, sync: bool = True, private: bool = False) -> None:
        """Replaces a whole small file in place; for an atomic change write another name and rename it.

        A private file can be read by the user of this process alone (mode 600).
        """

    def mode(self, path: str) -> int:
        """Returns the permission bits of a file."""

    def group(self, path: str) -> int:
        """Returns the number of the group that a file belongs to."""

    def modified_ms(self, path: str) -> int: ...
    def usage(self, path: str) -> Usage: ...
    def lock(self, path: str) -> Lock:
        """Locks a file against other processes, as Apache's broker does, or raises AlreadyLocked."""


class Workers(Protocol):
    """Threads that do blocking disk work."""

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Runs blocking disk work in a thread; returns its value or raises its exception."""

    async def urgent(self, work: Callable[..., T], *args: object) -> T:
        """Runs blocking work in a thread apart from ordinary work: syncs that answers wait for."""

    async def read(self, work: Callable[..., T], *args: object) -> T:
        """Runs blocking work that reads; several such calls run at the same time, in threads of their own."""


class _SystemMappedFile:
    def __init__(self, path: str, descriptor: int, size: int, writable: bool) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self.buffer: Buffer = mmap.mmap(descriptor, size, access=access)
        if hasattr(mmap, "MADV_RANDOM"):
            # Without it the page cache holds large folios and one record dirties 2 MiB (measured).
            self.buffer.madvise(mmap.MADV_RANDOM)

    def sync(self) -> None:
        _fdatasync(self._descriptor)

    def reserve(self, offset: int, length: int) -> None:
        _allocate(self._descriptor, offset, min(length, self.size - offset))

    def allocated(self) -> int:
        return os.fstat(self._descriptor).st_blocks * 512

    def is_cached(self, offset: int, length: int) -> bool:
        return _is_cached(self._descriptor, offset, length)

    def close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(BufferError):  # a reader still holds a view; the map goes with it
                self.buffer.close()  # type: ignore[union-attr]
            os.close(self._descriptor)
            self._descriptor = -1


class _SystemPlainFile:
    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def is_cached(self, offset: int, length: int) -> bool:
        return _is_cached(self._descriptor, offset, length)

    def read_ahead(self, offset: int, length: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_WILLNEED)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(self._descriptor, memoryview(data)[written:], offset + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        _fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _SystemLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)  # a POSIX record lock ends with its descriptor


class SystemDisk:
    """The file system of the operating system."""

    def create_mapped(
        self, path: str, size: int, sparse: bool = False, durable_name: bool = True
    ) -> MappedFile:
        self.make_dirs(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            if sparse:
                os.ftruncate(descriptor, size)
            else:
                _allocate(descriptor, 0, size)
            if durable_name:
                self.sync_dir(os.path.dirname(path))
            return _SystemMappedFile(path, descriptor, size, writable=True)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.remove(path)
            raise

    def open_mapped(self, path: str, writable: bool = True) -> MappedFile:
        descriptor = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            return _SystemMappedFile(path, descriptor, os.fstat(descriptor).st_size, writable)
        except BaseException:
            os.close(descriptor)
            raise

    def open_plain(self, path: str, create: bool = False, size: int = 0) -> PlainFile:
        try:
            return _SystemPlainFile(path, os.open(path, os.O_RDWR))
        except FileNotFoundError:
            if not create:
                raise
        self.make_dirs(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(descriptor, size)
        return _SystemPlainFile(path, descriptor)

    def entries(self, directory: str) -> list[Entry]:
        try:
            with os.scandir(directory) as found:
                entries = [Entry(e.name, e.stat().st_size, e.is_dir()) for e in found]
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_all(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            _syncfs(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes, sync: bool = True, private: bool = False) -> None:
        with open(path, "wb", opener=_open_private if private else None) as file:
            file.write(data)
            if sync:
                file.flush()
                _fdatasync(file.fileno())

    def mode(self, path: str) -> int:
        return stat.S_IMODE(os.stat(path).st_mode)

    def group(self, path: str) -> int:
        return os.stat(path).st_gid

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def usage(self, path: str) -> Usage:
        while not os.path.exists(path):  # not created yet: it will be on the file system of its parent
            path = os.path.dirname(os.path.abspath(path))
        found = os.statvfs(path)
        # Blocks reserved for root count as neither used nor free, as in Apache's ratio.
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        free = found.f_bavail * found.f_frsize
        return Usage(used + free, free)

    def lock(self, path: str) -> Lock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise AlreadyLocked(error.errno, f"another process uses it: {path}") from None
            raise
        os.pwrite(descriptor, b"lock", 0)
        return _SystemLock(descriptor)


class _DiskThread:
    """A thread that does pieces of work in order and returns each outcome to the loop.

    A piece costs 30 us less than through an executor, whose futures have locks: syncs that senders wait for
    come here. The thread ends with the process; at worst it leaves a sync unfinished that nothing waits for.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: SimpleQueue[_Piece | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def do(self, work: Callable[..., T], args: tuple[object, ...]) -> T:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        held_until = getattr(loop, "held_until", None)
        if held_until is not None:  # a loop with virtual time, which stands still while threads work
            held_until(outcome)
        self._asked.put((work, args, outcome))
        return await outcome

    def close(self) -> None:
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (piece := self._asked.get()) is not None:
            work, args, outcome = piece
            value: object = None
            failure: BaseException | None = None
            try:
                value = work(*args)
            except BaseException as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                outcome.get_loop().call_soon_threadsafe(_set_outcome, outcome, value, failure)
            del piece, work, args, outcome, value, failure


_Piece = tuple[Callable[..., object], tuple[object, ...], asyncio.Future[Any]]


def _set_outcome(outcome: "asyncio.Future[Any]", value: object, failure: BaseException | None) -> None:
    if outcome.done():  # cancelled
        return
    if failure is not None:
        outcome.set_exception(failure)
    else:
        outcome.set_result(value)


class SystemWorkers:
    """One thread for ordinary work, one for urgent work, each in the order asked, and a few that read."""

    READERS = 4

    def __init__(self) -> None:
        self._ordinary = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")
        self._urgent = _DiskThread("sync")
        self._readers = ThreadPoolExecutor(max_workers=self.READERS, thread_name_prefix="read")

    async def run(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._ordinary, lambda: work(*args))

    async def urgent(self, work: Callable[..., T], *args: object) -> T:
        return await self._urgent.do(work, args)

    async def read(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: work(*args))

    def close(self) -> None:
        self._urgent.close()
        for executor in (self._ordinary, self._readers):
            executor.shutdown(wait=True)


def _open_private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, PRIVATE_MODE)
    os.fchmod(descriptor, PRIVATE_MODE)  # the file may have been there, with another mode
    return descriptor


def _allocate(descriptor: int, offset: int, length: int) -> None:
    """Allocates blocks now: a full disk is an error here, not a SIGBUS at the first access to a page."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, offset, length)
    elif os.fstat(descriptor).st_size < offset + length:  # pragma: no cover - macOS
        os.ftruncate(descriptor, offset + length)


def _is_cached(descriptor: int, offset: int, length: int) -> bool:
    """Returns whether a part of a file can be read without waiting for the medium; True if it is unknown.

    Tries such a read: about 2 us and a copy of what is there.
    """
    if not hasattr(os, "RWF_NOWAIT"):  # pragma: no cover - macOS
        return True
    try:
        return os.preadv(descriptor, [bytearray(length)], offset, os.RWF_NOWAIT) == length
    except BlockingIOError:
        return False
    except OSError:  # not supported by this file system
        return True


def _syncfs(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):  # pragma: no cover - macOS
        os.sync()
    elif libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _fdatasync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # pragma: no cover - macOS
        os.fsync(descriptor)
