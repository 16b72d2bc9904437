"""Checks a store's queues, index and timers against its log, and the log against them. Reads only.

In: a directory, ours or Apache's, in use, stopped or copied. Out: progress on the way, then a `VerifyReport`.
Memory does not grow with the log: the log is read once, each queue and the index are read beside it, in
chunks. In a store that is in use or crashed, the last entries may not be written yet: a note, no problem.
"""

from collections import Counter, OrderedDict
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import lru_cache

from turbopump.protocol import dialect
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.hashing import extend_hash, java_hash
from turbopump.protocol.light import OFFSETS_MARK as LIGHT_OFFSETS
from turbopump.protocol.light import QUEUE_ID as LIGHT_QUEUE
from turbopump.protocol.light import places, takes_part
from turbopump.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from turbopump.protocol.sysflag import INNER_BATCH, PREPARED, ROLLBACK, TRANSACTION_MASK
from turbopump.runtime.disk import Disk, SystemDisk
from turbopump.store.batch_check import BatchCheck
from turbopump.store.dispatch import DELAY, KEYS, TAGS, UNIQUE_KEY, find, text_of
from turbopump.store.dledger.entry_check import EntryCheck
from turbopump.store.dledger.entry_walk import store_parts
from turbopump.store.findings import Finding, Findings
from turbopump.store.index_check import IndexCheck
from turbopump.store.pieces import Fields, Kind, Piece
from turbopump.store.queue_check import QueueCheck
from turbopump.store.queue_files import batch_topics, is_directory_name
from turbopump.store.walk import walk
from turbopump.store.wheel_check import WheelCheck

PROGRESS_BYTES = 16 << 20
MAX_QUEUES_IN_MEMORY = 1024  # queues that keep a chunk of their entries


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a tool: bytes of the log that are done, and in all."""

    done: int
    total: int


@dataclass(slots=True)
class TopicCount:
    """Number of records and bytes, and ids of the queues, that the log has of a topic."""

    records: int = 0
    bytes: int = 0
    queues: set[int] = field(default_factory=set)


@dataclass(slots=True)
class VerifyReport:
    """Result of `verify`: extent of the log, counts of each topic, problems and notes."""

    directory: str
    is_clean: bool  # no `abort` file: not in use and stopped in order; and no entry is uncommitted
    log_begin: int = 0
    log_end: int = 0
    records: int = 0
    topics: dict[str, TopicCount] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # of problems and notes, by kind

    @property
    def is_good(self) -> bool:
        return not self.problems


def verify(
    directory: str,
    disk: Disk | None = None,
    log_dir: str = "",
    index_shape: tuple[int, int] | None = None,
) -> Generator[Progress, None, VerifyReport]:
    """Checks a store, reading only; yields progress and returns the report.

    `index_shape`: slots and items of an index file, when they are unusual.
    """
    return _Verification(directory, disk or SystemDisk(), log_dir, index_shape).run()


class _Verification:
    """One run over the log with a check of each queue, the index and the timers."""

    def __init__(self, directory: str, disk: Disk, log_dir: str, shape: tuple[int, int] | None) -> None:
        self._directory = directory
        self._disk = disk
        self._findings = Findings()
        self._parts = store_parts(directory, disk, log_dir)
        self._entries = EntryCheck(directory, disk, self._findings)
        is_clean = not disk.exists(f"{directory}/abort") and self._entries.is_committed
        self._report = VerifyReport(directory, is_clean)
        if self._parts:
            self._report.log_begin = self._report.log_end = self._parts[0].start
        self._queues: OrderedDict[tuple[str, int], QueueCheck | BatchCheck] = OrderedDict()
        in_directory = {
            entry.name for entry in disk.entries(f"{directory}/batchconsumequeue") if entry.is_dir
        }
        self._of_batches = in_directory | batch_topics(f"{directory}/config", disk)
        self._has_extensions = disk.exists(f"{directory}/consumequeue_ext")
        self._index = IndexCheck(
            f"{directory}/index", disk, self._findings, self._report.log_begin, self._report.is_clean, shape
        )
        self._wheel = WheelCheck(
            directory, disk, self._findings, self._report.log_begin, self._report.is_clean
        )
        self._damage: Piece | None = None
        self._last_timestamp = 0

    def run(self) -> Generator[Progress, None, VerifyReport]:
        report, total = self._report, sum(part.size for part in self._parts)
        self._check_parts()
        next_progress = PROGRESS_BYTES
        for piece in walk(self._parts, self._disk):
            if not self._check_piece(piece):
                break
            if (done := piece.end - report.log_begin) >= next_progress:
                next_progress = done + PROGRESS_BYTES
                yield Progress(done, total)
        self._finish()
        report.problems, report.notes = self._findings.problems, self._findings.notes
        report.counts = self._findings.counts
        yield Progress(total, total)
        return report

    def _check_parts(self) -> None:
        for before, after in zip(self._parts, self._parts[1:], strict=False):
            if before.start + before.size != after.start:
                self._findings.add_problem(
                    "gap between files", f"{before.path} ends before {after.path} begins"
                )

    def _check_piece(self, piece: Piece) -> bool:
        """Checks a piece of the log. Returns False when the log ended before it."""
        match piece.kind:
            case Kind.RECORD:
                return self._check_record(piece)
            case Kind.BAD_CRC:
                self._findings.add_problem("bad checksum", f"the body of the record at {piece.offset}")
                return self._check_record(piece)
            case Kind.DAMAGE:
                self._damage = self._damage or piece
            case Kind.TAIL:
                text = f"{piece.size} bytes behind the end of the log at {piece.offset} are no record"
                self._findings.add_note("torn tail", text)
            case Kind.BLANK:
                self._report.log_end = piece.end
            case Kind.ENTRY_HEAD:
                self._entries.check(piece)
        return True

    def _check_record(self, piece: Piece) -> bool:
        fields = piece.fields
        assert fields is not None, "a record has fields"
        queue = self._queue(fields.topic, fields.queue_id)
        if queue is None:
            self._report_nameless(piece, fields)
            return True
        if self._damage is not None:
            if self._is_left_over(fields, queue):
                text = f"old records lie behind the end of the log at {self._damage.offset}"
                self._findings.add_note("left-overs", text)
                return False
            text = f"no records from {self._damage.offset} to {piece.offset}, but some behind"
            self._findings.add_problem("damage", text)
            self._damage = None
        self._last_timestamp = fields.store_timestamp
        self._report.log_end = piece.end
        self._count(piece, fields)
        if fields.topic == TIMER_TOPIC:
            self._wheel.check(piece.offset, piece.size, fields.properties)
        kind = fields.sys_flag & TRANSACTION_MASK
        tag = find(fields.properties, TAGS)
        if kind not in (PREPARED, ROLLBACK) and (
            isinstance(queue, BatchCheck) or not fields.sys_flag & INNER_BATCH
        ):
            tags_code = _tags_code(fields, tag)
            if isinstance(queue, BatchCheck):
                queue.record(fields, piece.offset, piece.size, tags_code or 0)
            else:
                queue.check(fields.queue_offset, piece.offset, piece.size, tags_code)
            if LIGHT_OFFSETS in fields.properties:
                self._check_lights(fields, piece, tags_code)
        if self._index.exists:
            hashes, tag_hash = ([], None) if kind == ROLLBACK else _key_hashes(fields, tag)
            self._index.check(piece.offset, hashes, tag_hash)
        return True

    def _report_nameless(self, piece: Piece, fields: Fields) -> None:
        """Reports a record with an impossible topic, which a broker skips: no checksum guards the topic."""
        text = f"the record at {piece.offset} is of queue {fields.queue_id} of topic {fields.topic!r}"
        self._findings.add_problem("impossible queue", text)
        self._report.log_end = piece.end
        self._count(piece, fields)

    def _check_lights(self, fields: Fields, piece: Piece, tags_code: int | None) -> None:
        for name, queue_offset in places(fields.properties) if takes_part(fields.topic) else ():
            light = self._queue(name, LIGHT_QUEUE)
            if isinstance(light, QueueCheck):
                light.check(queue_offset, piece.offset, piece.size, tags_code)

    def _is_left_over(self, fields: Fields, queue: QueueCheck | BatchCheck) -> bool:
        """Whether a record after damage is older than those before: left from an earlier use of the file."""
        is_in_queue = fields.sys_flag & TRANSACTION_MASK not in (PREPARED, ROLLBACK)
        if is_in_queue and queue.next is not None:
            return fields.queue_offset < queue.next
        return fields.store_timestamp < self._last_timestamp

    def _count(self, piece: Piece, fields: Fields) -> None:
        self._report.records += 1
        topic = self._report.topics.get(fields.topic)
        if topic is None:
            topic = self._report.topics[fields.topic] = TopicCount()
        topic.records += 1
        topic.bytes += piece.size
        topic.queues.add(fields.queue_id)

    def _queue(self, topic: str, queue_id: int) -> QueueCheck | BatchCheck | None:
        """Returns the check of a queue, made if need be; None when there cannot be such a queue."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            if queue_id < 0 or not is_directory_name(topic):
                return None
            queue = self._queues[key] = self._open_queue(topic, queue_id)
            if len(self._queues) > MAX_QUEUES_IN_MEMORY:
                self._queues[next(iter(self._queues))].forget()
        if len(self._queues) > MAX_QUEUES_IN_MEMORY:
            self._queues.move_to_end(key)
            self._queues[next(iter(self._queues))].forget()
        return queue

    def _open_queue(self, topic: str, queue_id: int) -> QueueCheck | BatchCheck:
        name = f"{topic}/{queue_id}"
        if topic in self._of_batches:
            directory = f"{self._directory}/batchconsumequeue/{name}"
            return BatchCheck(name, directory, self._disk, self._findings)
        directory = f"{self._directory}/consumequeue/{name}"
        ext = f"{self._directory}/consumequeue_ext/{name}" if self._has_extensions else None
        return QueueCheck(name, directory, ext, self._disk, self._findings)

    def _finish(self) -> None:
        report = self._report
        for root in (f"{self._directory}/consumequeue", f"{self._directory}/batchconsumequeue"):
            for topic in self._disk.entries(root):
                for queue in self._disk.entries(f"{root}/{topic.name}"):
                    if queue.is_dir and queue.name.isdecimal():
                        self._queue(topic.name, int(queue.name))
        known = self._known_topics()
        for (topic_name, _), check in self._queues.items():
            is_deleted = known is not None and topic_name not in known and not check.exists
            check.finish(report.log_begin, report.log_end, report.is_clean, is_deleted)
            check.forget()
        self._entries.finish()
        self._index.finish(report.log_end)
        self._wheel.finish()
        if not self._index.exists and report.records:
            self._findings.add_note("no index", "there are no index files: keys cannot be queried")

    def _known_topics(self) -> set[str] | None:
        """Returns the topics of `topics.json`; None when it cannot be read."""
        try:
            table = dialect.loads(self._disk.read(f"{self._directory}/config/topics.json"))
            return set(table["topicConfigTable"])
        except (OSError, BrokenBody, KeyError, TypeError):
            return None


def _tags_code(fields: Fields, tag: bytes) -> int | None:
    if fields.topic == SCHEDULE_TOPIC and find(fields.properties, DELAY):
        return None  # the time of delivery, which depends on the configured levels
    return _tag_hash(tag) if tag else 0


def _key_hashes(fields: Fields, tag: bytes) -> tuple[list[int], int | None]:
    """Returns the hashes of the keys that the index must have, and of the tag, which it may have."""
    prefix = _prefix_hash(fields.topic)
    unique_key, keys = find(fields.properties, UNIQUE_KEY), find(fields.properties, KEYS)
    found = [_absolute(extend_hash(prefix, text_of(unique_key)))] if unique_key else []
    if keys:
        found += [_absolute(extend_hash(prefix, key)) for key in text_of(keys).split(" ") if key]
    return found, _absolute(extend_hash(prefix, f"T#{text_of(tag)}")) if tag else None


@lru_cache(maxsize=4096)
def _prefix_hash(topic: str) -> int:
    return java_hash(f"{topic}#")


@lru_cache(maxsize=4096)
def _tag_hash(tag: bytes) -> int:
    return java_hash(text_of(tag))


def _absolute(code: int) -> int:
    return 0 if code == -(2**31) else abs(code)
