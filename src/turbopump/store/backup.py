"""Copies a store directory consistently, also while a broker writes to it.

In: a store directory. Out: another one, which starts as if the broker had been killed when the copy began, or
a little later. Everything acknowledged before that is in it. Files that can be rebuilt from the log are left
out: a store without consume queues, index and checkpoint is completed by its first start, ours or Apache's.

Tables are copied before the log, so that an offset never points beyond the messages that were copied. A file
of the log is copied only when the file before it was full by then: the copy has no gap.

Of a DLedger node, both parts of the log are copied, and before them term, vote and checkpoint: what that says
to be committed or on the medium is in the copy. Entries that are not committed are copied too.
"""

import os
from collections.abc import Generator
from dataclasses import dataclass

from turbopump.runtime.disk import Disk, PlainFile, SystemDisk
from turbopump.store.dledger.entry_walk import store_parts
from turbopump.store.dledger.state_files import CHECKPOINT_FILE, TERM_FILE
from turbopump.store.errors import UnusableStore
from turbopump.store.location import dledger_id
from turbopump.store.pieces import LogPart
from turbopump.store.verify import Progress

CHUNK = 4 << 20
_ZEROS = bytes(CHUNK)


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a backup: source and target directory, number of tables and log files, bytes written."""

    directory: str
    target: str
    tables: int
    log_files: int
    log_begin: int
    bytes: int  # written; the empty rest of the last file takes no space
    dledger_id: str = ""  # of the node whose log it is; empty: a commit log


def backup(directory: str, target: str, disk: Disk | None = None) -> Generator[Progress, None, Copied]:
    """Copies a store to `target`, yielding progress. Raises UnusableStore when `target` is not empty."""
    disk = disk or SystemDisk()
    if disk.entries(target):
        raise UnusableStore(f"the target of a backup must be an empty directory, but {target} is not")
    node = dledger_id(directory, disk)
    tables = _copy_tables(f"{directory}/config", f"{target}/config", disk)
    if node:
        _copy_state(f"{directory}/dledger-{node}", f"{target}/dledger-{node}", disk)
    parts = store_parts(directory, disk)
    total = sum(part.size for part in parts)
    done = written = 0
    copied: list[LogPart] = []
    for number, part in enumerate(parts, 1):
        is_last = number == len(parts) or not _is_begun(parts[number], disk)
        try:
            for size, was_written in _copy(part, _target_of(part, directory, target), disk):
                done += size
                written += was_written
                yield Progress(min(done, total), total)
        except FileNotFoundError:  # deleted by retention, which only deletes the oldest
            if copied:
                raise
            continue
        copied.append(part)
        if is_last:
            break
    disk.make_dirs(f"{target}/dledger-{node}/data" if node else f"{target}/commitlog")
    disk.sync_dir(target)
    yield Progress(total, total)
    return Copied(directory, target, tables, len(copied), copied[0].start if copied else 0, written, node)


def _target_of(part: LogPart, directory: str, target: str) -> str:
    """Returns the directory of the copy for a file of the log, of records or of entries."""
    return target + os.path.dirname(part.path).removeprefix(directory)


def _copy_state(directory: str, target: str, disk: Disk) -> None:
    """Copies term and vote, and the checkpoint; in the middle of a save, what was there before."""
    disk.make_dirs(target)
    for name in (TERM_FILE, CHECKPOINT_FILE):
        for candidate in (name, f"{name}.bak", name):
            try:
                data = disk.read(f"{directory}/{candidate}")
            except FileNotFoundError:
                continue
            disk.write(f"{target}/{name}", data)
            break
    disk.sync_dir(target)
    disk.sync_dir(os.path.dirname(target))


def _copy_tables(directory: str, target: str, disk: Disk) -> int:
    names = [entry.name for entry in disk.entries(directory) if entry.name.endswith(".json")]
    disk.make_dirs(target)
    for name in names:
        disk.write(f"{target}/{name}", disk.read(f"{directory}/{name}"))
    disk.sync_dir(target)
    return len(names)


def _is_begun(part: LogPart, disk: Disk) -> bool:
    try:
        file = disk.open_plain(part.path)
    except FileNotFoundError:
        return True
    try:
        return any(file.read_at(0, 8))
    finally:
        file.close()


def _copy(part: LogPart, directory: str, disk: Disk) -> Generator[tuple[int, int], None, None]:
    """Copies a log file to `directory`; yields (bytes read, bytes written) per chunk, zeros not written.

    A partial copy has a name that no store reads.
    """
    source = disk.open_plain(part.path)
    try:
        unfinished = f"{os.path.dirname(directory)}/{os.path.basename(part.path)}.part"
        target = disk.open_plain(unfinished, create=True)
        try:
            target.truncate(part.size)
            yield from _copy_bytes(source, target, part.size)
            target.sync()
        finally:
            target.close()
    finally:
        source.close()
    disk.make_dirs(directory)
    disk.rename(unfinished, f"{directory}/{os.path.basename(part.path)}")
    disk.sync_dir(directory)


def _copy_bytes(source: PlainFile, target: PlainFile, size: int) -> Generator[tuple[int, int], None, None]:
    for at in range(0, size, CHUNK):
        data = source.read_at(at, min(CHUNK, size - at))
        is_empty = data == _ZEROS[: len(data)]
        if not is_empty:
            target.write_at(at, data)
        yield len(data), 0 if is_empty else len(data)
