"""Whatever brokers do in whatever order, the table stays of one piece."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.namesrv.test_routes import broker, topics, version

from turbopump.namesrv.routes import Routes
from turbopump.protocol.errors import SystemFailure

NAMES = st.sampled_from("ab")
IDS = st.integers(0, 2)
CLUSTERS = st.sampled_from("CD")
ADDRESSES = st.sampled_from(["x:1", "x:2", "x:3"])
TOPICS = st.sets(st.sampled_from(["T", "U", "SELF_TEST_TOPIC"]))
CONNECTIONS = st.integers(0, 2)
VERSIONS = st.builds(version, st.integers(1, 2), st.integers(0, 1))


class Brokers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.routes = Routes(support_acting_master=True, delete_topic_with_registration=True, max_brokers=4)
        self.now = 0

    @rule(
        name=NAMES,
        number=IDS,
        cluster=CLUSTERS,
        address=ADDRESSES,
        names=TOPICS,
        connection=CONNECTIONS,
        version=VERSIONS,
        acting_master=st.sampled_from([None, True, False]),
    )
    def register(self, name: str, number: int, names: set[str], connection: int, **fields: Any) -> None:
        registration = broker(name, number, topics=topics(*sorted(names)), timeout_ms=50, **fields)
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
        assert pairs == self.routes._route_count

    @invariant()
    def every_address_can_expire(self) -> None:
        alive = {address for _, address in self.routes._live}
        for data in self.routes.clusters().brokerAddrTable.values():
            assert alive.issuperset(data.brokerAddrs.values())


TestBrokers = Brokers.TestCase
TestBrokers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
