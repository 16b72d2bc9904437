"""The route table stays consistent under any sequence of events."""

from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.properties import examples
from tests.unit.namesrv.routes_kit import broker, topics, version

from turbopump.namesrv.routes import TopicRouteTable, _size
from turbopump.protocol.bodies import QueueData
from turbopump.protocol.errors import SystemFailure

NAMES = st.sampled_from("ab")
IDS = st.integers(0, 2)
CLUSTERS = st.sampled_from("CD")
ADDRESSES = st.sampled_from(["x:1", "x:2", "x:3"])
TOPICS = st.sets(st.sampled_from(["T", "U", "SELF_TEST_TOPIC"]))
CONNECTIONS = st.integers(0, 2)
SERVERS = st.sampled_from([None, (), ("f:1",)])
MAX_ROUTES = 5
VERSIONS = st.builds(version, st.integers(1, 2), st.integers(0, 1))


class Brokers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.routes = TopicRouteTable(
            support_acting_master=True,
            delete_topic_with_registration=True,
            max_brokers=4,
            max_routes=MAX_ROUTES,
        )
        self.now = 0

    @rule(
        name=NAMES,
        number=IDS,
        cluster=CLUSTERS,
        address=ADDRESSES,
        names=TOPICS,
        mapped=TOPICS,
        filter_servers=SERVERS,
        connection=CONNECTIONS,
        version=VERSIONS,
        acting_master=st.sampled_from([None, True, False]),
    )
    def register(
        self, name: str, number: int, names: set[str], mapped: set[str], connection: int, **fields: Any
    ) -> None:
        mappings = {topic: {"totalQueues": 8} for topic in sorted(mapped)}
        registration = broker(
            name, number, topics=topics(*sorted(names)), mappings=mappings, timeout_ms=50, **fields
        )
        try:
            registered = self.routes.register(registration, connection, self.now)
        except SystemFailure:
            return
        if not registered.ignored:
            assert self.routes.members(name)[number] == registration.address

    @rule(cluster=CLUSTERS, name=NAMES, address=ADDRESSES)
    def unregister(self, cluster: str, name: str, address: str) -> None:
        self.routes.unregister(cluster, name, address)
        assert address not in self.routes.members(name).values()

    @rule(connection=CONNECTIONS)
    def disconnect(self, connection: int) -> None:
        self.routes.disconnected(connection)

    @rule(elapsed=st.integers(1, 60))
    def wait(self, elapsed: int) -> None:
        self.now += elapsed
        self.routes.expire(self.now)

    @rule(topic=st.sampled_from("TUV"), names=st.lists(NAMES))
    def add_topic(self, topic: str, names: list[str]) -> None:
        queues = [
            QueueData(brokerName=name, perm=6, readQueueNums=1, topicSysFlag=0, writeQueueNums=1)
            for name in names
        ]
        with suppress(SystemFailure):
            self.routes.add_topic(topic, queues)

    @rule(topic=st.sampled_from("TU"), cluster=st.sampled_from([None, "C", "D"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.routes.delete_topic(topic, cluster)

    @rule(name=NAMES, wipe=st.booleans())
    def change_perms(self, name: str, wipe: bool) -> None:
        (self.routes.wipe_write_perm if wipe else self.routes.add_write_perm)(name)

    @invariant()
    def everything_that_is_named_exists(self) -> None:
        info = self.routes.clusters()
        assert all(data.brokerAddrs for data in info.brokerAddrTable.values())
        listed = {name for names in info.clusterAddrTable.values() for name in names}
        assert listed == set(info.brokerAddrTable)
        assert all(info.clusterAddrTable.values())
        pairs = 0
        for topic in self.routes.topics():
            route = self.routes.route(topic)
            assert route is not None
            assert [queue.brokerName for queue in route.queueDatas] == [
                data.brokerName for data in route.brokerDatas
            ]
            pairs += len(route.queueDatas)
        assert pairs == self.routes._route_count <= MAX_ROUTES

    @invariant()
    def every_address_can_expire(self) -> None:
        alive = {address for _, address in self.routes._live}
        for data in self.routes.clusters().brokerAddrTable.values():
            assert alive.issuperset(data.brokerAddrs.values())

    @invariant()
    def nothing_is_kept_for_what_is_gone(self) -> None:
        for topic, of_topic in self.routes._mappings.items():
            assert of_topic
            assert of_topic.keys() <= self.routes._topics[topic].keys()
        held = sum(_size(one) for of_topic in self.routes._mappings.values() for one in of_topic.values())
        assert self.routes._mapping_bytes == held
        assert self.routes._filter_servers.keys() <= self.routes._live.keys()


TestBrokers = Brokers.TestCase
TestBrokers.settings = examples(60, stateful_step_count=30)
