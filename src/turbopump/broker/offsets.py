"""How far each group has read: the table of committed offsets, its file, and the requests about it (14, 15).

An offset is the next one to be read. In: commits, also those that come with a pull. Out: offsets. A commit
may step back, and beyond the end of a queue: the table keeps what it is told. After a crash, though, no
offset stays beyond the end of its queue, or the consumer would skip what is written there next.
"""

import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from turbopump.broker.config import OffsetRules
from turbopump.protocol import dialect
from turbopump.protocol.bodies import DataVersion
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

NONE = -1
MAX_QUEUE_ID = 65_535
MAX_FILE_BYTES = 256 * 1024 * 1024
SEPARATOR = "@"


class OffsetsFile(msgspec.Struct):
    """consumerOffset.json as 4.9 and 5.x read it. Integer keys in quotes: every version takes them so."""

    offsetTable: dict[str, dict[int, int]]  # noqa: N815 - the file's spelling
    dataVersion: DataVersion | None = None  # noqa: N815


class Offsets:
    def __init__(self, rules: OffsetRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._table: dict[tuple[str, str], dict[int, int]] = {}  # (topic, group) -> queue id -> offset
        self._foreign: dict[str, dict[int, int]] = {}  # keys of the file that are no topic@group
        self._commits = 0
        self.version = DataVersion(counter=0, stateVersion=0, timestamp=clock.now_ms())
        self.is_dirty = False
        """Whether there is more than the last `dump` held."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a clean table becomes dirty, not for every commit."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self._table.get((topic, group))
        if queues is None:
            queues = self._table[(topic, group)] = {}
        queues[queue_id] = offset
        if not self.is_dirty:
            self._changed()
        self._commits += 1
        if self._commits % self._rules.version_step == 0:
            self._next_version()

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """-1 when the group has never committed there."""
        queues = self._table.get((topic, group))
        return NONE if queues is None else queues.get(queue_id, NONE)

    def groups_of_topic(self, topic: str) -> list[str]:
        return [group for name, group in self._table if name == topic]

    def topics_of_group(self, group: str) -> list[str]:
        return [topic for topic, name in self._table if name == group]

    def forget_topic(self, topic: str) -> None:
        self._forget(lambda key: key[0] == topic)

    def forget_group(self, group: str) -> None:
        self._forget(lambda key: key[1] == group)

    def clamp(self, end_of_queue: Callable[[str, int], int]) -> int:
        """Brings offsets beyond the end of their queue back to it; returns how many there were."""
        clamped = 0
        for (topic, group), queues in self._table.items():
            for queue_id, offset in queues.items():
                end = end_of_queue(topic, queue_id)
                if offset > end:
                    log.warning(
                        "Offset %d of group %s was beyond the end of %s queue %d, now %d",
                        *(offset, group, topic, queue_id, end),
                    )
                    queues[queue_id] = end
                    clamped += 1
        if clamped:
            self._changed()
            self._next_version()
        return clamped

    def load(self, data: bytes) -> int:
        """Everything is replaced by what a consumerOffset.json holds; returns how many entries that is."""
        try:
            found = msgspec.convert(dialect.loads(data, MAX_FILE_BYTES), OffsetsFile, strict=False)
        except msgspec.ValidationError as error:
            raise BrokenBody(f"no table of offsets: {error}") from None
        self._table.clear()
        self._foreign.clear()
        for key, queues in found.offsetTable.items():
            topic, _, group = key.partition(SEPARATOR)
            if topic and group and SEPARATOR not in group:
                self._table[(topic, group)] = queues
            else:
                self._foreign[key] = queues
        if found.dataVersion is not None:
            self.version = found.dataVersion
        self.is_dirty = False
        return len(found.offsetTable)

    def dump(self) -> bytes:
        """Whatever is committed after this call is dirty again."""
        self.is_dirty = False
        table = {f"{topic}{SEPARATOR}{group}": queues for (topic, group), queues in self._table.items()}
        file = OffsetsFile(offsetTable=table | self._foreign, dataVersion=self.version)
        return msgspec.json.format(msgspec.json.encode(file), indent=1)

    def _forget(self, matches: Callable[[tuple[str, str]], bool]) -> None:
        gone = [key for key in self._table if matches(key)]
        for key in gone:
            del self._table[key]
        if gone:
            self._changed()

    def _changed(self) -> None:
        self.is_dirty = True
        self.on_change()

    def _next_version(self) -> None:
        self.version = DataVersion(
            counter=self.version.counter + 1, stateVersion=0, timestamp=self._clock.now_ms()
        )


class Named(Protocol):
    def find(self, name: str) -> object | None: ...


class OffsetRequests:
    """Answers 14 and 15. `starts_at_zero` tells whether a queue still begins with its very first message."""

    def __init__(
        self,
        offsets: Offsets,
        topics: Named,
        groups: Named,
        starts_at_zero: Callable[[str, int], bool],
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._starts_at_zero = starts_at_zero

    def routes(self) -> Routes:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: Route(QueryConsumerOffsetRequest, self.query),
            RequestCode.UPDATE_CONSUMER_OFFSET: Route(UpdateConsumerOffsetRequest, self.update),
        }

    def query(self, request: Request[QueryConsumerOffsetRequest]) -> Answer:
        """Without a commit, a group starts at 0 on a young queue; otherwise its consumer decides where."""
        header = request.header
        offset = self._offsets.query(header.consumerGroup, header.topic, header.queueId)
        if offset >= 0:
            return Answer(OffsetResponse(offset))
        if header.setZeroIfNotFound is False:
            remark = "Not found, do not set to zero, maybe this group boot first"
        elif self._starts_at_zero(header.topic, header.queueId):
            return Answer(OffsetResponse(0))
        else:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return Answer({}, code=ResponseCode.QUERY_NOT_FOUND, remark=remark)

    def update(self, request: Request[UpdateConsumerOffsetRequest]) -> Answer:
        header = request.header
        group, topic, queue_id = header.consumerGroup, header.topic, header.queueId
        if self._groups.find(group) is None:
            return _refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.find(topic) is None:
            return _refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if queue_id is None:
            return _refused(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if header.commitOffset is None:
            return _refused(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        if not 0 <= queue_id <= MAX_QUEUE_ID:
            # Apache keeps any. Nobody can have such a queue, and the table has to have a bound.
            remark = f"QueueId {queue_id} is illegal, topic is {topic}"
            return _refused(ResponseCode.INVALID_PARAMETER, remark)
        self._offsets.commit(group, topic, queue_id, header.commitOffset)
        return Answer({})


def _refused(code: ResponseCode, remark: str) -> Answer:
    return Answer({}, code=code, remark=remark)
