"""State of a simulated disk: files with three images, and names that are durable or not yet.

A file has the content that programs see (the page cache), the content the system believes to be on disk, and
the content that is there. A failed sync makes the last two differ: the system marks the pages as clean and
does not write them again.
"""

import errno
import os
from collections.abc import Iterator
from enum import Enum
from typing import Any, SupportsIndex

from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import PUBLIC_MODE, Entry

SECTOR = 512
BLOCK = 128 * SECTOR  # compared at once, before its sectors are
MAX_NAME, SURELY_SHORT = 255, 63  # bytes of a file name, and characters that never take more


class Survival(Enum):
    """Which of the sectors that were written and not synced survive a crash."""

    LOST = "none of them"
    KEPT = "all of them: the process was killed, the machine runs on"
    RANDOM = "each by chance: torn and reordered writes"
    PREFIX = "those before a random point of each file"


class _Pages(bytearray):
    """Content of a mapping. Records assignments: writing equal bytes makes a page dirty too."""

    touched: set[int]

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return bytes(found) if isinstance(key, slice) else found  # as mmap does

    def __setitem__(self, key: Any, value: Any) -> None:
        size = len(self)
        super().__setitem__(key, value)
        if len(self) != size:
            raise IndexError("mmap slice assignment is wrong size")
        start, stop, _ = key.indices(size) if isinstance(key, slice) else _one(key)
        self.touched.update(range(start // SECTOR, (stop + SECTOR - 1) // SECTOR))


def _one(key: SupportsIndex) -> tuple[int, int, int]:
    return (key.__index__(), key.__index__() + 1, 1)


class SimulatedFile:
    """One file: the page cache, the content believed to be on disk, and the content on disk."""

    def __init__(self, clock: Clock, durable: bytes, allocated: int = 0) -> None:
        self._clock = clock
        self.pages = _Pages(durable)
        self.pages.touched = set()
        self.believed = bytearray(durable)
        self.durable = bytearray(durable)
        self.allocated = allocated
        self.modified_ms = clock.now_ms()
        self.mode = PUBLIC_MODE
        self.group = 0

    def dirty_sectors(self) -> list[int]:
        return sorted(self.pages.touched.union(_differing(self.pages, self.believed)))

    def note_change(self) -> None:
        if self.pages.touched or self.pages != self.believed:
            self.modified_ms = self._clock.now_ms()

    def resize(self, size: int) -> None:
        if size < len(self.pages):
            del self.pages[size:]
        else:
            self.pages.extend(bytes(size - len(self.pages)))
        self.modified_ms = self._clock.now_ms()

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        if offset + len(data) > len(self.pages):
            self.resize(offset + len(data))
        self.pages[offset : offset + len(data)] = data
        self.modified_ms = self._clock.now_ms()

    def after_kill(self) -> "SimulatedFile":
        node = SimulatedFile(self._clock, bytes(self.pages), self.allocated)
        node.pages.touched.update(self.pages.touched)
        node.believed, node.durable = bytearray(self.believed), bytearray(self.durable)
        node.modified_ms, node.mode, node.group = self.modified_ms, self.mode, self.group
        return node

    def after_crash(self, chance: Chance, survival: Survival) -> "SimulatedFile":
        dirty = self.dirty_sectors()
        is_size_dirty = len(self.pages) != len(self.believed)
        kept = _survivors(dirty, chance, survival)
        is_size_kept = is_size_dirty and bool(_survivors([0], chance, survival))
        size = len(self.pages) if is_size_kept else len(self.durable)
        content = bytearray(self.durable)
        _copy_sectors(content, self.pages, kept)
        content = content[:size] + bytes(max(0, size - len(content)))
        node = SimulatedFile(self._clock, bytes(content), self.allocated)
        node.modified_ms, node.mode, node.group = self.modified_ms, self.mode, self.group
        return node


class PendingSync:
    """A sync under way: the dirty sectors of a file as they were when the sync began."""

    def __init__(self, node: SimulatedFile) -> None:
        self.node = node
        self._sectors = sectors = node.dirty_sectors()
        self._size = len(node.pages)
        self._first = sectors[0] if sectors else 0
        self._snapshot = node.pages[self._first * SECTOR : (sectors[-1] + 1) * SECTOR if sectors else 0]
        # From now on the system takes these pages for clean, even if they never reach the disk.
        self._write(node.believed, sectors, self._size)
        node.pages.touched.clear()

    def finish(self) -> None:
        self._write(self.node.durable, self._sectors, self._size)

    def finish_partly(self, chance: Chance) -> None:
        """Brings a random part of the sectors to disk; the file's length is randomly old or new."""
        size = chance.choice([len(self.node.durable), self._size])
        self._write(self.node.durable, _survivors(self._sectors, chance, Survival.RANDOM), size)

    def _write(self, image: bytearray, sectors: list[int], size: int) -> None:
        _copy_sectors(image, self._snapshot, sectors, self._first)
        del image[size:]
        image.extend(bytes(size - len(image)))


class DirectoryTree:
    """All paths of a simulated disk: as programs see them, as they are on disk, and pending changes."""

    def __init__(self) -> None:
        self.nodes: dict[str, SimulatedFile] = {}
        self.directories: set[str] = {""}
        self._durable: dict[str, SimulatedFile] = {}
        self._durable_directories: set[str] = {""}
        self._pending: dict[str, list[dict[str, SimulatedFile | None]]] = {}

    def find(self, path: str) -> SimulatedFile:
        if path not in self.nodes:
            check_name(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.nodes[path]

    def link(self, path: str, node: SimulatedFile) -> None:
        self.change(path, {path: node})

    def change(self, path: str, names: dict[str, SimulatedFile | None]) -> None:
        for name in names:
            check_name(name)
        parent = parent_of(path)
        if parent not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parent)
        _apply(self.nodes, names)
        self._pending.setdefault(parent, []).append(names)

    def make_dirs(self, path: str) -> None:
        while path not in self.directories:
            self.directories.add(path)
            path = parent_of(path)

    def remove_tree(self, path: str) -> None:
        """Removes a directory as one change of its parent; drops pending changes inside."""
        inside = [name for name in self.nodes if _is_inside(name, path)]
        for parent in [name for name in self._pending if _is_inside(name, path)]:
            del self._pending[parent]
        gone: dict[str, SimulatedFile | None] = dict.fromkeys([*inside, *self._durable_inside(path)])
        _apply(self.nodes, gone)
        self.directories = {name for name in self.directories if not _is_inside(name, path)}
        self._pending.setdefault(parent_of(path), []).append(gone)

    def _durable_inside(self, path: str) -> list[str]:
        return [name for name in self._durable if _is_inside(name, path)]

    def sync(self, path: str) -> None:
        """Makes the entries of a directory and the directory itself durable, as journaling systems do."""
        path = path.rstrip("/")
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        for parent, changes in self._pending.items():
            here = [n for n, names in enumerate(changes, 1) if path in map(parent_of, names)]
            done = len(changes) if parent == path else max(here, default=0)
            for names in changes[:done]:
                _apply(self._durable, names)
            del changes[:done]
        removed = self._durable_directories - self.directories
        self._durable_directories -= {name for name in removed if parent_of(name) == path}
        while path not in self._durable_directories:
            self._durable_directories.add(path)
            path = parent_of(path)

    def entries(self, directory: str) -> list[Entry]:
        prefix = directory.rstrip("/") + "/"
        if prefix[:-1] not in self.directories:
            check_name(directory)
            return []
        files = [
            Entry(path[len(prefix) :], len(node.pages), False)
            for path, node in self.nodes.items()
            if path.startswith(prefix) and "/" not in path[len(prefix) :]
        ]
        inner = [
            Entry(path[len(prefix) :], 0, True)
            for path in self.directories
            if path.startswith(prefix) and "/" not in path[len(prefix) :]
        ]
        return sorted(files + inner, key=lambda entry: entry.name)

    def after_kill(self) -> "DirectoryTree":
        known = {id(node): node for node in [*self.nodes.values(), *self._durable.values()]}
        for changes in self._pending.values():
            known.update((id(node), node) for names in changes for node in names.values() if node)
        copies = {key: node.after_kill() for key, node in known.items()}
        after = DirectoryTree()
        after.nodes = {path: copies[id(node)] for path, node in self.nodes.items()}
        after.directories = set(self.directories)
        after._durable = {path: copies[id(node)] for path, node in self._durable.items()}
        after._durable_directories = set(self._durable_directories)
        for parent, changes in self._pending.items():
            after._pending[parent] = [
                {path: node and copies[id(node)] for path, node in names.items()} for names in changes
            ]
        return after

    def after_crash(self, chance: Chance, survival: Survival) -> "DirectoryTree":
        for changes in self._pending.values():
            for names in changes[: _prefix(len(changes), chance, survival)]:
                _apply(self._durable, names)
        unsynced = sorted(self._durable_directories ^ self.directories)
        changed = {unsynced[n] for n in _survivors(list(range(len(unsynced))), chance, survival)}
        after = DirectoryTree()
        for path in sorted(self._durable_directories ^ changed):
            if parent_of(path) in after.directories:  # its parent exists too
                after.directories.add(path)
        for path, node in self._durable.items():
            if parent_of(path) in after.directories:
                after.nodes[path] = node.after_crash(chance, survival)
        after._durable = dict(after.nodes)
        after._durable_directories = set(after.directories)
        return after


def check_name(path: str) -> None:
    """Raises ValueError or OSError, as a system does, for a path that no file can have."""
    if "\0" in path:
        raise ValueError("embedded null byte")
    if len(path) > SURELY_SHORT and any(len(name.encode()) > MAX_NAME for name in path.split("/")):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)


def parent_of(path: str) -> str:
    """Returns the directory of a path; the root has an empty name."""
    return path.rpartition("/")[0]


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def _apply(table: dict[str, SimulatedFile], names: dict[str, SimulatedFile | None]) -> None:
    for path, node in names.items():
        if node is None:
            table.pop(path, None)
        else:
            table[path] = node


def _differing(one: bytearray, other: bytearray) -> set[int]:
    """Returns the sectors in which two contents differ, those that only the longer one has included."""
    if one == other:
        return set()
    longest = max(len(one), len(other))
    left, right = memoryview(one), memoryview(other)
    return {
        at // SECTOR
        for block in _unequal(left, right, range(0, longest, BLOCK))
        for at in _unequal(left, right, range(block, min(block + BLOCK, longest), SECTOR))
    }


def _unequal(one: memoryview, other: memoryview, starts: range) -> list[int]:
    """Returns those starts of equally long parts where the parts differ."""
    size = starts.step
    return [at for at in starts if bytes(one[at : at + size]) != bytes(other[at : at + size])]


def _survivors(sectors: list[int], chance: Chance, survival: Survival) -> list[int]:
    if survival is Survival.RANDOM:
        return [sector for sector in sectors if chance.random() < 0.5]
    return sectors[: _prefix(len(sectors), chance, survival)]


def _prefix(count: int, chance: Chance, survival: Survival) -> int:
    """Returns how many of `count` ordered changes survive: none if LOST, otherwise a random number."""
    return 0 if survival is Survival.LOST else chance.randint(0, count)


def _copy_sectors(target: bytearray, source: bytes | bytearray, sectors: list[int], first: int = 0) -> None:
    """Copies sectors, given in order, to `target`; `source` begins with sector `first`."""
    for begin, end in _runs(sectors):
        at = begin * SECTOR
        data = source[at - first * SECTOR : (end - first) * SECTOR]
        if at > len(target):
            target.extend(bytes(at - len(target)))
        target[at : at + len(data)] = data


def _runs(sectors: list[int]) -> Iterator[tuple[int, int]]:
    """Yields the first sector and the one behind the last of each run without a gap."""
    begin = end = -1
    for sector in sectors:
        if sector != end:
            if end > begin:
                yield begin, end
            begin = sector
        end = sector + 1
    if end > begin:
        yield begin, end
