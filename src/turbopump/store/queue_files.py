"""The files of consume queues: where they are, which are open, and which have to be synced.

In: reads and writes of single queues. Out: open files, a bounded number of them. Directories are

    consumequeue/<topic>/<queue id>/<20 digits>
    batchconsumequeue/<topic>/<queue id>/<20 digits>    of topics with the attribute queue.type=BatchCQ

Which queues there are is the business of `queues.py`, what is in their files that of `consume_queue.py`.
"""

import contextlib
import itertools
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from turbopump.protocol import dialect, inner
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.inner import OF_BATCHES, QUEUE_TYPE
from turbopump.protocol.light import places
from turbopump.protocol.names import LIGHT_PREFIX
from turbopump.protocol.record import properties_of
from turbopump.runtime.disk import Disk, Entry, PlainFile
from turbopump.store.batch_queue import BATCH_UNIT
from turbopump.store.commit_log import CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import BLANK_SIZE, UNIT, ConsumeQueue
from turbopump.store.errors import UnusableStore
from turbopump.store.queue_ext import Extension
from turbopump.store.segment import IGNORED, NAME_DIGITS, file_name
from turbopump.store.times import timestamp_at

ANY = 1 << 63
MAX_NAME = 255  # bytes, of a directory's name
MAX_SINGLE_SYNCS = 100  # files; beyond, the whole file system is synced at once (16,000 took 37 s one by one)


@dataclass(frozen=True, slots=True)
class ToSync:
    """Files and directories of queues that have to reach the medium."""

    root: str
    files: set[str]
    directories: set[str]

    def sync(self, disk: Disk) -> None:
        """Blocks until all is on the medium. Files that were deleted meanwhile are skipped."""
        if len(self.files) > MAX_SINGLE_SYNCS:
            disk.sync_all(self.root)
            return
        for path in sorted(self.files):
            with contextlib.suppress(FileNotFoundError):
                file = disk.open_plain(path)
                try:
                    file.sync()
                finally:
                    file.close()
        for directory in sorted(self.directories):
            with contextlib.suppress(FileNotFoundError):
                disk.sync_dir(directory)


class QueueFiles:
    """The files of all consume queues: opens, checks, removes and syncs them. Implements QueueContext."""

    def __init__(self, config: StoreConfig, disk: Disk, log: CommitLog) -> None:
        self.dirty: dict[ConsumeQueue, None] = {}
        """Queues with entries to write, oldest first."""
        self.fresh: set[ConsumeQueue] = set()
        """Queues whose entries are all written, but whose new messages were not counted yet."""
        self.count = 0
        """Queues that have a directory."""
        self.batch_topics: set[str] = set()
        """Topics whose queues are batch queues: decided when a topic is made, before it is used."""
        self.to_sync: set[str] = set()
        """Files written since they were last synced."""
        self.doubtful: set[str] = set()
        """Files whose sync failed: the kernel may take their pages for clean."""
        self.removed_from: set[str] = set()
        """Directories to sync, so that removed names do not come back."""
        self.extends = config.write_extensions
        """Tag codes of new entries go to extension files."""
        self.bit_map: Callable[[str, bytes], bytes] | None = None
        """Returns which groups want a message of a topic with these properties; None: not calculated."""
        self.heals = False
        """After a crash: unfinished and missing files are repaired instead of refused."""
        self.trusted_below = ANY
        """Entries that point to this log offset or behind it may be left-overs."""
        self.root = config.queue_dir
        self.batch_root = config.batch_queue_dir
        self.config_dir = config.config_dir
        self._file_size = -(-config.consume_queue_file_size // UNIT) * UNIT
        self._batch_file_size = -(-config.batch_queue_file_size // BATCH_UNIT) * BATCH_UNIT
        self._ext_root = config.queue_ext_dir
        self._ext_file_size = config.consume_queue_ext_file_size
        self._disk = disk
        self._log = log
        self._changed_dirs: set[str] = set()  # with files made since they were last synced
        self._open: OrderedDict[tuple[ConsumeQueue, int], PlainFile] = OrderedDict()
        self._max_open = max(2, config.open_queue_files)

    # what the log says about a queue

    def log_min(self) -> int:
        """Returns the offset of the oldest record in the log."""
        return self._log.min_offset

    def counted(self, physical: int) -> tuple[int, int]:
        """Returns store time and number of messages of the record at log offset `physical`."""
        at = physical % self._log.file_size
        buffer = self._log.files.mapped(physical - at).buffer
        return timestamp_at(buffer, at), inner.count(properties_of(buffer, at))

    def described(self, topic: str, physical: int) -> tuple[int, bytes]:
        """Returns store time and filter bit map of the message at log offset `physical`."""
        at = physical % self._log.file_size
        buffer = self._log.files.mapped(physical - at).buffer
        bits = self.bit_map(topic, properties_of(buffer, at)) if self.bit_map is not None else b""
        return timestamp_at(buffer, at), bits

    def confirms(self, topic: str, queue_id: int, queue_offset: int, entry: tuple[int, int, int]) -> bool:
        """Whether the log has the message that an entry points to. A deleted message counts as confirmed."""
        physical, size, _ = entry
        if physical < self._log.min_offset or size == BLANK_SIZE:
            return True
        found = self._log.identify(physical)
        if found is None or found.size != size:
            return False
        if topic.startswith(LIGHT_PREFIX) and any(name == topic for name, _ in places(found.properties)):
            # At any offset: Apache 5.5 may give a message another one than its property names.
            return True
        return (found.topic, found.queue_id, found.queue_offset) == (topic, queue_id, queue_offset)

    # names

    def topics_in(self, root: str) -> list[str]:
        """Returns the topics that have a directory below `root`."""
        found = self._disk.entries(root)
        return [
            entry.name
            for entry in found
            if entry.is_dir and entry.name not in IGNORED and not entry.name.startswith(".")
        ]

    def queue_ids(self, topic_directory: str) -> list[int]:
        """Returns the ids of the queues that have a directory below that of their topic."""
        return [int(entry.name) for entry in self._disk.entries(topic_directory) if _is_queue(entry)]

    def topic_directory(self, topic: str) -> str:
        return f"{self.batch_root if topic in self.batch_topics else self.root}/{topic}"

    def exists(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has a directory."""
        return self._disk.exists(self._directory(topic, queue_id))

    def _directory(self, topic: str, queue_id: int) -> str:
        return f"{self.topic_directory(topic)}/{queue_id}"

    # files of one queue

    def size_of_files(self, of_batches: bool) -> int:
        """Returns the size of each file of a queue."""
        return self._batch_file_size if of_batches else self._file_size

    def begin(self, topic: str, queue_id: int) -> None:
        """Adds a queue that is about to get its first file to `count`, unless its directory exists."""
        if not self.exists(topic, queue_id):
            self.count += 1

    def extension(self, topic: str, queue_id: int) -> Extension:
        """Returns a new `Extension` object for the extension files of a queue."""
        directory = os.path.join(self._ext_root, topic, str(queue_id))
        return Extension(directory, self._ext_file_size, self._disk, self._extension_written)

    def _extension_written(self, path: str, is_new: bool) -> None:
        self.to_sync.add(path)
        if is_new or self.heals:
            self._changed_dirs.add(os.path.dirname(path))

    def file_starts(self, topic: str, queue_id: int) -> list[int]:
        """Returns where a queue's files begin (bytes). Gap: UnusableStore, or `heals` removes the rest."""
        directory = self._directory(topic, queue_id)
        file_size = self.size_of_files(topic in self.batch_topics)
        starts = []
        for entry in self._disk.entries(directory):
            if entry.name.startswith(".") or entry.name in IGNORED:
                continue
            path = f"{directory}/{entry.name}"
            if self.heals and not entry.size:
                self._disk.remove(path)
            else:
                starts.append(self._checked_start(path, entry.name, entry.size, file_size))
        for before, after in itertools.pairwise(starts):
            if after != before + file_size:
                if self.heals:
                    return self._heal(topic, queue_id, starts, file_size)
                missing = os.path.join(directory, file_name(before + file_size))
                raise UnusableStore(
                    f"{missing} is missing between two others. Consume queues are made from the commit log: "
                    f"remove {self.root} while the broker is stopped, and the next start rebuilds them"
                )
        return starts

    def open_file(self, queue: ConsumeQueue, start: int, create: bool) -> PlainFile | None:
        """Returns a file of a queue, opened if need be; None when it is not there and not to be created."""
        file = self._open.get((queue, start))
        if file is not None and not (create and self.heals):
            self._open.move_to_end((queue, start))
            return file
        path = f"{self._directory(queue.topic, queue.queue_id)}/{file_name(start)}"
        if create and (self.heals or not self._disk.exists(path)):
            # After a crash: the killed process may have made it and not synced its name.
            self._changed_dirs.add(os.path.dirname(path))
        if file is not None:
            return file
        try:
            file = self._disk.open_plain(path, create, self.size_of_files(queue.is_batch) if create else 0)
        except FileNotFoundError:
            return None
        self._open[queue, start] = file
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)[1].close()
        return file

    def remove_file(self, topic: str, queue_id: int, start: int, durably: bool = True) -> None:
        """Removes one file of a queue. Unless `durably`, `removed_from` has to be synced."""
        path = os.path.join(self._directory(topic, queue_id), file_name(start))
        self._forget(path)
        self._disk.remove(path)
        self._sync_removal(os.path.dirname(path), durably)

    def remove_files(self, topic: str, queue_id: int, durably: bool = True) -> None:
        """Removes the directory of a queue. Unless `durably`, `removed_from` has to be synced."""
        directory = self._directory(topic, queue_id)
        self._forget(directory + os.sep)
        if self._disk.exists(directory):
            self.count -= 1
            self._disk.remove_tree(directory)
            self._sync_removal(os.path.dirname(directory), durably)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Removes all files of a queue, and its topic's directory with the last queue.

        `removed_from` has to be synced.
        """
        self.remove_files(topic, queue_id, durably=False)
        self._disk.remove_tree(os.path.join(self._ext_root, topic, str(queue_id)))
        if not self._disk.entries(self.topic_directory(topic)):
            self._disk.remove_tree(self.topic_directory(topic))

    def remove_topic(self, topic: str) -> None:
        """Removes all files of a topic's queues. `removed_from` has to be synced."""
        directory = self.topic_directory(topic)
        self.count -= len(self.queue_ids(directory))
        self._forget(directory + os.sep)
        self._disk.remove_tree(directory)
        self.removed_from.add(os.path.dirname(directory))
        self._disk.remove_tree(os.path.join(self._ext_root, topic))

    def _sync_removal(self, directory: str, now: bool) -> None:
        # Only recovery syncs at once: no loop runs then that would have to wait.
        if now:
            self._disk.sync_dir(directory)
        else:
            self.removed_from.add(directory)

    def _heal(self, topic: str, queue_id: int, starts: list[int], file_size: int) -> list[int]:
        """Removes the files after the first missing one, which a crash took; returns the starts of others."""
        kept = [start for number, start in enumerate(starts) if start == starts[0] + number * file_size]
        for start in starts[len(kept) :]:
            self.remove_file(topic, queue_id, start)
        return kept

    def _forget(self, prefix: str) -> None:
        for key in [key for key, file in self._open.items() if file.path.startswith(prefix)]:
            self._open.pop(key).close()
        self.to_sync = {path for path in self.to_sync if not path.startswith(prefix)}
        self._changed_dirs = {path for path in self._changed_dirs if not f"{path}{os.sep}".startswith(prefix)}

    def _checked_start(self, path: str, name: str, size: int, wanted: int) -> int:
        if len(name) != NAME_DIGITS or not (name.isascii() and name.isdigit()):
            raise UnusableStore(f"{path} is no consume queue file (names have 20 digits). Move it elsewhere")
        if size != wanted:
            is_batch = path.startswith(self.batch_root + os.sep)
            key = "mapperFileSizeBatchConsumeQueue" if is_batch else "mappedFileSizeConsumeQueue"
            raise UnusableStore(
                f"{path} has {size} bytes, but the configured file size is {wanted}. Set "
                f"{key} to the size this store was written with, or remove "
                f"{self.batch_root if is_batch else self.root} "
                f"while the broker is stopped: it is rebuilt from the commit log"
            )
        start = int(name)
        if start % wanted:
            raise UnusableStore(f"{path} does not start at a multiple of the file size {wanted}")
        return start

    # syncing

    def take_to_sync(self) -> ToSync:
        """Returns the files and directories to sync, and forgets them: the caller has to sync them."""
        topics = {os.path.dirname(directory) for directory in self._changed_dirs}
        roots = {self.root, self.batch_root, self._ext_root, os.path.dirname(self.root)} if topics else set()
        taken = ToSync(self.root, self.to_sync, self._changed_dirs | topics | roots)
        self.to_sync, self._changed_dirs = set(), set()
        return taken

    @contextlib.contextmanager
    def taken_to_sync(self) -> Iterator[ToSync]:
        """Context manager that gives what its block has to sync, and takes it back when the block raises."""
        taken = self.take_to_sync()
        try:
            yield taken
        except BaseException:
            self.put_back(taken)
            raise

    @property
    def is_synced(self) -> bool:
        """Whether everything that was written to files is known to be on the medium."""
        return not (self.to_sync or self._changed_dirs)  # doubtful files are among those to sync

    def put_back(self, untaken: ToSync) -> None:
        """Takes back files that could not be synced and marks them as `doubtful`, to be written again.

        The kernel may count their pages as clean.
        """
        self.to_sync |= untaken.files
        self.doubtful |= untaken.files
        self._changed_dirs |= {os.path.dirname(path) for path in untaken.files}

    def write_again(self, path: str) -> None:
        """Rewrites one of the `doubtful` files with its own contents."""
        with contextlib.suppress(FileNotFoundError):
            file = self._disk.open_plain(path)
            try:
                file.write_at(0, file.read_at(0, self._size_of(path)))
            finally:
                file.close()
        self.doubtful.discard(path)

    def _size_of(self, path: str) -> int:
        if path.startswith(self._ext_root + os.sep):
            return self._ext_file_size
        return self.size_of_files(path.startswith(self.batch_root + os.sep))

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


def batch_topics(config_dir: str, disk: Disk) -> set[str]:
    """Returns the topics of `topics.json` that have batch queues; none if the file cannot be read."""
    try:
        table = dialect.loads(disk.read(os.path.join(config_dir, "topics.json")))["topicConfigTable"]
        return {name for name, topic in table.items() if _is_of_batches(topic)}
    except (OSError, BrokenBody, KeyError, TypeError, AttributeError):
        return set()  # the broker reports what is wrong with the file


def is_directory_name(topic: str) -> bool:
    """Returns whether a topic's name can name a directory: at most 255 bytes, no path out of the store."""
    if topic in (".", "..") or "/" in topic or "\0" in topic:
        return False
    return 0 < len(topic.encode()) <= MAX_NAME


def _is_of_batches(topic: dict[str, Any]) -> bool:
    return (topic.get("attributes") or {}).get(QUEUE_TYPE) == OF_BATCHES


def _is_queue(entry: Entry) -> bool:
    return entry.is_dir and entry.name.isascii() and entry.name.isdecimal()
