"""Lists and maps the files of a store: the parts of its log, and its topics and queues.

In: a directory, written by us or by Apache, in use, stopped or copied. Out: mapped parts of the log, and
where it ends. Reads only, takes no lock and opens no store: a broker that uses the directory is not affected.
Consume queues are in `queue.py`; what a query needs is decided in `plan.py`.

The log of a DLedger node consists of entries, each a head and a record; files of a commit log may come before
them. It ends with the last entry that is known to be committed: by the checkpoint, or because it is in a
queue.
"""

import logging
import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from turbopump.pipelines.log.entries import entries_in
from turbopump.pipelines.record_positions import Data, Mask, Numbers, RecordPositions, starts_in
from turbopump.protocol.dledger.entry import HEAD_SIZE
from turbopump.runtime.disk import Entry, SystemDisk
from turbopump.store.dledger.entry_scan import beginning
from turbopump.store.dledger.stopped_entries import StoppedEntries
from turbopump.store.errors import UnusableStore
from turbopump.store.location import find_store
from turbopump.store.pieces import LogPart, log_parts
from turbopump.store.scan import measure_at
from turbopump.store.segment import NAME_DIGITS
from turbopump.store.times import timestamp_at

log_line = logging.getLogger(__name__)


class NoStore(ValueError):
    """The directory is not a store, or lacks what is to be read; the text says what was looked for."""


@dataclass(frozen=True, slots=True)
class QueueName:
    """Topic and queue id of a queue in a store; `is_batch` (a batch consume queue) is not compared."""

    topic: str
    queue_id: int
    is_batch: bool = field(default=False, compare=False)  # kept in batchconsumequeue/


class StoreFiles:
    """The files of one store directory, listed at first use; memory maps stay open as long as it lives."""

    def __init__(self, directory: str, log_dirs: Sequence[str] = ()) -> None:
        self.directory = store_in(directory) if not log_dirs else directory
        self._log_dirs = tuple(log_dirs) or (os.path.join(self.directory, "commitlog"),)
        self._maps: dict[str, Data] = {}

    # the log

    @cached_property
    def parts(self) -> list[LogPart]:
        found = [part for path in self._log_dirs for part in log_parts(path, SystemDisk()) if part.size]
        entries = self._entries.parts
        older = [part for part in found if not entries or part.start < entries[0].start]
        return sorted([*older, *entries], key=lambda part: part.start)

    @cached_property
    def _entries(self) -> StoppedEntries:
        try:
            return StoppedEntries(self.directory, SystemDisk())
        except UnusableStore as error:  # several nodes
            raise NoStore(str(error)) from None

    @property
    def log_begin(self) -> int:
        return self.parts[0].start if self.parts else 0

    def part_at(self, physical: int) -> LogPart | None:
        """Returns the log file that holds the log offset `physical`; None if no file does."""
        at = bisect_right(self.parts, physical, key=lambda part: part.start) - 1
        return self.parts[at] if at >= 0 and physical < self.parts[at].end else None

    def bytes_of(self, part: LogPart) -> Data:
        """Returns a log file as a memory map. Raises FileNotFoundError if deleted since it was listed."""
        if part.path not in self._maps:
            self._maps[part.path] = mapped(part.path)
        return self._maps[part.path]

    def first_record(self, part: LogPart) -> int:
        """Returns the log offset of the first record of a file."""
        if not part.holds_entries:
            return part.start
        return part.start + beginning(self.bytes_of(part), part.size) + HEAD_SIZE

    def begin_of(self, physical: int) -> int:
        """Returns where reading begins to find the record at a log offset: before the head of its entry."""
        part = self.part_at(physical)
        return physical - HEAD_SIZE if part is not None and part.holds_entries else physical

    def store_time(self, physical: int) -> int | None:
        part = self.part_at(physical)
        if part is None or physical + 88 > part.end:
            return None
        return timestamp_at(self.bytes_of(part), physical - part.start)

    def log_end(self, known: int) -> int:
        """Returns the log offset after the last complete record; checks only records from `known` on.

        Records before `known` are in queues and known to be complete; those after it may be half written at
        this moment, so their bodies are compared with their checksums. Entries that are not known to be
        committed do not count.
        """
        end = max(known, self.log_begin)
        if entries := self._entries.parts:
            committed, _ = self._entries.committed_tail()
            if max(end, committed) > entries[0].start:
                return max(end, committed)
        for part in self.parts:
            if part.holds_entries:
                break
            if part.end > end >= part.start:
                position = self._walked(part, end - part.start)
                if position < part.size:
                    return part.start + position
                end = part.end
        return end

    def _walked(self, part: LogPart, position: int) -> int:
        """Returns where the whole records from `position` on end in the file; its size if a blank ends it."""
        data = self.bytes_of(part)
        while (size := measure_at(data, part.start, position, part.size, check_crc=True)) > 0:
            position += size
        return part.size if size == 0 else position

    def warn_of_uncommitted(self, known: Callable[[], int]) -> None:
        """Warns of entries that are not read, because it is not known whether they are committed.

        `known` returns the log offset up to which queues have messages.
        """
        committed, ends = self._entries.committed_tail() if self._entries.parts else (0, [])
        reached = max(committed, known()) if ends else committed
        if count := sum(end > reached for end in ends):
            log_line.warning(
                "%s: %d entries of the DLedger node %s behind log offset %d are not known to be committed, "
                "and are not read",
                *(self.directory, count, self._entries.node, reached),
            )

    # topics and queues

    @cached_property
    def queue_names(self) -> list[QueueName]:
        """The queues that have consume queue files in this store, batch consume queues included."""
        return [*self._queues("consumequeue"), *self._queues("batchconsumequeue", is_batch=True)]

    def _queues(self, folder: str, is_batch: bool = False) -> list[QueueName]:
        root = os.path.join(self.directory, folder)
        return [
            QueueName(topic.name, int(queue.name), is_batch)
            for topic in _directories(root)
            for queue in _directories(os.path.join(root, topic.name))
            if queue.name.isdecimal()
        ]

    @cached_property
    def topics(self) -> list[str]:
        """The topics that have consume queue files or are in config/topics.json, sorted."""
        found = {name.topic for name in self.queue_names}
        try:
            with open(os.path.join(self.directory, "config", "topics.json"), "rb") as file:
                found.update(msgspec.json.decode(file.read(), type=_TopicTable).topicConfigTable)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            pass  # it only adds the names of empty topics
        return sorted(found)


class _TopicTable(msgspec.Struct):
    """Decodes what is read of topics.json: the names of topics, which are keys of topicConfigTable."""

    topicConfigTable: dict[str, msgspec.Raw] = {}  # noqa: N815 - the file's own word


def is_in_place(places: RecordPositions, part: LogPart) -> Mask:
    """Marks records that are complete and lie at the log offset that is stored in them.

    Others are left from an earlier use of the file.
    """
    good: Mask = places.is_whole & (places.number("physical") == places.starts + part.start)
    return good


def records_between(data: Data, part: LogPart, begin: int, end: int) -> tuple[Numbers, int]:
    """Returns the starts of records in [begin, end), and their end: before `end` if other bytes follow."""
    starts = entries_in(data, begin, end) + HEAD_SIZE if part.holds_entries else starts_in(data, begin, end)
    if not len(starts):
        return starts, begin
    last = int(starts[-1])
    return starts, last + struct.unpack_from(">i", data, last)[0]


def mapped(path: str) -> Data:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def store_in(directory: str) -> str:
    """Returns the directory, or its subdirectory `store`, whichever has a log. Raises NoStore."""
    found = find_store(directory, with_dledger=True)
    if found is None:
        raise NoStore(f"{directory}: not a store, there is no commitlog/ in it")
    return found


def _directories(path: str) -> list[Entry]:
    return [entry for entry in SystemDisk().entries(path) if entry.is_dir]


def is_file(entry: Entry) -> bool:
    return not entry.is_dir and len(entry.name) == NAME_DIGITS and entry.name.isdecimal()
