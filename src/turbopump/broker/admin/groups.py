"""Handles tools' requests about groups: set (200, 225), delete (207), show (201, 352), forbid reads (353)."""

from collections.abc import Awaitable, Callable

from turbopump.broker.consume.reused_offsets import ReusedOffsets
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.topics import TopicTable
from turbopump.protocol.bodies import (
    CreateSubscriptionGroupListRequestBody,
    GroupForbidden,
    SubscriptionGroupConfig,
)
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import GroupNotFound, TopicNotFound
from turbopump.protocol.headers.topics import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
    GetSubscriptionGroupConfigRequest,
    UpdateGroupForbiddenRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes


class GroupHandler:
    """Handles requests about the configuration of groups; awaits `settled` before it answers a change."""

    def __init__(
        self,
        groups: SubscriptionGroups,
        topics: TopicTable,
        offsets: CommittedOffsets,
        statistics: Statistics,
        reused: ReusedOffsets,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._offsets = offsets
        self._statistics = statistics
        self._reused = reused
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
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Route(UpdateGroupForbiddenRequest, self.forbid),
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
        self._reused.group_deleted(header.groupName)
        if header.cleans_offsets:
            self._offsets.forget_group(header.groupName)
        if existed:
            await self._settled()
        await self._statistics.forget_group(header.groupName)
        return Answer()

    def show_all(self, request: Request[GetAllSubscriptionGroupRequest]) -> Answer:
        """Answers with all groups, even if one page is asked for: the client stops at the total anyway."""
        table = self._groups.to_wire()
        total = len(table.subscriptionGroupTable)
        return Answer(GetAllSubscriptionGroupResponse(totalGroupNum=total), table.encode())

    def show(self, request: Request[GetSubscriptionGroupConfigRequest]) -> Answer:
        """Answers with a group's configuration, creating the group if allowed; else raises GroupNotFound."""
        group = self._groups.find_or_create(request.header.group)
        if group is None:
            raise GroupNotFound("No group in this broker")
        return Answer(body=group.config.encode())

    async def forbid(self, request: Request[UpdateGroupForbiddenRequest]) -> Answer:
        """Forbids or allows a group to read a topic, if `readable` is given; answers whether it may read."""
        header = request.header
        if header.readable is not None:
            if not header.readable:
                self._check_exist(header.group, header.topic)
            self._groups.forbid(header.group, header.topic, header.readable)
            await self._settled()
        readable = not self._groups.is_forbidden(header.group, header.topic)
        body = GroupForbidden(group=header.group, readable=readable, topic=header.topic)
        return Answer(body=body.encode(), remark="")

    def _check_exist(self, group: str, topic: str) -> None:
        if self._groups.find(group) is None:
            raise GroupNotFound(f"Group {group} not exist!")
        if self._topics.find(topic) is None:
            raise TopicNotFound(f"Topic {topic} not exist!")
