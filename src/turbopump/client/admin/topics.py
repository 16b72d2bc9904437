"""Administers topics: lists, routes, configuration, the offsets of their queues, and reading groups."""

from collections.abc import Iterable
from dataclasses import dataclass

from turbopump.client.admin.calls import AdminCalls, NotFound, together
from turbopump.client.admin.clusters import Clusters
from turbopump.client.admin.pages import PAGE, Page, all_pages
from turbopump.client.errors import InvalidArgument
from turbopump.client.message_fields import check_topic
from turbopump.client.routes import TopicRoute, route_of
from turbopump.protocol import bodies, names
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import NoPermission, Refused, RequestNotSupported, TopicNotFound
from turbopump.protocol.headers.namesrv import (
    DeleteTopicFromNamesrvRequest,
    GetRouteInfoRequest,
    GetTopicsByClusterRequest,
)
from turbopump.protocol.headers.topics import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    GetTopicConfigRequest,
    GetTopicStatsRequest,
    QueryTopicConsumeByWhoRequest,
)

READABLE_OR_WRITABLE = 6
DEFAULT_QUEUES = 8  # as mqadmin's updateTopic
MAX_PERMISSION = 7


@dataclass
class Topics:
    """Administers topics: lists, routes, configuration, the offsets of their queues, and reading groups.

    Example:

        await admin.topics.create("OrderTopic", queues=8)
        for queue, ends in (await admin.topics.stats("OrderTopic")).offsetTable.items():
            print(queue, ends.minOffset, ends.maxOffset)
        await admin.topics.delete("OrderTopic")
    """

    asking: AdminCalls

    async def names(self) -> list[str]:
        """Returns every topic that a name server knows, system topics included, in order."""
        answer = await self.asking.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(bodies.TopicList.decode(answer.body).topicList)

    async def names_in_cluster(self, cluster: str) -> list[str]:
        """Returns the topics that brokers of this cluster have, in order."""
        header = GetTopicsByClusterRequest(cluster)
        answer = await self.asking.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return sorted(bodies.TopicList.decode(answer.body).topicList)

    async def system_names(self) -> list[str]:
        """Returns the topics that brokers register for themselves: names of clusters and brokers."""
        answer = await self.asking.ask_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        return sorted(bodies.TopicList.decode(answer.body).topicList)

    async def clusters(self, topic: str) -> list[str]:
        """Returns the clusters whose brokers have the topic. Raises TopicNotFound."""
        return sorted({broker.cluster for broker in (await self.route(topic)).brokerDatas if broker.cluster})

    async def route(self, topic: str) -> bodies.TopicRouteData:
        """Returns the route of a topic as a name server knows it. Raises TopicNotFound."""
        header = GetRouteInfoRequest(topic=topic, acceptStandardJsonOnly=True)
        answer = await self.asking.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return bodies.TopicRouteData.decode(answer.body)

    async def readers(self, topic: str) -> dict[str, str]:
        """Returns broker name → address to ask, for each broker of a topic: its master's, else a slave's."""
        route = route_of(topic, await self.route(topic))
        return {name: address for name in sorted(route.brokers) if (address := route.reader(name))}

    async def queues(self, topic: str) -> TopicRoute:
        """Returns the queues of a topic to send to and to read from, and its brokers. Raises TopicNotFound.

        Example:

            route = await admin.topics.queues("OrderTopic")
            print(route.publish, route.subscribe, route.master("broker-a"))
        """
        return route_of(topic, await self.route(topic))

    # --- configuration -------------------------------------------------------------------------------

    async def config(self, address: str, topic: str) -> TopicConfig:
        """Returns the configuration of a topic at one broker. Raises TopicNotFound.

        Brokers before 5.0 cannot be asked for one topic, so all are read.
        """
        try:
            answer = await self.asking.ask(
                address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(topic)
            )
        except RequestNotSupported:
            found = (await self.configs(address)).topicConfigTable.get(topic)
            if found is None:
                raise TopicNotFound(f"No topic in this broker. topic: {topic}") from None
            return found
        return TopicConfig.decode(answer.body)

    async def configs(self, address: str) -> bodies.TopicConfigSerializeWrapper:
        """Returns the configuration of every topic of a broker, system topics included."""

        async def page(first: int, version: str) -> Page[TopicConfig]:
            header = GetAllTopicConfigRequest(topicSeq=first, dataVersion=version, maxTopicNum=PAGE)
            answer = await self.asking.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, header)
            found = bodies.TopicConfigSerializeWrapper.decode(answer.body)
            total = GetAllTopicConfigResponse.from_ext(answer.ext).totalTopicNum
            return Page(found.topicConfigTable, found.dataVersion, total)

        whole = await all_pages(page)
        return bodies.TopicConfigSerializeWrapper(dataVersion=whole.version, topicConfigTable=whole.items)

    async def user_configs(
        self, address: str, with_retry_and_dead_letters: bool = False
    ) -> bodies.TopicConfigSerializeWrapper:
        """Returns a broker's topic configurations, without system topics and those without a permission."""
        found = await self.configs(address)
        answer = await self.asking.ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        system = set(bodies.TopicList.decode(answer.body).topicList)
        found.topicConfigTable = {
            name: config
            for name, config in found.topicConfigTable.items()
            if name not in system
            and not names.is_system_topic(name)
            and (with_retry_and_dead_letters or not name.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)))
            and config.perm & READABLE_OR_WRITABLE
        }
        return found

    async def create(
        self,
        topic: str,
        config: TopicConfig | None = None,
        *,
        queues: int = DEFAULT_QUEUES,
        cluster: str | None = None,
        permission: int = READABLE_OR_WRITABLE,
        ordered: bool = False,
    ) -> list[str]:
        """Creates or changes a topic on all masters (of `cluster`); with `config`, at broker address `topic`.

            await admin.topics.create("OrderTopic", queues=8)

        With a `config`, which says everything about the topic, the first argument is the address of the one
        broker to create it on. Attributes are changes: `+name` with a value, `-name`.

            config = TopicConfig(topicName="OrderTopic", readQueueNums=8, writeQueueNums=8, perm=6)
            await admin.topics.create("127.0.0.1:10911", config)

        Raises NoPermission for a permission that does not exist (brokers would accept it), NotFound when
        there is no broker, and the first refusal, whose notes say which brokers have the topic then.
        """
        if config is not None:
            await self._create_at(topic, config)
            return [topic]
        check_topic(topic)
        if isinstance(queues, bool) or not isinstance(queues, int) or queues < 1:
            raise InvalidArgument(f"queues must be a whole number, at least 1, got {queues!r}")
        wanted = TopicConfig(
            topicName=topic, readQueueNums=queues, writeQueueNums=queues, perm=permission, order=ordered
        )
        created: list[str] = []
        for address in await self._masters(cluster):
            try:
                await self._create_at(address, wanted)
            except (Refused, OSError) as error:
                error.add_note(f"topic {topic}: {address} refused it; created at {created or 'no broker'}")
                raise
            created.append(address)
        return created

    async def _masters(self, cluster: str | None) -> list[str]:
        layout = await Clusters(self.asking).layout()
        asked = layout.clusters if cluster is None else [cluster]
        found = [address for one in asked for address in layout.masters(one)]
        if not found:
            raise NotFound("no broker is registered with the name servers: start one, or check name_servers=")
        return found

    async def _create_at(self, address: str, config: TopicConfig) -> None:
        check_permission(config)
        header = CreateTopicRequest(
            readQueueNums=config.readQueueNums,
            writeQueueNums=config.writeQueueNums,
            perm=config.perm,
            topicFilterType=config.topicFilterType,
            topic=config.topicName,
            defaultTopic=names.AUTO_CREATE_TOPIC,
            topicSysFlag=config.topicSysFlag,
            order=config.order,
            attributes=pack_changes(config.attributes or {}),
        )
        await self.asking.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def create_like(self, template: str, config: TopicConfig) -> list[str]:
        """Creates a topic on the masters that have topic `template`; returns the addresses that accepted it.

        Returns the addresses of the brokers that accepted it. Raises the last refusal when none did.

            await admin.topics.create_like("DefaultCluster", TopicConfig(topicName="OrderTopic"))
        """
        route = route_of(template, await self.route(template))
        masters = [address for name in sorted(route.brokers) if (address := route.master(name)) is not None]
        created = []
        failure: Refused | OSError = TopicNotFound(f"no master has topic {template}")
        for address in masters:
            try:
                await self._create_at(address, config)
            except (Refused, OSError) as error:
                failure = error
            else:
                created.append(address)
        if not created:
            raise failure
        return created

    async def create_all(self, address: str, configs: Iterable[TopicConfig]) -> None:
        """Creates or changes many topics on one broker: by one request, or one by one before 5.3."""
        asked = list(configs)
        for config in asked:
            check_permission(config)
        body = bodies.CreateTopicListRequestBody(asked).encode()
        try:
            await self.asking.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        except RequestNotSupported:
            for config in asked:
                await self._create_at(address, config)

    async def delete(self, topic: str) -> None:
        """Deletes a topic, with its messages, from every broker that has it and from the name servers.

        Example:

            await admin.topics.delete("OrderTopic")
        """
        route = route_of(topic, await self.route(topic))
        for addresses in route.brokers.values():
            for address in addresses.values():
                await self.delete_in_broker(address, topic)
        await self.delete_in_name_servers(topic)

    async def delete_in_broker(self, address: str, topic: str) -> None:
        """Deletes a topic, with its messages, from one broker."""
        await self.asking.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic))

    async def delete_in_name_servers(self, topic: str, cluster: str | None = None) -> None:
        """Deletes the routes of a topic from all name servers; a broker that has it registers them again."""
        header = DeleteTopicFromNamesrvRequest(topic, cluster)
        await self.asking.ask_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    # --- use -----------------------------------------------------------------------------------------

    async def stats_at(self, address: str, topic: str) -> bodies.TopicStatsTable:
        """Returns the first and the next offset of each of the topic's queues on one broker."""
        header = GetTopicStatsRequest(topic)
        answer = await self.asking.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        return bodies.TopicStatsTable.decode(answer.body)

    async def stats(self, topic: str, found_through: str | None = None) -> bodies.TopicStatsTable:
        """Returns the first and the next offset of all queues of a topic. Raises NotFound without data.

        `found_through` is another topic whose brokers are asked.
        """
        addresses = (await self.readers(found_through or topic)).values()
        tables = await together(lambda address: self.stats_at(address, topic), addresses)
        whole = bodies.TopicStatsTable(topicPutTps=sum(table.topicPutTps or 0.0 for table in tables))
        for table in tables:
            whole.offsetTable |= table.offsetTable
        if not whole.offsetTable:
            raise NotFound(f"no broker has data of topic {topic}")
        return whole

    async def consumers(self, topic: str) -> list[str]:
        """Returns the consumer groups that read the topic or have offsets in it, in order."""
        groups: set[str] = set()
        for address in (await self.readers(topic)).values():
            header = QueryTopicConsumeByWhoRequest(topic)
            answer = await self.asking.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            groups.update(bodies.GroupList.decode(answer.body).groupList)
        return sorted(groups)


def check_permission(config: TopicConfig) -> None:
    """Raises NoPermission unless the topic's permission is 0 to 7, as Apache's tools do since 5.0."""
    if not 0 <= config.perm <= MAX_PERMISSION:
        raise NoPermission(f"topicPermission value: {config.perm} is invalid.")


def pack_changes(changes: dict[str, str]) -> str:
    """Returns changes of attributes as the text of a create request (17): `+name=value,-name`."""
    return ",".join(f"{name}={value}" if name.startswith("+") else name for name, value in changes.items())
