"""A disk in memory that loses unsynced writes in a simulated crash.

`SimulatedDisk` implements `runtime.disk.Disk`. `crash()` ends the machine and returns the disk as the next
start finds it: every unsynced sector is randomly old or new, directory changes without a `sync_dir` may be
missing, locks are gone. Further use of the old disk raises `PowerCut`. All random numbers come from the given
`Chance`, so a run can be repeated from its seed. The state of files is in `simulated_files.py`.
"""

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import (
    PRIVATE_MODE,
    AlreadyLocked,
    Buffer,
    Entry,
    Lock,
    MappedFile,
    PlainFile,
    Usage,
)
from turbopump.testing.memory import MemoryLock
from turbopump.testing.simulated_files import DirectoryTree, PendingSync, SimulatedFile, Survival, parent_of

T = TypeVar("T")


class PowerCut(BaseException):
    """Raised when the simulated machine is off. No Exception, so that the tested program cannot catch it."""


class LateSyncs:
    """Syncs that were asked for and are not complete: those of a simulated disk thread."""

    def __init__(self) -> None:
        self.pending: list[PendingSync] = []
        self.are_deferred = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Context manager: a sync in its block is complete only at the next operation or `finish`.

        It covers what was written when it began.
        """
        self.are_deferred = True
        try:
            yield
        finally:
            self.are_deferred = False

    def finish(self, node: SimulatedFile | None = None) -> None:
        """Completes the pending syncs, or those of one file."""
        for sync in [sync for sync in self.pending if node is None or sync.node is node]:
            sync.finish()
            self.pending.remove(sync)


class SimulatedDisk:
    """`runtime.disk.Disk` in memory, with crashes, failing syncs and limited space."""

    def __init__(self, chance: Chance, clock: Clock, capacity: int = 1 << 40) -> None:
        self.chance = chance
        self.clock = clock
        self.capacity = capacity
        self.used_ratio: float | None = None  # reported by `usage`; None: the real ratio
        self.sync_failure = 0.0  # probability that the sync of a file fails
        self.cold: set[str] = set()  # files that are not in memory until they are read
        self.operations = 0
        self.is_off = False
        self._operations_left: int | None = None
        self._syncs_to_fail: list[tuple[int, str]] = []
        self._names = DirectoryTree()
        self._locks: set[str] = set()
        self.late_syncs = LateSyncs()
        self._used_at_most = capacity  # computed when space is first allocated

    def cut_power_after(self, operations: int | None) -> None:
        """Makes each disk operation after the next `operations` ones raise PowerCut; None: none of them."""
        self._operations_left = operations

    def fail_sync(self, after: int = 0, path_part: str = "") -> None:
        """Makes a sync of a file with `path_part` in its path raise EIO, after `after` good ones."""
        self._syncs_to_fail.append((after, path_part))

    def crash(self, survival: Survival = Survival.RANDOM) -> "SimulatedDisk":
        """Turns the machine off; returns the disk as the next start finds it, with what `survival` keeps."""
        self.is_off = True
        after = SimulatedDisk(self.chance, self.clock, self.capacity)
        after.used_ratio, after.sync_failure = self.used_ratio, self.sync_failure
        for sync in self.late_syncs.pending:
            sync.finish() if survival is Survival.KEPT else sync.finish_partly(self.chance)
        if survival is Survival.KEPT:
            after._names = self._names.after_kill()
        else:
            after._names = self._names.after_crash(self.chance, survival)
        return after

    def create_mapped(
        self, path: str, size: int, sparse: bool = False, durable_name: bool = True
    ) -> MappedFile:
        self.operation()
        if not sparse:
            self.take_space(size)
        self._names.make_dirs(parent_of(path))
        self._names.link(path, SimulatedFile(self.clock, b""))
        self.operation()  # the power may fail between creating the file and setting its length
        node = SimulatedFile(self.clock, bytes(size), allocated=0 if sparse else size)
        self._names.link(path, node)
        if durable_name:
            self.operation()
            self._names.sync(parent_of(path))
        return _SimulatedMappedFile(self, path, node)

    def open_mapped(self, path: str, writable: bool = True) -> MappedFile:
        self.operation()
        node = self._names.find(path)
        if not node.pages:
            raise ValueError("cannot mmap an empty file")
        return _SimulatedMappedFile(self, path, node)

    def open_plain(self, path: str, create: bool = False, size: int = 0) -> PlainFile:
        self.operation()
        if create and path not in self._names.nodes:
            self.take_space(size)
            self._names.make_dirs(parent_of(path))
            node = SimulatedFile(self.clock, b"", allocated=size)
            node.resize(size)
            self._names.link(path, node)
        return _SimulatedPlainFile(self, path, self._names.find(path))

    def entries(self, directory: str) -> list[Entry]:
        self.operation()
        return self._names.entries(directory)

    def exists(self, path: str) -> bool:
        self.operation()
        return path in self._names.nodes or path in self._names.directories

    def make_dirs(self, path: str) -> None:
        self.operation()
        self._names.make_dirs(path)

    def remove(self, path: str) -> None:
        self.operation()
        self._names.find(path)
        self._names.change(path, {path: None})

    def remove_tree(self, path: str) -> None:
        self.operation()
        self._names.remove_tree(path)

    def rename(self, old: str, new: str) -> None:
        self.operation()
        node = self._names.find(old)
        self._names.change(old, {old: None, new: node})

    def sync_dir(self, path: str) -> None:
        self.operation()
        self._names.sync(path)

    def sync_all(self, path: str) -> None:
        for name, node in list(self._names.nodes.items()):
            self.sync(name, node)
        for directory in sorted(self._names.directories):
            self.sync_dir(directory)

    def read(self, path: str) -> bytes:
        self.operation()
        return bytes(self._names.find(path).pages)

    def write(self, path: str, data: bytes, sync: bool = True, private: bool = False) -> None:
        file = self.open_plain(path, create=True)
        if private:
            self._names.find(path).mode = PRIVATE_MODE
        file.truncate(0)
        file.write_at(0, data)
        if sync:
            file.sync()

    def mode(self, path: str) -> int:
        self.operation()
        return self._names.find(path).mode

    def group(self, path: str) -> int:
        self.operation()
        return self._names.find(path).group

    def modified_ms(self, path: str) -> int:
        self.operation()
        node = self._names.find(path)
        node.note_change()
        return node.modified_ms

    def usage(self, path: str) -> Usage:
        self.operation()
        if self.used_ratio is not None:
            return Usage(10_000, 10_000 - round(self.used_ratio * 10_000))
        return Usage(self.capacity, self.capacity - self._used())

    def lock(self, path: str) -> Lock:
        self.operation()
        if path in self._locks:
            raise AlreadyLocked(errno.EAGAIN, f"another process uses {path}")
        self._locks.add(path)
        self.write(path, b"lock", sync=False)
        return MemoryLock(self._locks, path)

    def operation(self) -> None:
        """Counts an operation of the disk; raises PowerCut if the power is off or fails at this moment."""
        self.operations += 1
        if self._operations_left is not None:
            self._operations_left -= 1
            self.is_off = self.is_off or self._operations_left < 0
        if self.is_off:
            raise PowerCut
        if self.late_syncs.are_deferred:
            self.late_syncs.finish()  # a caller that starts the next operation has seen the previous one end

    def sync(self, path: str, node: SimulatedFile) -> None:
        self.operation()
        node.note_change()
        self.late_syncs.finish(node)
        sync = PendingSync(node)
        if self._sync_fails(path):
            sync.finish_partly(self.chance)
            raise OSError(errno.EIO, f"simulated sync failure: {path}")
        if self.late_syncs.are_deferred:
            self.late_syncs.pending.append(sync)
        else:
            sync.finish()

    def take_space(self, size: int) -> None:
        """Allocates `size` bytes. Raises OSError (ENOSPC) when the simulated disk is full.

        Sums up the used space only when it could be too much: there may be many files.
        """
        if size <= 0:
            return
        self._used_at_most += size
        if self._used_at_most > self.capacity:
            self._used_at_most = self._used() + size
        if self._used_at_most > self.capacity:
            self._used_at_most -= size
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    def _sync_fails(self, path: str) -> bool:
        if self.sync_failure and self.chance.random() < self.sync_failure:
            return True
        for number, (after, path_part) in enumerate(self._syncs_to_fail):
            if path_part not in path:
                continue
            if after == 0:
                del self._syncs_to_fail[number]
                return True
            self._syncs_to_fail[number] = (after - 1, path_part)
        return False

    def _used(self) -> int:
        return sum(node.allocated for node in self._names.nodes.values())


class SimulatedWorkers:
    """Workers that run a job immediately and deliver the result later, in virtual time; one after the other.

    A sync covers what was written when it began, and is complete only when it ends.
    """

    def __init__(self, disk: SimulatedDisk, shortest_s: float = 0.0001, longest_s: float = 0.005) -> None:
        self._disk = disk
        self._delay_s = (shortest_s, longest_s)
        self._one_at_a_time = asyncio.Lock()
        self._stall_s = self._read_stall_s = 0.0

    def stall(self, seconds: float) -> None:
        """Delays the next job by `seconds` of virtual time."""
        self._stall_s = seconds

    def stall_reads(self, seconds: float) -> None:
        """Delays every read by `seconds` of virtual time, until `stall_reads` is called again."""
        self._read_stall_s = seconds

    async def run(self, work: Callable[..., T], *args: object) -> T:
        async with self._one_at_a_time:
            delay_s = self._disk.chance.uniform(*self._delay_s) + self._stall_s
            self._stall_s = 0.0
            try:
                with self._disk.late_syncs.deferred():
                    return work(*args)
            finally:
                await self._disk.clock.sleep(delay_s)
                if self._disk.is_off:
                    raise PowerCut  # the job was under way and never ends
                self._disk.late_syncs.finish()

    async def urgent(self, work: Callable[..., T], *args: object) -> T:
        return await self.run(work, *args)

    async def read(self, work: Callable[..., T], *args: object) -> T:
        """Runs a read concurrently with all other jobs."""
        await self._disk.clock.sleep(self._disk.chance.uniform(*self._delay_s) + self._read_stall_s)
        return work(*args)

    def close(self) -> None: ...


class _SimulatedMappedFile:
    def __init__(self, disk: SimulatedDisk, path: str, node: SimulatedFile) -> None:
        self.path = path
        self.size = len(node.pages)
        self.buffer: Buffer = node.pages
        self._disk = disk
        self._file = node

    def sync(self) -> None:
        self._disk.sync(self.path, self._file)

    def reserve(self, offset: int, length: int) -> None:
        self._disk.operation()
        self._disk.take_space(length)
        self._file.allocated += length

    def allocated(self) -> int:
        return self.size

    def is_cached(self, offset: int, length: int) -> bool:
        return self.path not in self._disk.cold

    def close(self) -> None: ...


class _SimulatedPlainFile:
    def __init__(self, disk: SimulatedDisk, path: str, node: SimulatedFile) -> None:
        self.path = path
        self._disk = disk
        self._file = node

    def size(self) -> int:
        return len(self._file.pages)

    def read_at(self, offset: int, length: int) -> bytes:
        self._disk.operation()
        self._disk.cold.discard(self.path)
        return bytes(self._file.pages[offset : offset + length])

    def is_cached(self, offset: int, length: int) -> bool:
        return self.path not in self._disk.cold

    def read_ahead(self, offset: int, length: int) -> None:
        self._disk.cold.discard(self.path)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._disk.operation()
        growth = offset + len(data) - self._file.allocated
        self._disk.take_space(growth)
        self._file.allocated += max(0, growth)
        self._file.write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._disk.operation()
        self._file.allocated = min(self._file.allocated, size)
        self._file.resize(size)

    def sync(self) -> None:
        self._disk.sync(self.path, self._file)

    def close(self) -> None: ...
