"""Request handlers of the name server, with the remarks of Apache 5.5.

In: a typed request. Out: an answer, or `Refused`. The state is in `TopicRouteTable` and `KeyValueTable`.
Where an operation has a response header, Apache sends an empty one even with an error: hence the `{}`.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from turbopump.guard.config import SECRET_KEYS
from turbopump.namesrv.config import NamesrvConfig, configure, properties, protected_keys, stored_properties
from turbopump.namesrv.kv import ORDER_TOPIC_CONFIG, KeyValueTable, replace_file
from turbopump.namesrv.routes import (
    BrokerRegistration,
    MinBrokerIdChange,
    RemovedBrokers,
    TopicRouteTable,
    in_zone,
)
from turbopump.protocol.bodies import (
    BrokerMemberGroup,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from turbopump.protocol.bodies.registration import MAX_MAPPING_BYTES, MAX_MAPPINGS
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.conf import ConfigError, pack_properties
from turbopump.protocol.errors import NoPermission, QueryNotFound, SystemFailure, TopicNotFound
from turbopump.protocol.headers import namesrv as headers
from turbopump.protocol.names import (
    ABSENT_BROKERS_NAMESPACE,
    KNOWN_BROKERS_NAMESPACE,
    MAX_RETRY_TOPIC_LENGTH,
)
from turbopump.protocol.record import crc31
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

LOG_INTERVAL_S = 10.0
STANDARD_JSON_VERSION = 401  # V4_9_4: from here on clients ask for JSON with quoted keys
BARE_WRAPPER_VERSION = 37  # V3_0_11: older brokers send the topic table without a wrapper
MAX_FILTER_SERVERS = 64  # per broker; only brokers before 5.0 have any, a handful
MAX_ADDRESS_LENGTH = 255
ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"
DELETE = b"\x7f"  # written as an escape, as all beyond it
NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


class NamesrvHandlers:
    """Request handlers of a name server, one method per request code."""

    def __init__(
        self,
        config: NamesrvConfig,
        routes: TopicRouteTable,
        values: KeyValueTable,
        clock: Clock,
        disk: Disk,
        removed: Callable[[RemovedBrokers], None],
        notify: Callable[[MinBrokerIdChange], None],
    ) -> None:
        self.config = config
        self._routes = routes
        self._values = values
        self._clock = clock
        self._disk = disk
        self._removed = removed
        self._notify = notify
        self._started = clock.monotonic()
        self._has_served = False
        self._ignored = RateLimitedLog(log, LOG_INTERVAL_S)
        self._keeping = asyncio.Lock()  # one write at a time, in a thread: the disk may hang

    def routes(self) -> Routes:
        code = RequestCode
        return {
            code.PUT_KV_CONFIG: Route(headers.PutKVConfigRequest, self.put_value),
            code.GET_KV_CONFIG: Route(headers.GetKVConfigRequest, self.get_value),
            code.DELETE_KV_CONFIG: Route(headers.DeleteKVConfigRequest, self.delete_value),
            code.GET_KVLIST_BY_NAMESPACE: Route(headers.GetKVListByNamespaceRequest, self.list_values),
            code.REGISTER_BROKER: Route(
                headers.RegisterBrokerRequest, self.register_broker, warn_as="Registration"
            ),
            code.UNREGISTER_BROKER: Route(headers.UnregisterBrokerRequest, self.unregister_broker),
            code.BROKER_HEARTBEAT: Route(
                headers.BrokerHeartbeatRequest, self.heartbeat, warn_as="Heartbeat of a broker"
            ),
            code.QUERY_DATA_VERSION: Route(
                headers.QueryDataVersionRequest, self.query_version, warn_as="Query of a broker's version"
            ),
            code.GET_BROKER_MEMBER_GROUP: Route(headers.GetBrokerMemberGroupRequest, self.member_group),
            code.GET_BROKER_CLUSTER_INFO: Route(None, self.cluster_info),
            code.GET_ROUTEINFO_BY_TOPIC: Route(headers.GetRouteInfoRequest, self.route),
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Route(None, self.all_topics),
            code.GET_TOPICS_BY_CLUSTER: Route(headers.GetTopicsByClusterRequest, self.topics_of_cluster),
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Route(None, self.system_topics),
            code.GET_UNIT_TOPIC_LIST: Route(None, self.unit_topics),
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: Route(None, self.unit_sub_topics),
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Route(None, self.unit_sub_ununit_topics),
            code.DELETE_TOPIC_IN_NAMESRV: Route(headers.DeleteTopicFromNamesrvRequest, self.delete_topic),
            code.REGISTER_TOPIC_IN_NAMESRV: Route(
                headers.RegisterTopicRequest, self.register_topic, warn_as="Registration of a topic"
            ),
            code.WIPE_WRITE_PERM_OF_BROKER: Route(headers.WipeWritePermOfBrokerRequest, self.wipe_write_perm),
            code.ADD_WRITE_PERM_OF_BROKER: Route(headers.AddWritePermOfBrokerRequest, self.add_write_perm),
            code.UPDATE_NAMESRV_CONFIG: Route(None, self.update_config),
            code.GET_NAMESRV_CONFIG: Route(None, self.get_config),
        }

    # Keys and values

    async def put_value(self, request: Request[headers.PutKVConfigRequest]) -> Answer:
        header = request.header
        async with self._keeping:
            await asyncio.to_thread(self._values.put, header.namespace, header.key, header.value)
        return Answer()

    def get_value(self, request: Request[headers.GetKVConfigRequest]) -> Answer:
        header = request.header
        if header.namespace == ABSENT_BROKERS_NAMESPACE:
            known = self._values.all_of(KNOWN_BROKERS_NAMESPACE) or {}
            value = ";".join(self._routes.absent(header.key, known)) or None
        else:
            value = self._values.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return Answer({}, code=ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return Answer(headers.GetKVConfigResponse(value=value))

    async def delete_value(self, request: Request[headers.DeleteKVConfigRequest]) -> Answer:
        async with self._keeping:
            await asyncio.to_thread(self._values.delete, request.header.namespace, request.header.key)
        if request.header.namespace == KNOWN_BROKERS_NAMESPACE:
            self._routes.forget_absent(request.header.key)
        return Answer()

    def list_values(self, request: Request[headers.GetKVListByNamespaceRequest]) -> Answer:
        table = self._values.all_of(request.header.namespace)
        if table is None:
            raise QueryNotFound(f"No config item, Namespace: {request.header.namespace}")
        return Answer(body=KVTable(table=table).encode())

    # Brokers

    def register_broker(self, request: Request[headers.RegisterBrokerRequest]) -> Answer | Awaitable[Answer]:
        header = request.header
        if header.bodyCrc32 and crc31(request.body) != header.bodyCrc32:
            return Answer({}, code=ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        self._watch(request.connection)
        try:
            registration = self._registration(request)
            is_new = registration.broker_id not in self._routes.members(registration.broker_name)
            registered = self._routes.register(registration, request.connection, self._clock.now_ms())
        except SystemFailure as failure:
            return Answer({}, code=failure.code, remark=failure.remark)
        place = (registration.broker_name, registration.broker_id, registration.address)
        if registered.ignored:
            log.warning(
                "Ignored broker %s (id %d) at %s: another address has registered this id with a newer state",
                *place,
            )
        elif is_new:
            log.info("Registered broker %s (id %d) at %s", *place)
        if registered.notice is not None:
            self._notify(registered.notice)
        order = self._values.all_of(ORDER_TOPIC_CONFIG) if self.config.return_order_topic_config else None
        answer = Answer(
            headers.RegisterBrokerResponse(
                haServerAddr=registered.ha_address, masterAddr=registered.master_address
            ),
            KVTable(table=order).encode() if order is not None else b"",
        )
        if self._values.get(KNOWN_BROKERS_NAMESPACE, registration.broker_name) == registration.cluster:
            return answer
        return self._remembered(registration.broker_name, registration.cluster, answer)

    async def _remembered(self, broker_name: str, cluster: str, answer: Answer) -> Answer:
        """Stores the name of a broker, then returns `answer`; a failure to write is only logged.

        After a restart, a broker that does not come back is then known as absent.
        """
        try:
            async with self._keeping:
                if self._values.is_on_disk:
                    await asyncio.to_thread(self._values.put, KNOWN_BROKERS_NAMESPACE, broker_name, cluster)
                else:
                    self._values.put(KNOWN_BROKERS_NAMESPACE, broker_name, cluster)
        except SystemFailure as failure:
            log.warning("Cannot store the name of broker %s: %s", broker_name, failure.remark)
        return answer

    def unregister_broker(self, request: Request[headers.UnregisterBrokerRequest]) -> Answer:
        header = request.header
        self._removed(self._routes.unregister(header.clusterName, header.brokerName, header.brokerAddr))
        return Answer()

    def heartbeat(self, request: Request[headers.BrokerHeartbeatRequest]) -> Answer:
        header = request.header
        self._routes.alive(header.clusterName, header.brokerAddr, self._clock.now_ms())
        return Answer()

    def query_version(self, request: Request[headers.QueryDataVersionRequest]) -> Answer:
        header = request.header
        known = self._routes.version_of(header.clusterName, header.brokerAddr)
        asked = DataVersion.decode(request.body) if request.body else None
        self._routes.alive(header.clusterName, header.brokerAddr, self._clock.now_ms())
        return Answer(
            headers.QueryDataVersionResponse(changed=known is None or known != asked),
            known.encode() if known is not None else b"",
        )

    def member_group(self, request: Request[headers.GetBrokerMemberGroupRequest]) -> Answer:
        header = request.header
        group = BrokerMemberGroup(
            brokerAddrs=self._routes.members(header.brokerName),
            brokerName=header.brokerName,
            cluster=header.clusterName,
        )
        body = GetBrokerMemberGroupResponseBody(brokerMemberGroup=group).encode()
        return Answer(body=body, remark="not set any response code")  # Apache's remark, with code 0

    def cluster_info(self, request: Request[None]) -> Answer:
        return Answer(body=self._routes.clusters().encode())

    # Topics

    def route(self, request: Request[headers.GetRouteInfoRequest]) -> Answer:
        self._check_ready()
        topic = request.header.topic
        route = self._routes.route(topic) if topic is not None else None
        if route is None or topic is None:
            raise TopicNotFound(NO_ROUTE.format("null" if topic is None else topic))
        self._has_served = True
        if self.config.order_message_enable:
            route.orderTopicConf = self._values.get(ORDER_TOPIC_CONFIG, topic)
        ext = request.command.ext or {}
        if ext.get(ZONE_MODE, "").lower() == "true" and ext.get(ZONE_NAME):
            route = in_zone(route, ext[ZONE_NAME])
        standard = request.command.version >= STANDARD_JSON_VERSION or request.header.acceptStandardJsonOnly
        return Answer(body=encode_standard(route) if standard else route.encode())

    def all_topics(self, request: Request[None]) -> Answer:
        return self._topic_list(self._routes.topics, self.config.all_topic_list_enable)

    def topics_of_cluster(self, request: Request[headers.GetTopicsByClusterRequest]) -> Answer:
        cluster = request.header.cluster
        return self._topic_list(lambda: self._routes.topics_of(cluster), self.config.topic_list_enable)

    def system_topics(self, request: Request[None]) -> Answer:
        topics, address = self._routes.system_topics()
        return Answer(body=TopicList(brokerAddr=address, topicList=topics).encode())

    def unit_topics(self, request: Request[None]) -> Answer:
        return self._topic_list(self._routes.unit_topics, self.config.topic_list_enable)

    def unit_sub_topics(self, request: Request[None]) -> Answer:
        return self._topic_list(self._routes.unit_sub_topics, self.config.topic_list_enable)

    def unit_sub_ununit_topics(self, request: Request[None]) -> Answer:
        return self._topic_list(self._routes.unit_sub_ununit_topics, self.config.topic_list_enable)

    def delete_topic(self, request: Request[headers.DeleteTopicFromNamesrvRequest]) -> Answer:
        self._routes.delete_topic(request.header.topic, request.header.clusterName)
        return Answer()

    def register_topic(self, request: Request[headers.RegisterTopicRequest]) -> Answer:
        topic = request.header.topic
        if len(topic) > MAX_RETRY_TOPIC_LENGTH:
            raise SystemFailure(f"register topic failed: its name has {len(topic)} characters")
        self._routes.add_topic(topic, TopicRouteData.decode(request.body).queueDatas)
        return Answer()

    def wipe_write_perm(self, request: Request[headers.WipeWritePermOfBrokerRequest]) -> Answer:
        count = self._routes.wipe_write_perm(request.header.brokerName)
        return Answer(headers.WipeWritePermOfBrokerResponse(wipeTopicCount=count))

    def add_write_perm(self, request: Request[headers.AddWritePermOfBrokerRequest]) -> Answer:
        count = self._routes.add_write_perm(request.header.brokerName)
        return Answer(headers.AddWritePermOfBrokerResponse(addTopicCount=count))

    # Configuration

    async def update_config(self, request: Request[None]) -> Answer:
        """Changes and saves the settings in the body; refuses bad values and protected keys.

        Unknown keys are ignored with a warning in the log; Apache ignores them too.
        """
        async with self._keeping:
            return await self._update_config(request)

    async def _update_config(self, request: Request[None]) -> Answer:
        try:
            if protected_keys(self.config, request.body):
                raise NoPermission("Can not update config in black list.")
            changed, unknown = configure(self.config, request.body)
        except ConfigError as error:
            raise SystemFailure(str(error)) from None
        if unknown:
            log.warning("Ignored unknown configuration keys from %s: %s", request.connection, unknown)
        if changed != self.config:
            await self._keep(changed)
            log.info("Configuration changed by %s", request.connection)
        return Answer()

    def get_config(self, request: Request[None]) -> Answer:
        return Answer(body=pack_properties(properties(self.config)))

    # Inside

    async def _keep(self, changed: NamesrvConfig) -> None:
        if changed.config_store_path:
            try:
                await asyncio.to_thread(self._store_config, changed)
            except OSError as error:
                raise SystemFailure(f"cannot write the configuration: {error}") from error
        self.config = changed
        self._routes.support_acting_master = changed.support_acting_master
        self._routes.delete_topic_with_registration = changed.delete_topic_with_registration

    def _store_config(self, changed: NamesrvConfig) -> None:
        path = changed.config_store_path
        before = self._disk.read(path) if self._disk.exists(path) else b""
        try:
            stored = stored_properties(changed, before)
        except ConfigError:  # that file is no configuration: nothing of it is kept
            stored = stored_properties(changed, b"")
        private = any(stored[key] for key in SECRET_KEYS)
        replace_file(self._disk, path, pack_properties(stored), private)

    def _watch(self, connection: Connection) -> None:
        """Has the brokers that registered on a connection removed when the connection ends."""
        if self._connection_lost not in connection.on_closed:
            connection.on_closed.append(self._connection_lost)

    def _connection_lost(self, connection: Connection) -> None:
        self._removed(self._routes.disconnected(connection))

    def _registration(self, request: Request[headers.RegisterBrokerRequest]) -> BrokerRegistration:
        header, zone = request.header, (request.command.ext or {}).get(ZONE_NAME)
        _check_lengths(header, zone)
        body = _table_of(request)
        wrapper = body.topicConfigSerializeWrapper
        return BrokerRegistration(
            cluster=header.clusterName,
            broker_name=header.brokerName,
            broker_id=header.brokerId,
            address=header.brokerAddr,
            ha_address=header.haServerAddr,
            version=wrapper.dataVersion,
            topics=self._with_short_names(wrapper.topicConfigTable, header.brokerName),
            mappings=_checked(wrapper.topicQueueMappingInfoMap or {}),
            filter_servers=_few(body.filterServerList),
            timeout_ms=header.heartbeatTimeoutMillis,
            acting_master=header.enableActingMaster,
            zone=zone,
        )

    def _with_short_names(self, topics: dict[str, TopicConfig], broker_name: str) -> dict[str, TopicConfig]:
        """Returns the topics without those whose names are too long for any client, and logs their number."""
        kept = {name: topic for name, topic in topics.items() if len(name) <= MAX_RETRY_TOPIC_LENGTH}
        if ignored := len(topics) - len(kept):
            words = "Broker %s: ignored %d topics with names that are too long"
            self._ignored.log(self._clock.monotonic(), words, broker_name, ignored)
        return kept

    def _check_ready(self) -> None:
        if not self.config.wait_for_service or self._has_served:
            return
        if self._clock.monotonic() - self._started < self.config.wait_s:
            raise SystemFailure("name server not ready")

    def _topic_list(self, topics: Callable[[], list[str]], enabled: bool) -> Answer:
        if not enabled:
            raise SystemFailure("disable")
        return Answer(body=TopicList(topicList=topics()).encode())


def _check_lengths(header: headers.RegisterBrokerRequest, zone: str | None) -> None:
    """Raises SystemFailure if a name or address of a registration is too long.

    Tables are limited by their number of rows only.
    """
    names = (header.clusterName, header.brokerName, header.brokerAddr, header.haServerAddr, zone)
    longest = max(len(name or "") for name in names)
    if longest > MAX_ADDRESS_LENGTH:
        raise SystemFailure(f"register broker failed: a name or an address has {longest} characters")


def _checked(mappings: dict[str, Any]) -> dict[str, Any]:
    """Returns the mappings of static topics; raises SystemFailure if they are too many or too large.

    The limits are those of a compressed registration.
    """
    if len(mappings) > MAX_MAPPINGS or len(msgspec.json.encode(mappings)) > MAX_MAPPING_BYTES:
        raise SystemFailure("register broker failed: too many or too large mappings of static topics")
    return mappings


def _few(servers: list[str]) -> tuple[str, ...]:
    return tuple(server for server in servers[:MAX_FILTER_SERVERS] if len(server) <= MAX_ADDRESS_LENGTH)


def _table_of(request: Request[headers.RegisterBrokerRequest]) -> RegisterBrokerBody:
    if not request.body:
        return RegisterBrokerBody()
    if request.command.version < BARE_WRAPPER_VERSION:
        return RegisterBrokerBody(
            topicConfigSerializeWrapper=TopicConfigSerializeWrapper.decode(request.body)
        )
    if request.header.compressed:
        return RegisterBrokerBody.decode_compressed(request.body, request.command.version)
    return RegisterBrokerBody.decode(request.body)


def encode_standard(route: TopicRouteData) -> bytes:
    """Returns a route as standard JSON, requested by newer clients: keys quoted and sorted, ASCII only."""
    table = msgspec.to_builtins(route, str_keys=True)
    if not route.topicQueueMappingByBroker:  # a mapping may hold numbers that are written in another way
        # 90 us for a topic on 100 brokers, a quarter of what the general way takes.
        data = msgspec.json.encode(table, order="sorted")
        if data.isascii() and DELETE not in data:
            return data.replace(b"/", b"\\/")
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    return text.replace("/", "\\/").encode()
