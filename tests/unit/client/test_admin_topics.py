"""Topics, brokers and name servers of Apache 4.9 as well as of 5.x, through `client.admin`."""

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.client.kit import BROKER_A, BROKER_B, NAMESRV, Cluster, routes_to

from turbopump.client.admin.brokers import Brokers
from turbopump.client.admin.calls import AdminCalls, NotFound
from turbopump.client.admin.clusters import BrokerNotFound, ClusterNotFound, Clusters
from turbopump.client.admin.connections import Connections, NobodyOnline
from turbopump.client.admin.groups import Groups
from turbopump.client.admin.name_servers import NameServerSettings
from turbopump.client.admin.topics import Topics, pack_changes
from turbopump.protocol.bodies import (
    BrokerData,
    ClientConnection,
    ClusterInfo,
    ConsumerConnection,
    ProducerConnection,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
    WireQueue,
)
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.errors import BrokenBody, TopicNotFound
from turbopump.runtime.chance import Chance

TABLE = TopicConfigSerializeWrapper(
    topicConfigTable={
        name: TopicConfig(topicName=name, readQueueNums=3, perm=perm)
        for name, perm in {
            "orders": 6,
            "sealed": 0,
            "TBW102": 7,
            "mine": 6,
            "%RETRY%readers": 6,
            "%DLQ%readers": 2,
        }.items()
    }
)


def answering(body: bytes) -> Callable[[Command], Command]:
    return lambda request: reply(request, body=body)


def unsupported(request: Command) -> Command:
    return reply(request, 3, f" request type {request.code} not supported")


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    brokers = {"broker-a": BROKER_A, "broker-b": BROKER_B}
    routes = routes_to({"orders": 2, "%RETRY%readers": 1}, brokers)
    cluster.on(NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, routes)
    return cluster


def asking(cluster: Cluster) -> AdminCalls:
    return AdminCalls(cluster, [NAMESRV], Chance(1))


def test_a_broker_of_4_9_is_asked_for_all_topics_where_one_is_wanted(cluster: Cluster) -> None:
    cluster.on(BROKER_A, RequestCode.GET_TOPIC_CONFIG, unsupported)
    cluster.on(BROKER_A, RequestCode.GET_ALL_TOPIC_CONFIG, answering(TABLE.encode()))
    topics = Topics(asking(cluster))
    assert asyncio.run(topics.config(BROKER_A, "orders")).readQueueNums == 3
    with pytest.raises(TopicNotFound):
        asyncio.run(topics.config(BROKER_A, "nowhere"))


def test_a_broker_of_5_x_is_asked_for_the_one_topic(cluster: Cluster) -> None:
    config = TopicConfig(topicName="orders", writeQueueNums=5)
    cluster.on(BROKER_A, RequestCode.GET_TOPIC_CONFIG, answering(config.encode()))
    assert asyncio.run(Topics(asking(cluster)).config(BROKER_A, "orders")).writeQueueNums == 5


def test_lists_are_created_one_by_one_where_a_broker_cannot_take_them_at_once(cluster: Cluster) -> None:
    for code in (
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    ):
        cluster.on(BROKER_A, code, unsupported)
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP):
        cluster.on(BROKER_A, code, reply)
    topics = Topics(asking(cluster))
    asyncio.run(topics.create_all(BROKER_A, [TopicConfig(topicName="a"), TopicConfig(topicName="b")]))
    assert cluster.times_asked(RequestCode.UPDATE_AND_CREATE_TOPIC) == 2
    groups = Groups(asking(cluster), topics, Connections(asking(cluster), topics))
    asyncio.run(groups.create_all(BROKER_A, [SubscriptionGroupConfig(groupName="a")]))
    assert cluster.times_asked(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP) == 1


def test_creating_sends_all_that_both_lines_of_brokers_want(cluster: Cluster) -> None:
    cluster.on(BROKER_A, RequestCode.UPDATE_AND_CREATE_TOPIC, reply)
    config = TopicConfig(topicName="orders", attributes={"+a": "b", "-c": ""}, order=True)
    asyncio.run(Topics(asking(cluster)).create(BROKER_A, config))
    (_, sent) = cluster.asked[-1]
    assert sent.ext == {
        "topic": "orders",
        "defaultTopic": "TBW102",
        "readQueueNums": "16",
        "writeQueueNums": "16",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "true",
        "attributes": "+a=b,-c",
    }
    assert pack_changes({}) == ""


def test_user_topics_are_those_of_no_system(cluster: Cluster) -> None:
    cluster.on(BROKER_A, RequestCode.GET_ALL_TOPIC_CONFIG, answering(TABLE.encode()))
    system = TopicList(topicList=["mine"])
    cluster.on(BROKER_A, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, answering(system.encode()))
    topics = Topics(asking(cluster))
    assert list(asyncio.run(topics.user_configs(BROKER_A)).topicConfigTable) == ["orders"]
    with_special = asyncio.run(topics.user_configs(BROKER_A, with_retry_and_dead_letters=True))
    assert set(with_special.topicConfigTable) == {"orders", "%RETRY%readers", "%DLQ%readers"}


def test_the_stats_of_a_topic_are_those_of_all_its_brokers(cluster: Cluster) -> None:
    for name, address, tps in (("broker-a", BROKER_A, 1.5), ("broker-b", BROKER_B, None)):
        table = TopicStatsTable({WireQueue(name, 0, "orders"): TopicOffset(maxOffset=7)}, tps)
        cluster.on(address, RequestCode.GET_TOPIC_STATS_INFO, answering(table.encode()))
    stats = asyncio.run(Topics(asking(cluster)).stats("orders"))
    assert [queue.brokerName for queue in sorted(stats.offsetTable)] == ["broker-a", "broker-b"]
    assert stats.topicPutTps == 1.5  # 4.9 tells none


def test_a_topic_that_no_broker_tells_anything_of(cluster: Cluster) -> None:
    for address in (BROKER_A, BROKER_B):
        cluster.on(address, RequestCode.GET_TOPIC_STATS_INFO, answering(TopicStatsTable().encode()))
    with pytest.raises(NotFound):
        asyncio.run(Topics(asking(cluster)).stats("orders"))


def test_the_layout_of_clusters(cluster: Cluster) -> None:
    info = ClusterInfo(
        brokerAddrTable={
            "broker-b": BrokerData(brokerName="broker-b", brokerAddrs={1: BROKER_B, 0: BROKER_A}),
            "alone": BrokerData(brokerName="alone", brokerAddrs={2: "127.0.0.1:5"}),
        },
        clusterAddrTable={"C": ["broker-b", "gone"], "D": ["alone"]},
    )
    cluster.on(NAMESRV, RequestCode.GET_BROKER_CLUSTER_INFO, answering(info.encode()))
    layout = asyncio.run(Clusters(asking(cluster)).layout())
    assert layout.clusters == ["C", "D"]
    assert [broker.address for broker in layout.of_cluster("C")] == [BROKER_A, BROKER_B]
    assert layout.masters("C") == [BROKER_A]
    assert layout.masters("D") == []
    assert layout.master_of("broker-b") == BROKER_A
    assert layout.name_at(BROKER_B) == "broker-b"
    with pytest.raises(ClusterNotFound):
        layout.masters("E")
    for missing in (lambda: layout.master_of("alone"), lambda: layout.name_at("127.0.0.1:6")):
        with pytest.raises(BrokerNotFound):
            missing()


def test_order_is_set_for_one_broker_and_kept_for_the_others(cluster: Cluster) -> None:
    values = {"steps": "broker-a:4;broker-b:4"}
    cluster.on(
        NAMESRV,
        RequestCode.GET_KV_CONFIG,
        lambda request: reply(request, ext={"value": values["steps"]}) if values else reply(request, 22),
    )

    def put(request: Command) -> Command:
        values["steps"] = (request.ext or {})["value"]
        return reply(request)

    cluster.on(NAMESRV, RequestCode.PUT_KV_CONFIG, put)
    settings = NameServerSettings(asking(cluster))
    assert asyncio.run(settings.put_order("steps", "broker-b", 8)) == "broker-a:4;broker-b:8"
    values.clear()
    assert asyncio.run(settings.put_order("steps", "broker-a", 2)) == "broker-a:2"
    values.clear()
    assert asyncio.run(settings.value("ORDER_TOPIC_CONFIG", "steps")) is None


def test_a_configuration_that_is_no_properties_text(cluster: Cluster) -> None:
    cluster.on(BROKER_A, RequestCode.GET_BROKER_CONFIG, answering(b"a=b\nc=\\u12"))
    with pytest.raises(BrokenBody):
        asyncio.run(Brokers(asking(cluster)).config(BROKER_A))


def test_members_of_a_group_are_looked_for_at_every_broker(cluster: Cluster) -> None:
    online = ClientConnection(clientId="c", clientAddr="127.0.0.1:1")
    cluster.on(
        BROKER_A, RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda request: reply(request, 206, "none")
    )
    cluster.on(
        BROKER_B,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        answering(ConsumerConnection(connectionSet=[online]).encode()),
    )
    cluster.on(
        BROKER_A, RequestCode.GET_PRODUCER_CONNECTION_LIST, lambda request: reply(request, 1, "not exist")
    )
    cluster.on(
        BROKER_B,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        answering(ProducerConnection(connectionSet=[online]).encode()),
    )
    topics = Topics(asking(cluster))
    connections = Connections(asking(cluster), topics)
    assert asyncio.run(connections.consumers("readers")).connectionSet == [online]
    assert asyncio.run(connections.producers("makers", "orders")).connectionSet == [online]
    with pytest.raises(NobodyOnline, match="no broker knows a consumer group strangers"):
        asyncio.run(connections.consumers("strangers"))
