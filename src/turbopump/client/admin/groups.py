"""Administers consumer groups: their configuration, their progress, and the state of their members."""

from collections.abc import Iterable
from dataclasses import dataclass

from turbopump.client.admin.calls import AdminCalls, NotFound, together
from turbopump.client.admin.connections import Connections, NobodyOnline
from turbopump.client.admin.pages import PAGE, Page, all_pages
from turbopump.client.admin.topics import Topics
from turbopump.client.message import MessageQueue
from turbopump.protocol import bodies, names
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import (
    GroupNotFound,
    Refused,
    RequestNotSupported,
    TopicNotFound,
)
from turbopump.protocol.headers.client import GetConsumerRunningInfoRequest, GetConsumerStatusRequest
from turbopump.protocol.headers.topics import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
    GetConsumeStatsRequest,
    GetSubscriptionGroupConfigRequest,
    QueryConsumeTimeSpanRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicsByConsumerRequest,
    UpdateGroupForbiddenRequest,
)

STATS_TIMEOUT_S = 15.0
PREDEFINED = frozenset(
    {
        *("DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "CLIENT_INNER_PRODUCER", "SCHEDULE_CONSUMER"),
        *("__MONITOR_CONSUMER", "SELF_TEST_P_GROUP"),
    }
)
POP_SEPARATOR = "+"


class NoGroup(NotFound):
    """No broker knows the group: no consumer of it ever connected."""


class NoProgress(NotFound):
    """The group has no committed offsets at the brokers."""


@dataclass
class Groups:
    """Administers consumer groups: their configuration, their progress, and the state of their members.

    Example:

        progress = await admin.groups.progress("billing")
        for queue, at in progress.offsetTable.items():
            print(queue, at.brokerOffset - at.consumerOffset)
    """

    asking: AdminCalls
    topics: Topics
    connections: Connections

    async def names(self) -> list[str]:
        """Returns the groups that have a retry topic, in order: those that have ever had a member."""
        topics = await self.topics.names()
        found = {group_of(topic) for topic in topics if topic.startswith(names.RETRY_PREFIX)}
        return sorted(found)

    async def brokers(self, group: str, topic: str | None = None) -> dict[str, str]:
        """Returns broker name → address of the brokers with the group's retry topic, else with `topic`."""
        try:
            return await self.topics.readers(names.retry_topic(group))
        except TopicNotFound:
            if topic is None:
                raise NoGroup(f"no broker knows a consumer group {group}") from None
            return await self.topics.readers(topic)

    # --- configuration -------------------------------------------------------------------------------

    async def create(self, address: str, config: bodies.SubscriptionGroupConfig) -> None:
        """Creates or changes a group on one broker.

        Example:

            await admin.groups.create(address, SubscriptionGroupConfig(groupName="billing", retryMaxTimes=5))
        """
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self.asking.ask(address, code, body=config.encode())

    async def create_all(self, address: str, configs: Iterable[bodies.SubscriptionGroupConfig]) -> None:
        """Creates or changes many groups on one broker: by one request, or one by one before 5.3."""
        asked = list(configs)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        body = bodies.CreateSubscriptionGroupListRequestBody(asked).encode()
        try:
            await self.asking.ask(address, code, body=body)
        except RequestNotSupported:
            for config in asked:
                await self.create(address, config)

    async def delete(self, address: str, group: str, with_offsets: bool = False) -> None:
        """Deletes a group from one broker; its offsets stay unless `with_offsets` is set."""
        header = DeleteSubscriptionGroupRequest(group, cleanOffset=with_offsets, removeOffset=with_offsets)
        await self.asking.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def config(self, address: str, group: str) -> bodies.SubscriptionGroupConfig:
        """Returns the configuration of a group at one broker. Raises NoGroup.

        A broker that creates groups by itself has every group. Brokers before 5.0 cannot be asked for one
        group, so all are read.
        """
        header = GetSubscriptionGroupConfigRequest(group)
        try:
            answer = await self.asking.ask(address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        except RequestNotSupported:
            found = (await self.configs(address)).get(group)
            if found is None:
                raise NoGroup(f"the broker at {address} has no group {group}") from None
            return found
        except GroupNotFound:
            raise NoGroup(f"the broker at {address} has no group {group}") from None
        return bodies.SubscriptionGroupConfig.decode(answer.body)

    async def set_readable(self, address: str, group: str, topic: str, readable: bool) -> bool:
        """Allows or forbids a group to read a topic on one broker; returns whether it may then read.

        Brokers before 5.0 refuse.
        """
        header = UpdateGroupForbiddenRequest(group, topic, readable)
        answer = await self.asking.ask(address, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        return bool(bodies.GroupForbidden.decode(answer.body).readable)

    async def configs(self, address: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """Returns the configuration of every group of a broker, by group name."""
        return (await self.table(address)).subscriptionGroupTable

    async def user_table(self, address: str) -> bodies.SubscriptionGroupWrapper:
        """Returns the configurations of a broker's groups, without groups of the system and of tools."""
        whole = await self.table(address)
        whole.subscriptionGroupTable = {
            name: config
            for name, config in whole.subscriptionGroupTable.items()
            if not names.is_system_group(name) and name not in PREDEFINED
        }
        return whole

    async def table(self, address: str) -> bodies.SubscriptionGroupWrapper:
        """Returns the configuration of every group of a broker, and the version of the table."""

        async def page(first: int, version: str) -> Page[bodies.SubscriptionGroupConfig]:
            header = GetAllSubscriptionGroupRequest(groupSeq=first, dataVersion=version, maxGroupNum=PAGE)
            answer = await self.asking.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
            found = bodies.SubscriptionGroupWrapper.decode(answer.body)
            total = GetAllSubscriptionGroupResponse.from_ext(answer.ext).totalGroupNum
            return Page(found.subscriptionGroupTable, found.dataVersion, total)

        whole = await all_pages(page)
        return bodies.SubscriptionGroupWrapper(
            dataVersion=whole.version, forbiddenTable={}, subscriptionGroupTable=whole.items
        )

    # --- progress ------------------------------------------------------------------------------------

    async def progress_at(self, address: str, group: str, topic: str | None = None) -> bodies.ConsumeStats:
        """Returns a group's committed offsets and the queues' ends on one broker; empty: none committed."""
        header = GetConsumeStatsRequest(group, topic)
        code = RequestCode.GET_CONSUME_STATS
        answer = await self.asking.ask(address, code, header, timeout_s=STATS_TIMEOUT_S)
        return bodies.ConsumeStats.decode(answer.body)

    async def progress(self, group: str, topic: str | None = None) -> bodies.ConsumeStats:
        """Returns a group's committed offsets and the queues' ends on all its brokers, in all topics or one.

        Raises NoProgress when there are none and no member is online, NoGroup when no broker knows the group.

            behind = sum(
                at.brokerOffset - at.consumerOffset
                for at in (await admin.groups.progress("billing", "OrderTopic")).offsetTable.values()
            )
        """
        addresses = (await self.brokers(group, topic)).values()
        parts = await together(lambda address: self.progress_at(address, group, topic), addresses)
        whole = bodies.ConsumeStats(consumeTps=sum(part.consumeTps for part in parts))
        for part in parts:
            whole.offsetTable |= part.offsetTable
        if not whole.offsetTable:
            await self._explain_nothing(group)
        return whole

    async def _explain_nothing(self, group: str) -> None:
        try:
            members = await self.connections.consumers(group)
        except NobodyOnline:
            raise NoProgress(f"group {group} has committed no offset, and none of it is online") from None
        if members.messageModel == "BROADCASTING":
            raise NoProgress(f"group {group} is broadcasting: each member keeps its own offsets")

    async def topics_read(self, group: str) -> list[str]:
        """Returns the topics in which the group has committed offsets, in order. Raises NoGroup."""
        header = QueryTopicsByConsumerRequest(group)
        found: set[str] = set()
        for address in (await self.brokers(group)).values():
            answer = await self.asking.ask(address, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
            found.update(bodies.TopicList.decode(answer.body).topicList)
        return sorted(found)

    async def subscription(self, group: str, topic: str) -> bodies.SubscriptionData | None:
        """Returns the subscription to the topic of the members online; None: no broker knows one."""
        header = QuerySubscriptionByConsumerRequest(group, topic)
        for address in (await self.brokers(group, topic)).values():
            answer = await self.asking.ask(address, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
            found = bodies.QuerySubscriptionResponseBody.decode(answer.body).subscriptionData
            if found is not None:
                return found
        return None

    async def time_spans(self, group: str, topic: str) -> list[bodies.QueueTimeSpan]:
        """Returns for each queue the store times of its first and last message, and of the group's position.

        The delay is the time between the latter two.

            for span in await admin.groups.time_spans("billing", "OrderTopic"):
                print(span.messageQueue, span.delayTime)
        """
        header = QueryConsumeTimeSpanRequest(topic, group)
        spans: list[bodies.QueueTimeSpan] = []
        for address in (await self.topics.readers(topic)).values():
            answer = await self.asking.ask(
                address, RequestCode.QUERY_CONSUME_TIME_SPAN, header, timeout_s=STATS_TIMEOUT_S
            )
            spans += bodies.QueryConsumeTimeSpanBody.decode(answer.body).consumeTimeSpanSet
        return spans

    # --- members -------------------------------------------------------------------------------------

    async def running_info(
        self, group: str, client_id: str, with_stack: bool = False
    ) -> bodies.ConsumerRunningInfo:
        """Returns a member's report (settings, queues, statistics), through a broker that reaches the member.

        Example:

            for member in (await admin.connections.consumers("billing")).connectionSet:
                info = await admin.groups.running_info("billing", member.clientId)
                print(member.clientId, info.properties["PROP_CLIENT_VERSION"], len(info.mqTable))
        """
        header = GetConsumerRunningInfoRequest(group, client_id, with_stack)
        failure: Refused | OSError | None = None
        for address in (await self.brokers(group)).values():
            try:
                answer = await self.asking.ask(
                    address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_s=STATS_TIMEOUT_S
                )
            except (Refused, OSError) as error:
                failure = failure or error
            else:
                return bodies.ConsumerRunningInfo.decode(answer.body)
        raise failure or NoGroup(f"no broker knows a consumer group {group}")

    async def member_positions(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Returns client id → queue → offset, as the online members report them for a topic.

        With `client_id` only that member is asked. Pull consumers and clients in languages other than Java
        may not report.
        """
        header = GetConsumerStatusRequest(topic, group, client_id)
        found: dict[str, dict[MessageQueue, int]] = {}
        for address in (await self.topics.readers(topic)).values():
            answer = await self.asking.ask(
                address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header, timeout_s=STATS_TIMEOUT_S
            )
            told = bodies.GetConsumerStatusBody.decode(answer.body).consumerTable
            for member, positions in told.items():
                of_member = {MessageQueue.of_wire(queue): offset for queue, offset in positions.items()}
                found.setdefault(member, {}).update(of_member)
        return found

    async def owners(self, group: str) -> dict[MessageQueue, str]:
        """Returns queue → client id of the member that has it; members that do not answer are left out."""
        members = (await self.connections.consumers(group)).connectionSet
        found: dict[MessageQueue, str] = {}
        for member in members:
            try:
                info = await self.running_info(group, member.clientId)
            except (Refused, OSError):
                continue
            found |= {MessageQueue.of_wire(queue): member.clientId for queue in info.mqTable}
        return found


def group_of(retry_topic: str) -> str:
    """Returns the group of a retry topic: of `%RETRY%group`, or of 5.x's `%RETRY%group+topic`."""
    return retry_topic.removeprefix(names.RETRY_PREFIX).partition(POP_SEPARATOR)[0]


def is_push(info: bodies.ConsumerRunningInfo) -> bool:
    return info.properties.get("PROP_CONSUME_TYPE") == "CONSUME_PASSIVELY"
