import tracemalloc
from typing import Any

import pytest
from tests.unit.namesrv.routes_kit import broker, topic, topics, version

from turbopump.namesrv.routes import (
    MAX_ROUTES,
    BrokerRegistration,
    MinBrokerIdChange,
    RemovedBrokers,
    TopicRouteTable,
    in_zone,
)
from turbopump.protocol.bodies import QueueData, TopicRouteData
from turbopump.protocol.errors import SystemFailure


def queues_of(routes: TopicRouteTable, name: str) -> dict[str, QueueData]:
    route = routes.route(name)
    return {queue.brokerName: queue for queue in route.queueDatas} if route else {}


def addresses_of(routes: TopicRouteTable, name: str) -> dict[str, dict[int, str]]:
    route = routes.route(name)
    return {data.brokerName: data.brokerAddrs for data in route.brokerDatas} if route else {}


# Registering


def test_a_registered_broker_is_routed_to() -> None:
    routes = TopicRouteTable()
    routes.register(broker("a"), "connection", 0)
    routes.register(broker("b", topics=topics("T", "U", queues=8)), "other", 0)
    assert addresses_of(routes, "T") == {"a": {0: "10.0.0.97:10911"}, "b": {0: "10.0.0.98:10911"}}
    assert {name: queue.writeQueueNums for name, queue in queues_of(routes, "T").items()} == {"a": 4, "b": 8}
    assert routes.route("nobody's") is None
    assert sorted(routes.topics()) == ["T", "TBW102", "U"]


def test_a_single_topic_from_an_unknown_id_is_refused_and_leaves_no_trace() -> None:
    routes = TopicRouteTable()
    with pytest.raises(SystemFailure, match="register broker failed"):
        routes.register(broker(topics=topics("T")), 1, 0)
    assert routes.clusters().brokerAddrTable == {}
    routes.register(broker(topics={}), 1, 0)
    routes.register(broker(topics=topics("T")), 1, 0)
    assert routes.topics() == ["T"]
    with pytest.raises(SystemFailure):
        routes.register(broker(number=1, topics=topics("T")), 1, 0)


def test_topics_are_merged_not_replaced() -> None:
    routes = TopicRouteTable()
    routes.register(broker(), 1, 0)
    routes.register(broker(topics=topics("NEW"), version=version(2)), 1, 0)
    assert sorted(routes.topics()) == ["NEW", "T", "TBW102"]


def test_with_deletion_on_the_whole_table_replaces_and_a_change_of_some_topics_does_not() -> None:
    routes = TopicRouteTable(delete_topic_with_registration=True)
    routes.register(broker(topics=topics("SELF_TEST_TOPIC", "T", "U", "V")), 1, 0)
    routes.register(broker(topics=topics("W"), version=version(2)), 1, 0)
    routes.register(broker(topics=topics("T", "X"), version=version(3)), 1, 0)
    assert sorted(routes.topics()) == ["SELF_TEST_TOPIC", "T", "U", "V", "W", "X"]
    routes.register(broker(topics=topics("SELF_TEST_TOPIC", "T", "W"), version=version(4)), 1, 0)
    assert sorted(routes.topics()) == ["SELF_TEST_TOPIC", "T", "W"]


def test_the_largest_table_fits_into_memory() -> None:
    routes = TopicRouteTable()
    many = {f"a-topic-with-a-longer-name-{number}": topic("T") for number in range(5000)}
    tracemalloc.start()
    try:
        routes.register(broker(topics=many), 1, 0)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    names = 80 * len(many)  # made before the measurement
    assert (used + names) / len(many) * MAX_ROUTES < 512 * 2**20


def test_queues_change_only_with_the_data_version() -> None:
    routes = TopicRouteTable()
    routes.register(broker(), 1, 0)
    routes.register(broker(topics=topics("T", "TBW102", queues=16)), 1, 0)
    assert queues_of(routes, "T")["a"].readQueueNums == 4
    routes.register(broker(topics=topics("T", "TBW102", queues=16), version=version(2)), 1, 0)
    assert queues_of(routes, "T")["a"].readQueueNums == 16


def test_a_topic_that_was_deleted_comes_back_with_the_next_registration() -> None:
    routes = TopicRouteTable()
    routes.register(broker(), 1, 0)
    routes.delete_topic("T")
    assert routes.route("T") is None
    routes.register(broker(), 1, 0)
    assert routes.route("T") is not None


def test_a_slave_learns_its_master_and_tells_no_topics() -> None:
    routes = TopicRouteTable()
    routes.register(broker(), 1, 0)
    registered = routes.register(broker(number=1, topics=topics("S", "R")), 2, 0)
    assert (registered.master_address, registered.ha_address) == ("10.0.0.97:10911", "ha-a-0")
    assert routes.route("S") is None
    assert addresses_of(routes, "T") == {"a": {0: "10.0.0.97:10911", 1: "10.0.0.97:10921"}}
    assert routes.register(broker(), 1, 0).master_address is None


def test_an_address_has_one_id() -> None:
    routes = TopicRouteTable()
    routes.register(broker(number=1, address="x:1"), 1, 0)
    routes.register(broker(number=0, address="x:1"), 1, 0)
    assert routes.members("a") == {0: "x:1"}


def test_an_older_state_does_not_take_an_id_from_a_newer_one() -> None:
    routes = TopicRouteTable()
    routes.register(broker(address="new:1", version=version(state=5)), 1, 0)
    assert routes.register(broker(address="old:1", version=version(state=4)), 2, 0).ignored
    assert routes.members("a") == {0: "new:1"}
    assert not routes.register(broker(address="newer:1", version=version(state=5)), 3, 0).ignored
    assert routes.members("a") == {0: "newer:1"}


def test_brokers_and_routes_are_bounded() -> None:
    routes = TopicRouteTable(max_brokers=2, max_routes=5)
    routes.register(broker("a"), 1, 0)
    routes.register(broker("b"), 1, 0)
    with pytest.raises(SystemFailure, match="2 brokers"):
        routes.register(broker("c"), 1, 0)
    with pytest.raises(SystemFailure, match="5 routes"):
        routes.register(broker("a", topics=topics("U", "V")), 1, 0)
    routes.unregister("C", "b", "10.0.0.98:10911")
    routes.register(broker("a", topics=topics("U", "V")), 1, 0)


def test_a_broker_registers_again_when_the_table_is_full_of_its_own_topics() -> None:
    routes = TopicRouteTable(max_routes=3)
    routes.register(broker(topics=topics("T", "U", "V")), 1, 0)
    routes.register(broker(topics=topics("T", "U", "V", queues=8), version=version(2)), 1, 100_000)
    assert queues_of(routes, "V")["a"].readQueueNums == 8
    assert routes.expire(200_000) == RemovedBrokers()


def test_a_living_broker_whose_new_topics_do_not_fit_keeps_those_it_has() -> None:
    routes = TopicRouteTable(max_routes=3)
    routes.register(broker(), "old", 0)
    with pytest.raises(SystemFailure, match="3 routes"):
        routes.register(broker(topics=topics("T", "U", "V"), version=version(2)), "new", 100_000)
    assert routes.version_of("C", "10.0.0.97:10911") == version()
    assert routes.disconnected("old") == RemovedBrokers()
    assert routes.expire(200_000) == RemovedBrokers()
    assert routes.topics() == ["T", "TBW102"]
    assert routes.disconnected("new").brokers == ("a",)


def test_a_refused_broker_does_not_keep_the_name_alive_that_its_address_had_before() -> None:
    routes = TopicRouteTable(max_routes=3)
    routes.register(broker("a", address="x:1"), 1, 0)
    with pytest.raises(SystemFailure):
        routes.register(broker("b", address="x:1"), 1, 100_000)
    assert routes.expire(200_000).brokers == ("a",)


def test_a_topic_added_alone_does_not_go_beyond_the_bound() -> None:
    routes = TopicRouteTable(max_routes=3)
    routes.register(broker(), 1, 0)
    queue = QueueData(brokerName="a", perm=6, readQueueNums=1, topicSysFlag=0, writeQueueNums=1)
    routes.add_topic("X", [queue, queue])
    routes.add_topic("X", [queue])
    with pytest.raises(SystemFailure, match="3 routes"):
        routes.add_topic("Y", [queue])
    assert routes.topics() == ["T", "TBW102", "X"]


# Leaving


def test_with_its_last_address_a_broker_takes_its_topics_and_cluster() -> None:
    routes = TopicRouteTable()
    routes.register(broker(), 1, 0)
    routes.register(broker(number=1), 2, 0)
    assert routes.unregister("C", "a", "10.0.0.97:10911").brokers == ("a",)
    assert routes.members("a") == {1: "10.0.0.97:10921"}
    assert queues_of(routes, "T")["a"].perm == 6
    routes.unregister("C", "a", "10.0.0.97:10921")
    assert routes.topics() == []
    assert routes.clusters().clusterAddrTable == {}
    assert routes.clusters().brokerAddrTable == {}


def test_an_unknown_address_leaves_nothing_behind_and_changes_nothing() -> None:
    routes = TopicRouteTable()
    routes.register(broker(), 1, 0)
    assert routes.unregister("zz", "zz", "1.1.1.1:1") == RemovedBrokers()
    assert routes.unregister("C", "a", "1.1.1.1:1") == RemovedBrokers()
    assert routes.members("a") == {0: "10.0.0.97:10911"}


def test_a_silent_broker_expires_after_its_own_time() -> None:
    routes = TopicRouteTable()
    routes.register(broker("a"), "ca", 0)
    routes.register(broker("b", timeout_ms=10_000), "cb", 0)
    assert routes.expire(10_000) == RemovedBrokers()
    assert routes.expire(10_001) == RemovedBrokers(brokers=("b",), connections=("cb",))
    assert routes.expire(120_000) == RemovedBrokers()
    assert routes.expire(120_001).brokers == ("a",)
    assert routes.topics() == []


def test_a_heartbeat_or_another_registration_keeps_it_alive() -> None:
    routes = TopicRouteTable()
    routes.register(broker("a"), 1, 0)
    routes.register(broker("b"), 1, 0)
    routes.alive("C", "10.0.0.97:10911", 100_000)
    routes.alive("C", "unknown:1", 100_000)
    routes.register(broker("b"), 1, 100_000)
    assert routes.expire(200_000) == RemovedBrokers()


def test_a_broken_connection_removes_who_registered_on_it_last() -> None:
    routes = TopicRouteTable()
    routes.register(broker("a"), "old", 0)
    routes.register(broker("a"), "new", 0)
    routes.register(broker("b"), "old", 0)
    assert routes.disconnected("old").brokers == ("b",)
    assert routes.members("a") != {}
    assert routes.disconnected("new").brokers == ("a",)


# Acting masters


def acting(number: int, **changes: Any) -> BrokerRegistration:
    return broker(number=number, acting_master=True, **changes)


def test_without_master_the_smallest_slave_is_shown_as_one_read_only() -> None:
    routes = TopicRouteTable(support_acting_master=True)
    routes.register(acting(0), 1, 0)
    routes.register(acting(1), 2, 0)
    routes.register(acting(2), 3, 0)
    routes.unregister("C", "a", "10.0.0.97:10911")
    assert addresses_of(routes, "T") == {"a": {0: "10.0.0.97:10921", 2: "10.0.0.97:10931"}}
    assert queues_of(routes, "T")["a"].perm == 4
    assert routes.members("a") == {1: "10.0.0.97:10921", 2: "10.0.0.97:10931"}
    routes.register(acting(1, topics=topics("T", "U"), version=version(9)), 2, 0)
    assert queues_of(routes, "U")["a"].perm == 4


def test_the_topic_that_brokers_use_to_find_one_another_shows_the_truth() -> None:
    name = "rmq_sys_SYNC_BROKER_MEMBER_a"
    routes = TopicRouteTable(support_acting_master=True)
    routes.register(acting(1, topics=topics(name, "T")), 1, 0)
    assert addresses_of(routes, name) == {"a": {1: "10.0.0.97:10921"}}
    assert addresses_of(routes, "T") == {"a": {0: "10.0.0.97:10921"}}


def test_a_change_of_the_smallest_id_is_told() -> None:
    routes = TopicRouteTable()
    routes.register(acting(2), 1, 0)
    registered = routes.register(acting(1), 2, 0)
    assert registered.notice == MinBrokerIdChange(
        "a", 1, "10.0.0.97:10921", None, "ha-a-1", ("10.0.0.97:10931",)
    )
    [notice] = routes.unregister("C", "a", "10.0.0.97:10921").notices
    assert notice == MinBrokerIdChange(
        "a", 2, "10.0.0.97:10931", "10.0.0.97:10921", "ha-a-1", ("10.0.0.97:10931",)
    )


# Perms and lists


def test_write_perm_is_wiped_and_added_until_the_next_change() -> None:
    routes = TopicRouteTable()
    routes.register(broker(topics={**topics("T"), **topics("TBW102", perm=7)}), 1, 0)
    assert routes.wipe_write_perm("a") == 2
    assert queues_of(routes, "TBW102")["a"].perm == 5
    routes.register(broker(topics={**topics("T"), **topics("TBW102", perm=7)}), 1, 0)
    assert queues_of(routes, "TBW102")["a"].perm == 5
    assert routes.add_write_perm("a") == 2
    assert queues_of(routes, "TBW102")["a"].perm == 6
    routes.register(broker(topics={**topics("T"), **topics("TBW102", perm=7)}, version=version(2)), 1, 0)
    assert queues_of(routes, "TBW102")["a"].perm == 7
    assert (routes.wipe_write_perm("zz"), routes.add_write_perm("zz")) == (0, 0)


def test_a_route_given_out_does_not_change_afterwards() -> None:
    routes = TopicRouteTable()
    routes.register(broker(), 1, 0)
    before = routes.route("T")
    assert before is not None
    routes.wipe_write_perm("a")
    routes.register(broker(number=1), 1, 0)
    assert before.queueDatas[0].perm == 6
    assert before.brokerDatas[0].brokerAddrs == {0: "10.0.0.97:10911"}


def test_lists_by_cluster_and_of_system_topics() -> None:
    routes = TopicRouteTable()
    assert routes.system_topics() == ([], None)
    routes.register(broker("a"), 1, 0)
    routes.register(broker("b", cluster="D", topics=topics("T", "D1")), 1, 0)
    assert routes.topics_of("C") == ["T", "TBW102"]
    assert routes.topics_of("D") == ["T", "D1"]
    assert routes.topics_of("zz") == []
    assert routes.system_topics() == (["C", "D", "a", "b"], "10.0.0.97:10911")
    assert routes.clusters().clusterAddrTable == {"C": ["a"], "D": ["b"]}


def test_unit_topics_by_their_flags() -> None:
    routes = TopicRouteTable()
    every = {**topics("plain"), **topics("unit", flag=1), **topics("sub", flag=2), **topics("both", flag=3)}
    routes.register(broker(topics=every), 1, 0)
    assert routes.unit_topics() == ["unit", "both"]
    assert routes.unit_sub_topics() == ["sub", "both"]
    assert routes.unit_sub_ununit_topics() == ["sub"]


def test_deleting_a_topic_in_one_cluster_leaves_the_other() -> None:
    routes = TopicRouteTable()
    routes.register(broker("a"), 1, 0)
    routes.register(broker("b", cluster="D"), 1, 0)
    routes.delete_topic("T", "zz")
    routes.delete_topic("T", "C")
    assert list(queues_of(routes, "T")) == ["b"]
    routes.delete_topic("T")
    routes.delete_topic("unknown")
    assert routes.route("T") is None


def test_one_topic_may_be_added_on_known_brokers_only() -> None:
    routes = TopicRouteTable()
    routes.register(broker(), 1, 0)
    queue = QueueData(brokerName="a", perm=6, readQueueNums=1, topicSysFlag=0, writeQueueNums=1)
    stranger = QueueData(brokerName="zz", perm=6, readQueueNums=1, topicSysFlag=0, writeQueueNums=1)
    routes.add_topic("X", [queue, stranger])
    assert routes.route("X") is None
    routes.add_topic("X", [queue])
    assert queues_of(routes, "X") == {"a": queue}
    routes.add_topic("Y", [])
    assert "Y" not in routes.topics()


def test_filter_servers_and_static_topics_are_handed_on() -> None:
    routes = TopicRouteTable()
    routes.register(broker(filter_servers=("f:1",), mappings={"T": {"totalQueues": 8}}), 1, 0)
    route = routes.route("T")
    assert route is not None
    assert route.filterServerTable == {"10.0.0.97:10911": ["f:1"]}
    assert route.topicQueueMappingByBroker == {"a": {"totalQueues": 8}}
    routes.register(broker(filter_servers=()), 1, 0)
    route = routes.route("T")
    assert route is not None
    assert route.filterServerTable == {}
    routes.unregister("C", "a", "10.0.0.97:10911")
    routes.register(broker(), 1, 0)
    route = routes.route("T")
    assert route is not None
    assert route.topicQueueMappingByBroker is None


def test_the_mapping_of_a_topic_may_come_after_it_and_without_it_is_not_kept() -> None:
    routes = TopicRouteTable()
    routes.register(broker(mappings={"V": {"totalQueues": 8}}), 1, 0)
    assert not routes._mappings
    routes.register(broker(topics=topics("V")), 1, 0)
    routes.register(broker(topics={}, mappings={"V": {"totalQueues": 8}}, version=version(2)), 1, 0)
    route = routes.route("V")
    assert route is not None
    assert route.topicQueueMappingByBroker == {"a": {"totalQueues": 8}}
    routes.disconnected(1)
    assert not routes._mappings


def test_filter_servers_end_with_the_place_that_named_them() -> None:
    routes = TopicRouteTable()
    for cluster in "CDE":
        routes.register(broker(cluster=cluster, filter_servers=("f:1",)), 1, 0)
    assert routes._filter_servers.keys() == {("E", "10.0.0.97:10911")}
    routes.disconnected(1)
    assert not routes._filter_servers


def test_a_zone_keeps_its_own_brokers_and_those_without_master() -> None:
    routes = TopicRouteTable()
    routes.register(broker("a", zone="z1"), 1, 0)
    routes.register(broker("b", zone="z2"), 1, 0)
    routes.register(broker("c", number=0, zone="z3"), 1, 0)
    routes.register(broker("c", number=1, zone="z3"), 1, 0)
    routes.unregister("C", "c", "10.0.0.99:10911")
    route = routes.route("T")
    assert route is not None
    near: TopicRouteData = in_zone(route, "Z1")
    assert [data.brokerName for data in near.brokerDatas] == ["a", "c"]
    assert [queue.brokerName for queue in near.queueDatas] == ["a", "c"]


def test_mappings_are_bounded_all_together_and_one_that_is_there_may_be_sent_again() -> None:
    routes = TopicRouteTable(max_mapping_bytes=100)
    mapping = {"dname": "x" * 50}
    routes.register(broker(topics=topics("T", "U"), mappings={"T": mapping}), 1, 0)
    for number in (2, 3):
        routes.register(broker(topics=topics("T"), mappings={"T": mapping}, version=version(number)), 1, 0)
    with pytest.raises(SystemFailure, match="100 bytes of mappings"):
        routes.register(broker(topics=topics("U"), mappings={"U": mapping}, version=version(4)), 1, 0)
    assert routes._mappings == {"T": {"a": mapping}}


# Absent brokers


def test_a_broker_that_left_is_absent_from_the_topics_it_had_until_it_is_back() -> None:
    routes = TopicRouteTable()
    routes.register(broker("a"), "one", 0)
    routes.register(broker("b", topics=topics("T", "U")), "two", 0)
    assert routes.absent("T", ["a", "b"]) == []
    routes.disconnected("two")
    assert (routes.absent("T", ["a", "b"]), routes.absent("TBW102", ["a", "b"])) == (["b"], [])
    assert routes.absent("*", []) == ["b"]
    routes.delete_topic("U")
    assert routes.absent("U", []) == []
    routes.register(broker("b"), "three", 0)
    assert routes.absent("T", ["a", "b"]) == []


def test_of_a_known_broker_that_never_registered_here_the_topics_are_unknown() -> None:
    routes = TopicRouteTable()
    routes.register(broker("a"), "one", 0)
    assert routes.absent("T", ["a", "b"]) == ["b"]


def test_an_absent_broker_can_be_forgotten_and_absent_topics_have_a_bound() -> None:
    routes = TopicRouteTable(max_routes=3)
    for name in "ab":
        routes.register(broker(name, topics=topics("T", "U")), name, 0)
        routes.disconnected(name)
    assert routes.absent("T", []) == ["b"]
    routes.forget_absent("b")
    assert routes.absent("T", []) == []
