"""Progress of groups: one (208), all (317), by time (303), compared (308), topics read (343), cloning (314).

A topic on which a group has committed counts, unless the group is connected and no longer subscribes to it.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from turbopump.broker.admin.store_times import NONE, StoreTimes
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.members import Members
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.storage import Storage
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol import names
from turbopump.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    TopicList,
    WireQueue,
)
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import TopicNotFound
from turbopump.protocol.headers.topics import (
    CloneGroupOffsetRequest,
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
    QueryConsumeTimeSpanRequest,
    QueryCorrectionOffsetRequest,
    QueryTopicsByConsumerRequest,
)
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.times import MessageTimes

AHEAD = 2**63 - 1  # answer of 308 for a queue on which the other groups are ahead of the group
GROUPS_PER_TURN = 50  # of 317: other requests are served between ...
QUEUES_PER_TURN = 500  # ... and within, when a topic has many


class ProgressHandler:
    """Handles requests about how far groups have read, and to clone the offsets of a group."""

    def __init__(
        self,
        groups: SubscriptionGroups,
        topics: TopicTable,
        offsets: CommittedOffsets,
        members: Members[Connection],
        store: Storage,
        statistics: Statistics,
        clock: Clock,
        broker_name: str,
        address: str,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._offsets = offsets
        self._members = members
        self._store = store
        self._statistics = statistics
        self._clock = clock
        self._broker_name = broker_name
        self._address = address

    def routes(self) -> Routes:
        return {
            RequestCode.GET_CONSUME_STATS: Route(GetConsumeStatsRequest, self.of_group),
            RequestCode.GET_BROKER_CONSUME_STATS: Route(GetBrokerConsumeStatsRequest, self.of_all),
            RequestCode.QUERY_CONSUME_TIME_SPAN: Route(QueryConsumeTimeSpanRequest, self.time_span),
            RequestCode.QUERY_CORRECTION_OFFSET: Route(QueryCorrectionOffsetRequest, self.correction),
            RequestCode.QUERY_TOPICS_BY_CONSUMER: Route(QueryTopicsByConsumerRequest, self.topics),
            RequestCode.CLONE_GROUP_OFFSET: Route(CloneGroupOffsetRequest, self.clone),
        }

    async def of_group(self, request: Request[GetConsumeStatsRequest]) -> Answer:
        """Answers with a group's offsets and queue ends on the listed topics, one topic, or all it reads."""
        header = request.header
        group = header.consumerGroup
        listed = [name for name in (header.topicList or "").split(";") if name]
        asked = [header.topic] if (header.topic or "").strip() else self._offsets.topics_of_group(group)
        wanted = listed or [name for name in asked if name and self._members.reads(group, name)]
        stats = ConsumeStats()
        consumed = _Consumed(self._store.times)
        for topic in self._existing(wanted):
            stats.consumeTps += self._statistics.group_get_tps(group, topic.name)
            stats.offsetTable |= await self._table(group, topic, topic.read_queues, consumed)
        await consumed.tell()
        return Answer(body=stats.encode())

    async def of_all(self, request: Request[GetBrokerConsumeStatsRequest]) -> Answer:
        """Answers with offsets and queue ends of every known group, also of groups that have read nothing."""
        body = ConsumeStatsList(brokerAddr=self._address)
        in_flight = 0
        consumed = _Consumed(self._store.times)
        for number, group in enumerate(self._groups.all()):
            if number % GROUPS_PER_TURN == GROUPS_PER_TURN - 1:
                await self._clock.sleep(0)
            stats = [
                await self._stats(group.name, topic, consumed)
                for topic in self._read_by(group.name, request.header)
            ]
            body.consumeStatsList.append({group.name: stats})
            for one in stats:
                for offset in one.offsetTable.values():
                    body.totalDiff += offset.brokerOffset - offset.consumerOffset
                    in_flight += (offset.pullOffset or 0) - offset.consumerOffset
        body.totalInflightDiff = in_flight
        await consumed.tell()
        return Answer(body=body.encode())

    async def time_span(self, request: Request[QueryConsumeTimeSpanRequest]) -> Answer:
        header = request.header
        topic = self._topics.find(header.topic)
        if topic is None:
            raise TopicNotFound(f"topic[{header.topic}] not exist")
        times, asked_ms = StoreTimes(self._store.times), self._clock.now_ms()
        found = [
            self._span(header.group, topic.name, queue_id, times) for queue_id in range(topic.write_queues)
        ]
        await times.read()
        spans = [
            _shown(WireQueue(self._broker_name, queue_id, topic.name), span, times, asked_ms)
            for queue_id, span in enumerate(found)
        ]
        return Answer(body=QueryConsumeTimeSpanBody(consumeTimeSpanSet=spans).encode())

    def correction(self, request: Request[QueryCorrectionOffsetRequest]) -> Answer:
        """Answers per queue the lowest offset of groups not in `filterGroups`; AHEAD: above `compareGroup`'s.

        AHEAD (the greatest i64) stands for a queue on which these groups are ahead of `compareGroup`.
        """
        header = request.header
        left_out = {name for name in (header.filterGroups or "").split(",") if name}
        least: dict[int, int] = {}
        for group in self._offsets.groups_of_topic(header.topic):
            if group not in left_out:
                for queue_id, offset in self._offsets.of_group(group, header.topic).items():
                    if offset >= self._first(header.topic, queue_id):
                        least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in self._offsets.of_group(header.compareGroup, header.topic).items():
            if least.get(queue_id, offset) > offset:
                least[queue_id] = AHEAD
        return Answer(body=QueryCorrectionOffsetBody(correctionOffsets=least).encode())

    def topics(self, request: Request[QueryTopicsByConsumerRequest]) -> Answer:
        found = self._offsets.topics_of_group(request.header.group)
        return Answer(body=TopicList(brokerAddr=self._address, topicList=found).encode())

    def clone(self, request: Request[CloneGroupOffsetRequest]) -> Answer:
        """Copies a group's offsets on one or all topics to another; unread topics only if `offline`."""
        header = request.header
        names.check_group(header.destGroup)
        one = (header.topic or "").strip()
        for topic in self._existing([one] if one else self._offsets.topics_of_group(header.srcGroup)):
            if header.offline or self._members.reads(header.srcGroup, topic.name):
                self._offsets.clone(header.srcGroup, header.destGroup, topic.name)
        return Answer()

    # Parts

    def _existing(self, wanted: Iterable[str]) -> list[Topic]:
        return [topic for name in wanted if (topic := self._topics.find(name)) is not None]

    def _read_by(self, group: str, header: GetBrokerConsumeStatsRequest) -> list[Topic]:
        found = self._existing(self._offsets.topics_of_group(group))
        return [
            topic
            for topic in found
            if self._members.reads(group, topic.name) and (topic.order or not header.isOrder)
        ]

    async def _stats(self, group: str, topic: Topic, consumed: "_Consumed") -> ConsumeStats:
        return ConsumeStats(
            consumeTps=self._statistics.group_get_tps(group, topic.name),
            offsetTable=await self._table(group, topic, topic.write_queues, consumed),
        )

    async def _table(
        self, group: str, topic: Topic, queues: int, consumed: "_Consumed"
    ) -> dict[WireQueue, OffsetWrapper]:
        table = {}
        for queue_id in range(queues):
            key = WireQueue(self._broker_name, queue_id, topic.name)
            table[key] = self._progress(group, topic.name, queue_id, consumed)
            if queue_id % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                await self._clock.sleep(0)
        return table

    def _progress(self, group: str, topic: str, queue_id: int, consumed: "_Consumed") -> OffsetWrapper:
        committed = max(self._offsets.query(group, topic, queue_id), 0)
        pulled = max(self._offsets.query_pulled(group, topic, queue_id), committed)
        queue = self._store.queues.find(topic, queue_id)
        end = queue.max_offset if queue else 0
        progress = OffsetWrapper(
            brokerOffset=end, consumerOffset=committed, lastTimestamp=0, pullOffset=pulled
        )
        if queue and committed:
            consumed.last(progress, queue, committed - 1)
        return progress

    def _span(self, group: str, topic: str, queue_id: int, times: StoreTimes) -> "_Span":
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            return _Span()
        end = queue.max_offset
        committed = self._offsets.query(group, topic, queue_id)
        following = max(committed, queue.min_offset)
        first = times.find(queue, queue.min_offset)
        return _Span(
            first,
            times.find(queue, end - 1),
            times.find(queue, committed - 1) if committed > 0 else first,
            times.find(queue, following) if following < end else NONE,
        )

    def _first(self, topic: str, queue_id: int) -> int:
        queue = self._store.queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0


@dataclass(frozen=True, slots=True)
class _Span:
    """Log offsets of a queue's first, last, last consumed (else first) and next message; -1: no message."""

    first: int = NONE
    last: int = NONE
    consumed: int = NONE
    following: int = NONE


def _shown(queue: WireQueue, span: _Span, times: StoreTimes, asked_ms: int) -> QueueTimeSpan:
    """Returns the store times of a span's messages, and the ms that the next one to consume has waited."""
    first_ms, last_ms, consumed_ms = times[span.first], times[span.last], times[span.consumed]
    return QueueTimeSpan(
        consumeTimeStamp=consumed_ms,
        consumeTimeStampStr=_in_words(consumed_ms),
        delayTime=asked_ms - times[span.following] if span.following != NONE else 0,
        maxTimeStamp=last_ms,
        maxTimeStampStr=_in_words(last_ms),
        messageQueue=queue,
        minTimeStamp=first_ms,
        minTimeStampStr=_in_words(first_ms),
    )


class _Consumed:
    """Collects OffsetWrappers and sets the store times of their last consumed messages in one read."""

    def __init__(self, times: MessageTimes) -> None:
        self._times = StoreTimes(times)
        self._told: list[tuple[OffsetWrapper, int]] = []

    def last(self, progress: OffsetWrapper, queue: ConsumeQueue, offset: int) -> None:
        self._told.append((progress, self._times.find(queue, offset)))

    async def tell(self) -> None:
        await self._times.read()
        for progress, position in self._told:
            progress.lastTimestamp = max(self._times[position], 0)


def _in_words(time_ms: int) -> str:
    moment = time.localtime(time_ms / 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', moment)}:{time_ms % 1000:03d}"
