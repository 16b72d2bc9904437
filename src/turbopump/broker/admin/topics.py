"""Handles tools' requests about topics: set (17, 18), delete (215), show (21, 351, 305), measure (202)."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from turbopump.broker.admin.store_times import StoreTimes
from turbopump.broker.attributes import parse_changes
from turbopump.broker.consume.reused_offsets import ReusedOffsets
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.storage import Storage
from turbopump.broker.topics import Topic, TopicTable, from_wire, is_valid
from turbopump.protocol.bodies import (
    CreateTopicListRequestBody,
    DataVersion,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
    WireQueue,
)
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import NOT_SET
from turbopump.protocol.errors import SystemFailure, TopicNotFound
from turbopump.protocol.headers.topics import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    GetTopicConfigRequest,
    GetTopicStatsRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes


class TopicHandler:
    """Handles requests about topics; awaits `settled` until changes are on disk and at the name servers."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: CommittedOffsets,
        store: Storage,
        statistics: Statistics,
        reused: ReusedOffsets,
        broker_name: str,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._statistics = statistics
        self._reused = reused
        self._broker_name = broker_name
        self._settled = settled
        self.on_created: Callable[[bool, bool, int], None] | None = None
        """Called after each request to create a topic: is it a system topic, did it succeed, milliseconds."""

    def routes(self) -> Routes:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: Route(CreateTopicRequest, self.create),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Route(None, self.create_list),
            RequestCode.DELETE_TOPIC_IN_BROKER: Route(DeleteTopicRequest, self.delete),
            RequestCode.GET_ALL_TOPIC_CONFIG: Route(GetAllTopicConfigRequest, self.show_all),
            RequestCode.GET_TOPIC_CONFIG: Route(GetTopicConfigRequest, self.show),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Route(None, self.system_topics),
            RequestCode.GET_TOPIC_STATS_INFO: Route(GetTopicStatsRequest, self.statistics),
        }

    async def create(self, request: Request[CreateTopicRequest]) -> Answer:
        loop = asyncio.get_running_loop()
        began, succeeded = loop.time(), False
        try:
            answer = await self._create(request)
            succeeded = True
            return answer
        finally:
            if self.on_created is not None:
                is_system = self._topics.is_system(request.header.topic)
                self.on_created(is_system, succeeded, round(1000 * (loop.time() - began)))

    async def _create(self, request: Request[CreateTopicRequest]) -> Answer:
        header = request.header
        if "topic" not in (request.command.ext or {}):  # a blank one is refused with another code
            raise SystemFailure("the field topic is missing")
        topic = Topic(
            header.topic,
            header.readQueueNums,
            header.writeQueueNums,
            header.perm,
            header.topicFilterType,
            header.topicSysFlag or 0,
            header.order,
        )
        if self._topics.update(topic, parse_changes(header.attributes)):
            await self._settled()
        return Answer(remark=NOT_SET)

    async def create_list(self, request: Request[None]) -> Answer:
        configs = CreateTopicListRequestBody.decode(request.body).topicConfigList
        if self._topics.update_all((from_wire(config), config.attributes or {}) for config in configs):
            await self._settled()
        return Answer(remark=NOT_SET)

    async def delete(self, request: Request[DeleteTopicRequest]) -> Answer:
        """Deletes a topic with its queues and offsets, or what is left of a topic deleted before.

        The checkpoint comes first: recovery starts after it and does not rebuild the queues from the log.
        """
        name = request.header.topic
        await self._store.upkeep.take_checkpoint()
        await self._store.upkeep.expect_deletion(name)
        existed = self._topics.delete(name)
        self._offsets.forget_topic(name)
        if existed or is_valid(name):
            self._store.queues.delete_topic(name)
        if existed:
            self._reused.topic_deleted(name, self._store.log.end)
        if existed:  # in the turn of the change: later it would count as one of a burst, which is not awaited
            await self._settled()
        await self._store.upkeep.sync_removals()
        await self._statistics.forget_topic(name)
        return Answer()

    def show_all(self, request: Request[GetAllTopicConfigRequest]) -> Answer:
        """Answers with all topics or one page; the first page if the asker's data version is outdated."""
        header = request.header
        topics = sorted(self._topics.all(), key=lambda topic: topic.name)
        total = len(topics)
        if header.maxTopicNum is not None:
            first = header.topicSeq if self._is_current(header.dataVersion) else 0
            topics = topics[max(first, 0) :][: max(header.maxTopicNum, 0)]
        table = self._topics.to_wire(topics)
        body = TopicConfigAndMappingSerializeWrapper(
            dataVersion=table.dataVersion,
            mappingDataVersion=DataVersion(counter=0, stateVersion=0, timestamp=table.dataVersion.timestamp),
            topicConfigTable=table.topicConfigTable,
        )
        return Answer(GetAllTopicConfigResponse(totalTopicNum=total), body.encode())

    def show(self, request: Request[GetTopicConfigRequest]) -> Answer:
        topic = self._topics.find(request.header.topic)
        if topic is None:
            raise TopicNotFound(f"No topic in this broker. topic: {request.header.topic}")
        return Answer(body=topic.to_wire().encode())

    def system_topics(self, request: Request[None]) -> Answer:
        return Answer(body=TopicList(topicList=self._topics.system_names()).encode())

    async def statistics(self, request: Request[GetTopicStatsRequest]) -> Answer:
        name = request.header.topic
        topic = self._topics.find(name)
        if topic is None:
            raise TopicNotFound(f"topic[{name}] not exist")
        table: dict[WireQueue, TopicOffset] = {}
        times = StoreTimes(self._store.times)
        newest: list[tuple[TopicOffset, int]] = []
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            bounds = TopicOffset(lastUpdateTimestamp=0, maxOffset=0, minOffset=0)
            table[WireQueue(brokerName=self._broker_name, queueId=queue_id, topic=name)] = bounds
            queue = self._store.queues.find(name, queue_id)
            if queue is not None:
                bounds.minOffset, bounds.maxOffset = queue.min_offset, queue.max_offset
                if queue.max_offset:
                    newest.append((bounds, times.find(queue, queue.max_offset - 1)))
        await times.read()
        for bounds, position in newest:
            bounds.lastUpdateTimestamp = times[position]
        tps = self._statistics.topic_put_tps(name)
        return Answer(body=TopicStatsTable(offsetTable=table, topicPutTps=tps).encode())

    def _is_current(self, version: str | None) -> bool:
        if not version:
            return False
        try:
            return msgspec.json.decode(version, type=DataVersion) == self._topics.version
        except msgspec.MsgspecError:
            return False
