"""Committed offsets of consumer groups: the table, its file, and the requests to read and commit (14, 15).

An offset is the next one to be read. In: commits, also those that come with a pull, and resets by an
operator. Out: offsets. A commit may go back, or beyond the end of a queue: the table stores what was
committed. After a crash, though, no offset stays beyond the end of its queue, or the consumer would skip what
is written there next. A reset is pending until the answer to a pull has told a consumer of it; until then
commits are ignored, since they come from a consumer that does not know of the reset.

A group without a commit is answered 0 where message 0 is recent, and the end of the queue where there is
nothing to read, which is 0 too before the first message. Only for an old queue with messages is the answer
"not found" (22): then its consumer decides, and most ask for the end. If an empty queue were answered 22, a
message that arrives before the consumer asks for the end would never be read.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from turbopump.broker.config import OffsetRules
from turbopump.broker.consume.reused_offsets import JUDGED_S, Crash, ReusedOffsets
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.topics import TopicTable
from turbopump.protocol import dialect, names
from turbopump.protocol.bodies import DataVersion
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.errors import BrokenBody, GroupNotFound, InvalidParameter, Refused, TopicNotFound
from turbopump.protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.protocol.light import QUEUE_ID as LIGHT_QUEUE
from turbopump.protocol.names import LIGHT_PREFIX
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.store.queues import ConsumeQueues
from turbopump.store.reading import QueueReader

log = logging.getLogger(__name__)

NONE = -1
MAX_QUEUE_ID = 65_535
MAX_UNKNOWN_GROUPS = 1_000  # groups that may not be created but whose commits are stored; clients name them
MAX_FILE_BYTES = 256 * 1024 * 1024
SEPARATOR = "@"
FILE = "consumerOffset.json"
LIGHT_FILE = "lmqConsumerOffset.json"  # used instead where there are light queues, as with Apache
ROWS_PER_TURN = 500  # rows (a topic of a group) encoded at once: about a millisecond
BACK_LINES = 50  # log lines about commits that go back, per ...
BACK_INTERVAL_S = 10.0
UNUSUAL_LINES = 10  # log lines about commits that are refused, or of unknown groups, per ...
UNUSUAL_INTERVAL_S = 10.0
REMEMBERED_MS = int(1000 * JUDGED_S)  # how long a crash is remembered

Table: TypeAlias = dict[str, dict[str, dict[int, int]]]  # group -> topic -> queue id -> offset
Place: TypeAlias = tuple[str, str, int]
"""Group, topic and queue of a committed offset."""


class OffsetsFile(msgspec.Struct):
    """Content of consumerOffset.json as 4.9 and 5.x read it, with integer keys in quotes."""

    offsetTable: dict[str, dict[int, int]]  # noqa: N815 - the file's spelling
    dataVersion: DataVersion | None = None  # noqa: N815
    lmqOffsetTable: dict[str, int] | None = None  # noqa: N815 - of light groups, which have one queue each
    pendingResets: dict[str, dict[int, int]] | None = None  # noqa: N815 - not Apache's, nor is the next
    crashes: list[tuple[int, int]] | None = None


class CommittedOffsets:
    """Table of committed, pending reset and last pulled offsets, by group, topic and queue."""

    def __init__(self, rules: OffsetRules, clock: Clock, light_queues: bool = False) -> None:
        self.file_name = LIGHT_FILE if light_queues else FILE
        self._light_queues = light_queues
        self._rules = rules
        self._clock = clock
        self._table: Table = {}
        self._resets: Table = {}
        self._pulled: Table = {}
        self._foreign: dict[str, dict[int, int]] = {}  # keys of the file that are not topic@group; kept as is
        self._crashes: list[Crash] = []
        self._commits = 0
        self._back = RateLimitedLog(log, BACK_INTERVAL_S, logging.WARNING, BACK_LINES)
        self.version = DataVersion(counter=0, stateVersion=0, timestamp=clock.now_ms())
        self.is_dirty = False
        """Whether anything changed since the last `dump`."""
        self.is_used: Callable[[str], bool] = lambda topic: True
        """Whether a topic has messages. Offsets of light queues that never had any are not stored: any name
        can be one of a light queue."""
        self.on_commit: Callable[[str, str, int, int], None] | None = None
        """On a slave: called with group, topic, queue and offset of each commit."""
        self.on_move: Callable[[Place], None] | None = None
        """On a master with slaves: called for each committed offset that is another one than before."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a clean table becomes dirty, not for every commit."""

    # Committed

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Stores an offset, lower ones too; returns False if it is ignored because a reset is pending."""
        if self._resets and self.is_reset(group, topic, queue_id):
            return False
        if self._light_queues and not self.is_used(topic):
            return True
        before = _put(self._table, group, topic, queue_id, offset)
        if self.on_commit is not None:
            self.on_commit(group, topic, queue_id, offset)
        if offset != before and self.on_move is not None:
            self.on_move((group, topic, queue_id))
        # A member that does not know that it lost the queue, or a tool.
        if offset < before:
            words = "Commit of group %s on %s queue %d goes back from %d to %d"
            self._back.log(self._clock.monotonic(), words, group, topic, queue_id, before, offset)
        self._commits += 1
        has_new_version = self._commits % self._rules.version_step == 0
        if has_new_version:
            self._next_version()
        # Idle consumers repeat their last commit: that alone does not cause the file to be written.
        if not self.is_dirty and (offset != before or has_new_version):
            self._changed()
        return True

    def copied(self, newer: Mapping[tuple[str, str, int], int]) -> None:
        """Marks a table just loaded from a master as changed, and adopts larger offsets from `newer`."""
        for (group, topic, queue_id), offset in newer.items():
            if offset > self.query(group, topic, queue_id):
                _put(self._table, group, topic, queue_id, offset)
        self._changed()

    def adopt(self, moved: Iterable[tuple[str, str, int, int]]) -> None:
        """Takes offsets (group, topic, queue, offset) that were committed at the master of this slave.

        A reset that was pending there has ended by then. `copied` follows.
        """
        for group, topic, queue_id, offset in moved:
            if self.is_reset(group, topic, queue_id):
                _drop(self._resets, group, topic, queue_id)
            _put(self._table, group, topic, queue_id, offset)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the committed queue offset; -1 when the group has never committed on this queue."""
        return _get(self._table, group, topic, queue_id)

    def of_group(self, group: str, topic: str) -> dict[int, int]:
        """Returns the group's committed offsets on a topic, by queue id."""
        return dict(self._table.get(group, {}).get(topic, {}))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copies the offsets of `source` on a topic to `target`; drops pending resets of `target` there."""
        queues = self._table.get(source, {}).get(topic)
        if queues is not None:
            self._table.setdefault(target, {})[topic] = dict(queues)
            for queue_id in list(self._resets.get(target, {}).get(topic, ())):
                _drop(self._resets, target, topic, queue_id)  # the clone is newer than the reset
            self._changed()

    def groups_of_topic(self, topic: str) -> list[str]:
        return [group for group, topics in self._table.items() if topic in topics]

    def topics_of_group(self, group: str) -> list[str]:
        return list(self._table.get(group, ()))

    # Pulled

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Records, in memory only, the offset that follows the group's last pull of a queue."""
        if not self._light_queues or self.is_used(topic):
            _put(self._pulled, group, topic, queue_id, next_offset)

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the offset that follows the last pull, or else the committed one; -1 without either."""
        pulled = _get(self._pulled, group, topic, queue_id)
        return pulled if pulled != NONE else self.query(group, topic, queue_id)

    # Reset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets the group's offset; ignores the group's commits until a pull was answered with this offset."""
        _put(self._resets, group, topic, queue_id, offset)
        _put(self._table, group, topic, queue_id, offset)
        self._changed()

    @property
    def has_resets(self) -> bool:
        return bool(self._resets)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return _get(self._resets, group, topic, queue_id) != NONE

    def take_reset(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the offset of a pending reset and ends the reset; -1 when none is pending."""
        offset = _get(self._resets, group, topic, queue_id)
        if offset != NONE:
            _drop(self._resets, group, topic, queue_id)
            self._changed()
        return offset

    def drop_resets(self) -> None:
        """Drops all pending resets, when resets are to be made through the consumers; offsets stay as set."""
        if self._resets:
            self._resets.clear()
            self._changed()

    # All

    def forget_topic(self, topic: str) -> None:
        """Removes the committed, reset and pulled offsets of all groups on a topic."""
        gone = [group for group, topics in self._table.items() if topic in topics]
        for table in (self._table, self._resets, self._pulled):
            for group in list(table):
                table[group].pop(topic, None)
                if not table[group]:
                    del table[group]
        if gone:
            self._changed()

    def forget_group(self, group: str) -> None:
        """Removes the committed, reset and pulled offsets of a group."""
        gone = group in self._table
        for table in (self._table, self._resets, self._pulled):
            table.pop(group, None)
        if gone:
            self._changed()

    def recover(
        self, queues: ConsumeQueues, recovered_end: int | None, now_ms: int, *, are_complete: bool = True
    ) -> int | None:
        """Lowers offsets to their queue's end; returns the log's lowest end after recent crashes, or None.

        `are_complete` False: messages that are not lost may be missing in the queues, and offsets stay.

        After a crash, consumers that were beyond the end of the recovered log have to go back.
        `recovered_end` is the end of the log if the broker has just crashed, else None. A crash is recent
        for `REMEMBERED_MS`.
        """
        if are_complete:
            self.clamp(lambda topic, queue_id: end_of_queue(queues, topic, queue_id))
        self._crashes = [(end, at_ms) for end, at_ms in self._crashes if now_ms - at_ms < REMEMBERED_MS]
        if recovered_end is not None:
            self._crashes.append((recovered_end, now_ms))
            self._changed()
        return min((end for end, _ in self._crashes), default=None)

    @property
    def crashes(self) -> Sequence[Crash]:
        """The recent crashes and promotions after which messages may have been missing."""
        return self._crashes

    def adopt_crashes(self, crashes: Sequence[Crash]) -> None:
        """Adds crashes that this table does not have: a slave saves them before the table itself."""
        self._crashes += [crash for crash in crashes if crash not in self._crashes]

    def clamp(self, end_of_queue: Callable[[str, int], int]) -> int:
        """Moves offsets beyond the end of their queue back to the end; returns how many were moved."""
        clamped = 0
        for table in (self._table, self._resets):
            for group, topic, queues in _rows(table):
                for queue_id, offset in queues.items():
                    end = end_of_queue(topic, queue_id)
                    if offset > end:
                        log.warning(
                            "Offset %d of group %s was beyond the end of %s queue %d: moved back to %d",
                            *(offset, group, topic, queue_id, end),
                        )
                        queues[queue_id] = end
                        clamped += 1
        if clamped:
            self._changed()
            self._next_version()
        return clamped

    # File

    def load(self, data: bytes) -> int:
        """Replaces the table by a consumerOffset.json; returns its number of rows. Raises BrokenBody."""
        try:
            found = msgspec.convert(dialect.loads(data, MAX_FILE_BYTES), OffsetsFile, strict=False)
        except msgspec.ValidationError as error:
            raise BrokenBody(f"not a table of offsets: {error}") from None
        self._foreign.clear()
        light = {key: {LIGHT_QUEUE: offset} for key, offset in (found.lmqOffsetTable or {}).items()}
        self._table = self._of_keys(found.offsetTable | light, self._foreign)
        self._resets = self._of_keys(found.pendingResets or {}, {})
        self._crashes = found.crashes or []
        if found.dataVersion is not None:
            self.version = found.dataVersion
        self.is_dirty = False
        return len(found.offsetTable)

    def dump(self) -> bytes:
        return b"".join(self.slices())

    def slices(self, is_saved: bool = True) -> Iterator[bytes]:
        """Yields the file's content in pieces, to serve others in between; the table is clean if `is_saved`.

        Each offset is that of the moment when its piece is made. A commit after the first piece makes the
        table dirty again. `is_saved`: the pieces are written to the file.
        """
        # Before the first piece: a commit meanwhile must not be taken for written.
        self.is_dirty = self.is_dirty and not is_saved
        yield b'{"dataVersion":' + msgspec.json.encode(self.version)
        if self._crashes:
            yield b',\n"crashes":' + msgspec.json.encode(self._crashes)
        yield b',\n"offsetTable":{'
        rows = {f"{topic}{SEPARATOR}{group}": queues for group, topic, queues in _rows(self._table)}
        light = self._take_light(rows)
        yield from _written([*rows.items(), *self._foreign.items()])
        if self._light_queues:
            yield b'},\n"lmqOffsetTable":{'
            yield from _written(light)
        if self._resets:
            yield b'},\n"pendingResets":{'
            yield from _written(
                [(f"{topic}{SEPARATOR}{group}", queues) for group, topic, queues in _rows(self._resets)]
            )
        yield b"}}\n"

    def _take_light(self, rows: dict[str, dict[int, int]]) -> list[tuple[str, int]]:
        """Removes from `rows` and returns the offsets of %LMQ% groups on %LMQ% queues, for lmqOffsetTable."""
        keys = [key for key in rows if key.startswith(LIGHT_PREFIX)] if self._light_queues else []
        keys = [key for key in keys if f"{SEPARATOR}{LIGHT_PREFIX}" in key and LIGHT_QUEUE in rows[key]]
        return [(key, rows.pop(key)[LIGHT_QUEUE]) for key in keys]

    @staticmethod
    def _of_keys(keys: dict[str, dict[int, int]], foreign: dict[str, dict[int, int]]) -> Table:
        table: Table = {}
        for key, queues in keys.items():
            topic, _, group = key.partition(SEPARATOR)
            if topic and group and SEPARATOR not in group:
                table.setdefault(group, {})[topic] = queues
            else:
                foreign[key] = queues
        return table

    def _changed(self) -> None:
        self.is_dirty = True
        self.on_change()

    def _next_version(self) -> None:
        self.version = DataVersion(
            counter=self.version.counter + 1, stateVersion=0, timestamp=self._clock.now_ms()
        )


def _put(table: Table, group: str, topic: str, queue_id: int, offset: int) -> int:
    """Stores an offset in `table`; returns the previous one, or -1 without one.

    Written out because every pull and commit calls it.
    """
    topics = table.get(group)
    if topics is None:
        topics = table[group] = {}
    queues = topics.get(topic)
    if queues is None:
        queues = topics[topic] = {}
    before = queues.get(queue_id, NONE)
    queues[queue_id] = offset
    return before


def _get(table: Table, group: str, topic: str, queue_id: int) -> int:
    topics = table.get(group)
    queues = topics.get(topic) if topics is not None else None
    return NONE if queues is None else queues.get(queue_id, NONE)


def _drop(table: Table, group: str, topic: str, queue_id: int) -> None:
    del table[group][topic][queue_id]
    if not table[group][topic]:
        del table[group][topic]
    if not table[group]:
        del table[group]


def end_of_queue(queues: ConsumeQueues, topic: str, queue_id: int) -> int:
    """Returns the offset that the next message of a queue gets; 0 when there is no such queue."""
    queue = queues.find(topic, queue_id)
    return queue.max_offset if queue is not None else 0


def _rows(table: Table) -> Iterator[tuple[str, str, dict[int, int]]]:
    for group, topics in table.items():
        for topic, queues in topics.items():
            yield group, topic, queues


def _written(rows: Sequence[tuple[str, dict[int, int] | int]]) -> Iterator[bytes]:
    """Yields the rows as lines of JSON, one line per row, in chunks of `ROWS_PER_TURN` lines."""
    for first in range(0, len(rows), ROWS_PER_TURN):
        part = b",\n".join(
            msgspec.json.encode(key) + b":" + msgspec.json.encode(queues)
            for key, queues in rows[first : first + ROWS_PER_TURN]
        )
        yield (b",\n" if first else b"\n") + part


def first_offset(queues: ConsumeQueues, reader: QueueReader, topic: str, queue_id: int) -> int | None:
    """Returns the offset at which a group without a commit starts; None if its consumer has to decide."""
    queue = queues.find(topic, queue_id)
    if queue is None:
        return 0
    if queue.min_offset >= queue.max_offset:
        return queue.max_offset
    return 0 if reader.begins_in_memory(queue) else None


class OffsetHandler:
    """Handles requests to query (14) and to commit (15) consume offsets.

    `first_offset` returns where a group without a commit starts, or None when its consumer decides.
    """

    def __init__(
        self,
        offsets: CommittedOffsets,
        topics: TopicTable,
        groups: SubscriptionGroups,
        first_offset: Callable[[str, int], int | None],
        reused: ReusedOffsets,
        clock: Clock,
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._first_offset = first_offset
        self._reused = reused
        self._clock = clock
        self._unusual = RateLimitedLog(log, UNUSUAL_INTERVAL_S, logging.WARNING, UNUSUAL_LINES)
        self._unknown: set[str] = set()  # unknown groups that have committed since the start

    def routes(self) -> Routes:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: Route(QueryConsumerOffsetRequest, self.query),
            RequestCode.UPDATE_CONSUMER_OFFSET: Route(UpdateConsumerOffsetRequest, self.update),
        }

    def query(self, request: Request[QueryConsumerOffsetRequest]) -> Answer:
        """Answers with the committed offset, or where a group without one starts, or QUERY_NOT_FOUND."""
        header = request.header
        where = header.consumerGroup, header.topic, header.queueId
        offset = self._offsets.query(*where)
        if self._reused.is_active and self._is_there(*where):
            if offset >= 0:
                self._reused.handed(request.connection, *where, offset)
            else:
                self._reused.may_start_anywhere(request.connection, *where)
        if offset >= 0:
            return Answer(OffsetResponse(offset))
        if header.setZeroIfNotFound is False:
            remark = "Not found, do not set to zero, maybe this group boot first"
        elif (first := self._first_offset(header.topic, header.queueId)) is not None:
            return Answer(OffsetResponse(first))
        else:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return Answer({}, code=ResponseCode.QUERY_NOT_FOUND, remark=remark)

    def update(self, request: Request[UpdateConsumerOffsetRequest]) -> Answer:
        """Commits an offset; answers a refusal with its code, and logs the refusal of a one-way commit."""
        try:
            return self._update(request)
        except Refused as refusal:
            # Java consumers commit one-way and get no answer: only the log shows the refusal.
            if request.command.is_oneway:
                words = "Refused a commit of group %s by %s: %s"
                host = request.connection.peer[0]
                self._unusual.log(
                    self._clock.monotonic(), words, request.header.consumerGroup, host, refusal.remark
                )
            return Answer({}, code=refusal.code, remark=refusal.remark)

    def _update(self, request: Request[UpdateConsumerOffsetRequest]) -> Answer:
        header = request.header
        group, topic, queue_id = header.consumerGroup, header.topic, header.queueId
        if self._topics.find(topic) is None:
            # A stored offset would make the group skip messages if the topic is created again.
            raise TopicNotFound(f"Topic {topic} not exist!")
        if queue_id is None:
            raise InvalidParameter(f"QueueId is null, topic is {topic}")
        if header.commitOffset is None:
            raise InvalidParameter(f"Offset is null, topic is {topic}")
        if not 0 <= queue_id <= MAX_QUEUE_ID:
            # Apache stores any. Such a queue cannot exist, and the table has to be bounded.
            raise InvalidParameter(f"QueueId {queue_id} is illegal, topic is {topic}")
        self._ensure_group(group)
        if self._reused.is_active:
            # A tool may set any offset; a void one of a consumer is ignored, as if it had been committed.
            if not _is_consumer(request):
                self._reused.set_by_tool(group, topic, queue_id, header.commitOffset)
            elif self._reused.is_void(
                request.connection,
                group,
                topic,
                queue_id,
                header.commitOffset,
                committed=self._offsets.query(group, topic, queue_id),
                is_commit=True,
            ):
                return Answer({})
        if not self._offsets.commit(group, topic, queue_id, header.commitOffset):
            return Answer({}, remark="Offset has been previously reset")
        return Answer({})

    def _ensure_group(self, group: str) -> None:
        """Creates the group if allowed; else permits up to `MAX_UNKNOWN_GROUPS`, then raises GroupNotFound.

        A pull consumer may commit before anything else has made its group known to this broker. If that were
        refused, the offset would be lost without an error, since most commits are one-way.
        """
        if self._groups.find_or_create(group) is None:
            names.check_group(group)
            if len(self._unknown) >= MAX_UNKNOWN_GROUPS and group not in self._unknown:
                raise GroupNotFound(f"Group {group} not exist! Create it with mqadmin updateSubGroup")
            self._unknown.add(group)
            words = (
                "Group %s is unknown and autoCreateSubscriptionGroup is off: its commit is stored, "
                "but it cannot read until mqadmin updateSubGroup creates it"
            )
            self._unusual.log(self._clock.monotonic(), words, group)

    def _is_there(self, group: str, topic: str, queue_id: int) -> bool:
        """Returns whether the group exists and the topic has this queue: peers may ask about any name."""
        found = self._topics.find(topic)
        queues = max(found.read_queues, found.write_queues) if found is not None else 0
        return 0 <= queue_id < queues and self._groups.find(group) is not None


def _is_consumer(request: Request[UpdateConsumerOffsetRequest]) -> bool:
    """Returns whether a commit comes from a consumer, not a tool: marked, one-way, or of Go's client."""
    command = request.command
    return bool(request.header.ofConsumer) or command.is_oneway or command.language == "GO"
