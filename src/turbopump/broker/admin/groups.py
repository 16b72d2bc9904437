"""Consumer groups: create and change (200, 225), delete (207), show (201, 352), and how far behind (208)."""

from collections.abc import Awaitable, Callable

from turbopump.broker.groups import Groups
from turbopump.broker.offsets import Offsets
from turbopump.broker.statistics import Statistics
from turbopump.broker.topics import Topics
from turbopump.protocol.bodies import (
    ConsumeStats,
    CreateSubscriptionGroupListRequestBody,
    MessageQueue,
    OffsetWrapper,
    SubscriptionGroupConfig,
)
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import GroupNotFound
from turbopump.protocol.headers.topics import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
    GetConsumeStatsRequest,
    GetSubscriptionGroupConfigRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.store.store import Store
from turbopump.store.times import store_time


class GroupRequests:
    """`settled` returns when a change is on disk."""

    def __init__(
        self,
        groups: Groups,
        topics: Topics,
        offsets: Offsets,
        store: Store,
        statistics: Statistics,
        broker_name: str,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._statistics = statistics
        self._broker_name = broker_name
        self._settled = settled

    def routes(self) -> Routes:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Route(None, self.update),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Route(None, self.update_list),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: Route(DeleteSubscriptionGroupRequest, self.delete),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Route(
                GetAllSubscriptionGroupRequest, self.show_all
            ),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Route(GetSubscriptionGroupConfigRequest, self.show),
            RequestCode.GET_CONSUME_STATS: Route(GetConsumeStatsRequest, self.progress),
        }

    async def update(self, request: Request[None]) -> Answer:
        if request.body:
            self._groups.update_all([SubscriptionGroupConfig.decode(request.body)])
            await self._settled()
        return Answer()

    async def update_list(self, request: Request[None]) -> Answer:
        self._groups.update_all(CreateSubscriptionGroupListRequestBody.decode(request.body).groupConfigList)
        await self._settled()
        return Answer()

    async def delete(self, request: Request[DeleteSubscriptionGroupRequest]) -> Answer:
        header = request.header
        existed = self._groups.delete(header.groupName)
        self._statistics.forget_group(header.groupName)
        if header.cleans_offsets:
            self._offsets.forget_group(header.groupName)
        if existed:
            await self._settled()
        return Answer()

    def show_all(self, request: Request[GetAllSubscriptionGroupRequest]) -> Answer:
        """Always all: whoever asks for a page stops when it has as many as there are."""
        table = self._groups.to_wire()
        total = len(table.subscriptionGroupTable)
        return Answer(GetAllSubscriptionGroupResponse(totalGroupNum=total), table.encode())

    def show(self, request: Request[GetSubscriptionGroupConfigRequest]) -> Answer:
        group = self._groups.find_or_create(request.header.group)
        if group is None:
            raise GroupNotFound("No group in this broker")
        return Answer(body=group.config.encode())

    def progress(self, request: Request[GetConsumeStatsRequest]) -> Answer:
        """Of every queue that the group has committed an offset on, in one topic or in all."""
        header = request.header
        group = header.consumerGroup
        asked = [name for name in (header.topicList or "").split(";") if name]
        names = [header.topic] if header.topic else asked or self._offsets.topics_of_group(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for name in names:
            tps += self._statistics.group_get_tps(group, name)
            topic = self._topics.find(name)
            for queue_id in range(topic.read_queues if topic else 0):
                queue = MessageQueue(brokerName=self._broker_name, queueId=queue_id, topic=name)
                table[queue] = self._progress(group, name, queue_id)
        return Answer(body=ConsumeStats(offsetTable=table, consumeTps=tps).encode())

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        committed = max(self._offsets.query(group, topic, queue_id), 0)
        queue = self._store.find_queue(topic, queue_id)
        end = queue.max_offset if queue else 0
        consumed_ms = (
            store_time(self._store.log, queue, committed - 1) if queue and 0 < committed <= end else 0
        )
        return OffsetWrapper(
            brokerOffset=end, consumerOffset=committed, lastTimestamp=consumed_ms, pullOffset=committed
        )
