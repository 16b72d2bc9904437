"""All consume queues of a store: which there are, their files, and a bounded number of open descriptors.

A queue is opened when it is first asked for; an unused one costs nothing. Directories are

    consumequeue/<topic>/<queue id>/<20 digits>
    batchconsumequeue/<topic>/<queue id>/<20 digits>    of topics with the attribute queue.type=BatchCQ
"""

import contextlib
import itertools
import os
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from turbopump.protocol import dialect, inner
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.inner import OF_BATCHES, QUEUE_TYPE
from turbopump.protocol.light import QUEUE_ID as LIGHT_QUEUE
from turbopump.protocol.light import places
from turbopump.protocol.names import LIGHT_PREFIX
from turbopump.protocol.record import properties_of
from turbopump.runtime.disk import Disk, Entry, PlainFile
from turbopump.store.batch_queue import BATCH_UNIT, BatchQueue
from turbopump.store.commit_log import CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.consume_queue import BLANK_SIZE, UNIT, ConsumeQueue, check_topic_size
from turbopump.store.errors import UnusableStore
from turbopump.store.flags import is_no_room
from turbopump.store.queue_ext import Extension
from turbopump.store.segment import IGNORED, NAME_DIGITS, file_name
from turbopump.store.times import timestamp_at

ANY = 1 << 63
MAX_NAME = 255  # bytes, of a directory's name
MAX_AWAITED = 20_000  # light queues without messages that are remembered
MOST_WAITING = 64 << 20  # bytes of entries, all queues together, that recovery on a full disk keeps
MANY = 100  # files: beyond, the whole file system is synced at once (16,000 took 37 s one by one)


@dataclass(frozen=True, slots=True)
class ToSync:
    root: str
    files: set[str]
    directories: set[str]

    def sync(self, disk: Disk) -> None:
        """Blocking. What was deleted in the meantime is passed over."""
        if len(self.files) > MANY:
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


class Puts(NamedTuple):
    """What a queue got since it was last asked."""

    queue: ConsumeQueue
    messages: int
    size: int


class ConsumeQueues:
    def __init__(self, config: StoreConfig, disk: Disk, log: CommitLog) -> None:
        self._file_size = -(-config.consume_queue_file_size // UNIT) * UNIT
        self._batch_file_size = -(-config.batch_queue_file_size // BATCH_UNIT) * BATCH_UNIT
        self.dirty: dict[ConsumeQueue, None] = {}  # with entries to write, oldest first
        self.fresh: set[ConsumeQueue] = (
            set()
        )  # not dirty any more, but with messages that `puts` has not seen
        self.to_sync: set[str] = set()  # files written since they were last synced
        self.doubtful: set[str] = set()  # files whose sync failed
        self.batch_topics: set[str] = set()
        """Topics whose queues are batch queues: who makes a topic says so before it is used."""
        self._root = config.queue_dir
        self._batch_root = config.batch_queue_dir
        self._ext_root = config.queue_ext_dir
        self._config_dir = config.config_dir
        self._ext_file_size = config.consume_queue_ext_file_size
        self._disk = disk
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.count = 0  # of queues that have a directory
        self.lights: set[str] = set()  # light queues with messages
        self._awaited: OrderedDict[str, None] = OrderedDict()  # and those that somebody asked for
        self.extends = config.write_extensions
        self.bit_map: Callable[[str, bytes], bytes] | None = None
        """Which groups want a message of this topic with these properties; None: nobody calculates it."""
        self.heals = False  # after a crash: unfinished and missing files are no reason to complain
        self.waits_for_room = False  # in recovery: on a full disk entries stay in memory, for upkeep to write
        self.trusted_below = ANY
        self._log = log
        self._changed_dirs: set[str] = set()  # with files made since they were last synced
        self.removed_from: set[str] = set()  # directories to sync, so that removed names do not come back
        self._open: OrderedDict[tuple[ConsumeQueue, int], PlainFile] = OrderedDict()
        self._open_limit = max(2, config.open_queue_files)

    def load(self) -> None:
        """Counts the queues. None is opened."""
        self.batch_topics = batch_topics(self._config_dir, self._disk) | set(self._names(self._batch_root))
        for topic in self.batch_topics.intersection(self._names(self._root)):
            raise UnusableStore(
                f"{topic} is a topic with queue.type=BatchCQ, but {self._root} has queues of it. Remove "
                f"{os.path.join(self._root, topic)}: what belongs there is made anew from the commit log"
            )
        self.count = 0
        for topic, _ in self.on_disk():
            self.count += 1
            if topic.startswith(LIGHT_PREFIX):
                self.lights.add(topic)

    def size_of_files(self, of_batches: bool) -> int:
        return self._batch_file_size if of_batches else self._file_size

    def log_min(self) -> int:
        return self._log.min_offset

    def counted(self, physical: int) -> tuple[int, int]:
        """The store time of a record, and how many messages it holds."""
        at = physical % self._log.file_size
        buffer = self._log.files.mapped(physical - at).buffer
        return timestamp_at(buffer, at), inner.count(properties_of(buffer, at))

    def confirms(self, topic: str, queue_id: int, queue_offset: int, entry: tuple[int, int, int]) -> bool:
        """Whether the log has the message where its entry says; if it was deleted, the entry is believed."""
        physical, size, _ = entry
        if physical < self._log.min_offset or size == BLANK_SIZE:
            return True
        found = self._log.identify(physical)
        if found is None or found.size != size:
            return False
        if topic.startswith(LIGHT_PREFIX) and any(name == topic for name, _ in places(found.properties)):
            return (
                True  # at whatever offset: Apache 5.5 may give a message another one than its property says
            )
        return (found.topic, found.queue_id, found.queue_offset) == (topic, queue_id, queue_offset)

    # queues

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """For writing. A new queue needs no file before its first entry is written."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            check_topic_size(topic)
            found = self.known(topic, queue_id)
        return found

    def known(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue that a file or a record names."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            assert is_directory_name(topic), f"topic {topic!r}"
            make = BatchQueue if topic in self.batch_topics else ConsumeQueue
            found = self._queues[topic, queue_id] = make(self, topic, queue_id)
        return found

    def light(self, name: str) -> ConsumeQueue:
        """A light queue; of those without messages, the ones asked for last are remembered."""
        if name not in self.lights:
            self._awaited[name] = None
            self._awaited.move_to_end(name)
            if len(self._awaited) > MAX_AWAITED:
                forgotten = self._awaited.popitem(last=False)[0]
                if forgotten not in self.lights:  # who waits for a message of it asks again
                    self._queues.pop((forgotten, LIGHT_QUEUE), None)
        return self.known(name, LIGHT_QUEUE)

    def is_used(self, light_queue: str) -> bool:
        """Whether a light queue has, or had, messages."""
        return light_queue in self.lights

    def set_kind(self, topic: str, of_batches: bool) -> None:
        """Decides, before a topic is used, whether it has batch queues. Existing queues keep their kind."""
        if of_batches:
            self.batch_topics.add(topic)
        elif topic in self.batch_topics and not self.of(topic):
            self.batch_topics.discard(topic)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue if it exists: has been asked for by a writer, or is on disk."""
        found = self._queues.get((topic, queue_id))
        if found is None and "/" not in topic and self._disk.exists(self._directory(topic, queue_id)):
            found = self.known(topic, queue_id)
        return found

    def on_disk(self) -> Iterator[tuple[str, int]]:
        """Topic and queue id of every queue that has a directory."""
        for root in (self._root, self._batch_root):
            for topic in self._names(root):
                for queue in self._disk.entries(os.path.join(root, topic)):
                    if _is_queue(queue):
                        yield topic, int(queue.name)

    def _names(self, root: str) -> list[str]:
        """The topics that have a directory there."""
        found = self._disk.entries(root)
        return [
            entry.name
            for entry in found
            if entry.is_dir and entry.name not in IGNORED and not entry.name.startswith(".")
        ]

    def every(self) -> Iterator[ConsumeQueue]:
        """Every queue, opened one by one."""
        for topic, queue_id in {**dict.fromkeys(self.on_disk()), **dict.fromkeys(self._queues)}:
            yield self.known(topic, queue_id)

    def of(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic that are on disk, or were asked for by a writer."""
        on_disk = self._disk.entries(self._topic_directory(topic))
        ids = {int(entry.name) for entry in on_disk if _is_queue(entry)}
        ids |= {queue_id for name, queue_id in self._queues if name == topic}
        return [self.known(topic, queue_id) for queue_id in sorted(ids)]

    def topics(self, but: Container[str] = ()) -> dict[str, int]:
        """Topics other than these that have a queue → largest queue id and one."""
        found: dict[str, int] = {}
        for root in (self._root, self._batch_root):
            for topic in (entry.name for entry in self._disk.entries(root) if entry.name not in but):
                for queue in self._disk.entries(os.path.join(root, topic)):
                    if _is_queue(queue):
                        found[topic] = max(found.get(topic, 0), int(queue.name) + 1)
        for topic, queue_id in self._queues:
            if topic not in but:
                found[topic] = max(found.get(topic, 0), queue_id + 1)
        return found

    def puts(self) -> list[Puts]:
        """The queues that got messages since the last call, and how many."""
        found = []
        for queue in self.fresh.union(self.dirty):
            messages, size = queue.next_offset - queue.counted, queue.put_bytes
            queue.counted, queue.put_bytes = queue.next_offset, 0
            if messages > 0 and not queue.is_light:
                found.append(Puts(queue, messages, size))
        self.fresh.clear()
        return found

    def opened(self) -> list[ConsumeQueue]:
        return list(self._queues.values())

    def count_of(self, topic: str) -> int:
        return sum(1 for entry in self._disk.entries(self._topic_directory(topic)) if _is_queue(entry))

    def delete_topic(self, topic: str) -> None:
        """`removed_from` is to be synced before anybody is told that the topic is gone."""
        self.count -= self.count_of(topic)
        self.lights.discard(topic)
        for key in [key for key in self._queues if key[0] == topic]:
            self._queues.pop(key).delete()
        directory = self._topic_directory(topic)
        self._forget_files(directory + os.sep)
        self._disk.remove_tree(directory)
        self.removed_from.add(os.path.dirname(directory))
        self._disk.remove_tree(os.path.join(self._ext_root, topic))

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """One queue goes, and its topic's directory with the last. `removed_from` is to be synced."""
        self.lights.discard(topic)
        if (queue := self._queues.pop((topic, queue_id), None)) is not None:
            queue.delete()
        self.remove_files(topic, queue_id, durably=False)
        self._disk.remove_tree(os.path.join(self._ext_root, topic, str(queue_id)))
        if not self._disk.entries(self._topic_directory(topic)):
            self._disk.remove_tree(self._topic_directory(topic))

    def clear(self) -> None:
        """Every queue goes: there is no log they could point into."""
        for topic in {topic for topic, _ in self.on_disk()} | {topic for topic, _ in self._queues}:
            self.delete_topic(topic)

    def write_out(self, limit: int) -> int:
        """Writes the entries of up to `limit` queues, the longest waiting first. How many queues are left."""
        try:
            for queue in list(self.dirty)[:limit]:
                queue.write_out()
        except OSError as error:
            waiting = sum(len(queue.tail) for queue in self.dirty)
            if not self.waits_for_room or not is_no_room(error) or waiting > MOST_WAITING:
                raise
        return len(self.dirty)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def take_to_sync(self) -> "ToSync":
        """What has to be synced so that everything written until now survives a crash."""
        topics = {os.path.dirname(directory) for directory in self._changed_dirs}
        roots = (
            {self._root, self._batch_root, self._ext_root, os.path.dirname(self._root)} if topics else set()
        )
        taken = ToSync(self._root, self.to_sync, self._changed_dirs | topics | roots)
        self.to_sync, self._changed_dirs = set(), set()
        return taken

    @contextlib.contextmanager
    def taken_to_sync(self) -> Iterator["ToSync"]:
        """The same for a block that syncs it. Whatever ends the block early, nothing taken is forgotten."""
        taken = self.take_to_sync()
        try:
            yield taken
        except BaseException:
            self.put_back(taken)
            raise

    @property
    def is_synced(self) -> bool:
        """Whether everything that was written to files is known to be on the medium."""
        return not (self.to_sync or self._changed_dirs)  # what is doubtful is to be synced, too

    def put_back(self, untaken: "ToSync") -> None:
        """The sync failed. The system may take the pages for clean now, so all of them are written again."""
        self.to_sync |= untaken.files
        self.doubtful |= untaken.files
        self._changed_dirs |= {os.path.dirname(path) for path in untaken.files}

    def write_again(self, path: str) -> None:
        """One of the `doubtful` files."""
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
        return self.size_of_files(path.startswith(self._batch_root + os.sep))

    # files of one queue

    def begin(self, topic: str, queue_id: int) -> None:
        """A queue is about to get its first file."""
        if not self._disk.exists(self._directory(topic, queue_id)):
            self.count += 1

    def extension(self, topic: str, queue_id: int) -> Extension:
        directory = os.path.join(self._ext_root, topic, str(queue_id))
        return Extension(directory, self._ext_file_size, self._disk, self._extension_written)

    def _extension_written(self, path: str, is_new: bool) -> None:
        self.to_sync.add(path)
        if is_new or self.heals:
            self._changed_dirs.add(os.path.dirname(path))

    def described(self, topic: str, physical: int) -> tuple[int, bytes]:
        """The store time of a message, and its bit map."""
        at = physical % self._log.file_size
        buffer = self._log.files.mapped(physical - at).buffer
        bits = self.bit_map(topic, properties_of(buffer, at)) if self.bit_map is not None else b""
        return timestamp_at(buffer, at), bits

    def file_starts(self, topic: str, queue_id: int) -> list[int]:
        directory, file_size = (
            self._directory(topic, queue_id),
            self.size_of_files(topic in self.batch_topics),
        )
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
                    f"remove {self._root} while the broker is stopped, and the next start makes them anew"
                )
        return starts

    def open_file(self, queue: ConsumeQueue, start: int, create: bool) -> PlainFile | None:
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
        if len(self._open) > self._open_limit:
            self._open.popitem(last=False)[1].close()
        return file

    def remove_file(self, topic: str, queue_id: int, start: int, durably: bool = True) -> None:
        path = os.path.join(self._directory(topic, queue_id), file_name(start))
        self._forget_files(path)
        self._disk.remove(path)
        self._sync_removal(os.path.dirname(path), durably)

    def remove_files(self, topic: str, queue_id: int, durably: bool = True) -> None:
        directory = self._directory(topic, queue_id)
        self._forget_files(directory + os.sep)
        if self._disk.exists(directory):
            self.count -= 1
            self._disk.remove_tree(directory)
            self._sync_removal(os.path.dirname(directory), durably)

    def _sync_removal(self, directory: str, now: bool) -> None:
        """`now`: in recovery, where no loop waits."""
        if now:
            self._disk.sync_dir(directory)
        else:
            self.removed_from.add(directory)

    def _heal(self, topic: str, queue_id: int, starts: list[int], file_size: int) -> list[int]:
        """Keeps the files before the first missing one, which a crash took before a checkpoint."""
        kept = [start for number, start in enumerate(starts) if start == starts[0] + number * file_size]
        for start in starts[len(kept) :]:
            self.remove_file(topic, queue_id, start)
        return kept

    def _forget_files(self, prefix: str) -> None:
        for key in [key for key, file in self._open.items() if file.path.startswith(prefix)]:
            self._open.pop(key).close()
        self.to_sync = {path for path in self.to_sync if not path.startswith(prefix)}
        self._changed_dirs = {path for path in self._changed_dirs if not f"{path}{os.sep}".startswith(prefix)}

    def _directory(self, topic: str, queue_id: int) -> str:
        return f"{self._topic_directory(topic)}/{queue_id}"

    def _topic_directory(self, topic: str) -> str:
        return f"{self._batch_root if topic in self.batch_topics else self._root}/{topic}"

    def _checked_start(self, path: str, name: str, size: int, wanted: int) -> int:
        if len(name) != NAME_DIGITS or not (name.isascii() and name.isdigit()):
            raise UnusableStore(f"{path} is no consume queue file (names have 20 digits). Move it elsewhere")
        if size != wanted:
            is_batch = path.startswith(self._batch_root + os.sep)
            key = "mapperFileSizeBatchConsumeQueue" if is_batch else "mappedFileSizeConsumeQueue"
            raise UnusableStore(
                f"{path} has {size} bytes, but the configured file size is {wanted}. Set "
                f"{key} to the size this store was written with, or remove "
                f"{self._batch_root if is_batch else self._root} "
                f"while the broker is stopped: it is made anew from the commit log"
            )
        start = int(name)
        if start % wanted:
            raise UnusableStore(f"{path} does not start at a multiple of the file size {wanted}")
        return start


def batch_topics(config_dir: str, disk: Disk) -> set[str]:
    """The topics of `topics.json` that have batch queues."""
    try:
        table = dialect.loads(disk.read(os.path.join(config_dir, "topics.json")))["topicConfigTable"]
        return {name for name, topic in table.items() if _is_of_batches(topic)}
    except (OSError, BrokenBody, KeyError, TypeError, AttributeError):
        return set()  # the broker says what is wrong with it


def _is_of_batches(topic: dict[str, Any]) -> bool:
    return (topic.get("attributes") or {}).get(QUEUE_TYPE) == OF_BATCHES


def _is_queue(entry: Entry) -> bool:
    return entry.is_dir and entry.name.isascii() and entry.name.isdecimal()


def is_directory_name(topic: str) -> bool:
    """A topic's name becomes a directory's: nothing may lead out of the store."""
    if topic in (".", "..") or "/" in topic or "\0" in topic:
        return False
    return 0 < len(topic.encode()) <= MAX_NAME
