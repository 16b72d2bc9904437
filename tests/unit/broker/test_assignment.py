"""Queues that the broker divides among the members of a group (400), and the mode of reading (401)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster

from turbopump.broker.groups.assignment import STRATEGIES, averagely, by_circle, readable_queues
from turbopump.client.group import strategies
from turbopump.client.message import MessageQueue as ClientQueue
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import InvalidParameter
from turbopump.remoting.client import Client
from turbopump.testing.loop import run_virtual

GROUP = "readers"


async def beat(town: MemoryCluster, broker: int, client_id: str, client: Client | None = None) -> None:
    data = bodies.ConsumerData(
        groupName=GROUP, subscriptionDataSet=[bodies.SubscriptionData(topic="orders", subString="*")]
    )
    told = bodies.HeartbeatData(clientID=client_id, consumerDataSet=[data])
    hello = request(RequestCode.HEART_BEAT, body=told.encode())
    answer = await (client or town.admin.client).call(town.brokers[broker].address, hello, 3.0)
    assert answer.code == 0


async def call(town: MemoryCluster, broker: int, code: RequestCode, body: bytes) -> Command:
    return await town.admin.client.call(town.brokers[broker].address, request(code, body=body), 3.0)


async def assigned(town: MemoryCluster, client_id: str, broker: int = 0, **fields: str) -> list[str] | None:
    asked = {"clientId": client_id, "consumerGroup": GROUP, "topic": "orders"} | fields
    body = bodies.QueryAssignmentRequestBody(**asked).encode()
    answer = await call(town, broker, RequestCode.QUERY_ASSIGNMENT, body)
    assert answer.code == 0, answer.remark
    found = json.loads(answer.body).get("messageQueueAssignments")
    if found is None:
        return None
    assert {one["mode"] for one in found} <= {"PULL"}
    queues = [one["messageQueue"] for one in found]
    return [f"{queue['brokerName']} {queue['queueId']}" for queue in queues if queue["topic"] == "orders"]


@virtual
async def test_members_get_the_queues_of_all_brokers_whichever_broker_they_ask() -> None:
    async with cluster(brokers=2) as town:
        await town.create_topic("orders", 2, broker=0)
        await town.create_topic("orders", 2, broker=1)
        other = Client(town.network, town.clock)
        for broker in (0, 1):
            await beat(town, broker, "one")
            await beat(town, broker, "two", other)
        for broker in (0, 1):
            assert await assigned(town, "one", broker) == ["broker-a 0", "broker-a 1"]
            assert await assigned(town, "two", broker) == ["broker-b 0", "broker-b 1"]
        circle = await assigned(town, "two", strategyName="AVG_BY_CIRCLE")
        assert circle == ["broker-a 1", "broker-b 1"]
        everything = await assigned(town, "one", messageModel="BROADCASTING")
        assert everything == ["broker-a 0", "broker-a 1", "broker-b 0", "broker-b 1"]
        assert await assigned(town, "stranger") == []
        await other.close()


@virtual
async def test_a_topic_that_nobody_knows_has_no_assignment_until_it_is_there() -> None:
    async with cluster() as town:
        await beat(town, 0, "one")
        assert await assigned(town, "one") is None
        await town.create_topic("orders", 1)
        await town.clock.sleep(6)
        assert await assigned(town, "one") == ["broker-a 0"]


@virtual
async def test_while_the_name_server_is_away_the_last_known_queues_count() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await beat(town, 0, "one")
        assert await assigned(town, "one") == ["broker-a 0"]
        await town.name_server.stop()
        await town.clock.sleep(6)
        assert await assigned(town, "one") == ["broker-a 0"]
        body = bodies.QueryAssignmentRequestBody(clientId="one", consumerGroup=GROUP, topic="other").encode()
        answer = await call(town, 0, RequestCode.QUERY_ASSIGNMENT, body)
        assert answer.code == 1
        assert "cannot find out the queues of topic other" in str(answer.remark)


def test_a_strategy_that_only_clients_know_is_refused_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            asked = bodies.QueryAssignmentRequestBody(
                "one", GROUP, strategyName="CONSISTENT_HASH", topic="orders"
            )
            answer = await call(town, 0, RequestCode.QUERY_ASSIGNMENT, asked.encode())
            assert answer.code == InvalidParameter.CODE
            assert "the strategy must be AVG or AVG_BY_CIRCLE, got CONSISTENT_HASH" in str(answer.remark)
            assert "setClientRebalance(true)" in str(answer.remark)

    run_virtual(scene())
    assert "Consumer one of group readers gets no queues of orders" in caplog.text


@pytest.mark.parametrize(
    ("topic", "group", "mode", "code", "remark"),
    [
        ("orders", GROUP, "PULL", 0, ""),
        ("orders", GROUP, "POP", 29, "POP is not supported by this broker"),
        ("nope", GROUP, "PULL", 17, "Topic nope not exist!"),
        ("orders", GROUP, "pop", 29, "POP is not supported by this broker"),
        ("orders", "new", "PULL", 0, ""),
        ("orders", "no group", "PULL", 26, "Group no group not exist!"),
        ("%RETRY%readers", GROUP, "PULL", 16, "retry topic is not allowed to set mode"),
    ],
)
@virtual
async def test_a_group_can_only_be_set_to_pull(
    topic: str, group: str, mode: str, code: int, remark: str
) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await beat(town, 0, "one")
        wanted = bodies.SetMessageRequestModeRequestBody(consumerGroup=group, mode=mode, topic=topic)
        answer = await call(town, 0, RequestCode.SET_MESSAGE_REQUEST_MODE, wanted.encode())
        assert answer.code == code
        assert remark in (answer.remark or "")


@pytest.mark.parametrize(("mode", "is_there"), [("POP", False), ("PULL", True)])
@virtual
async def test_a_refused_mode_creates_no_group(mode: str, is_there: bool) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        wanted = bodies.SetMessageRequestModeRequestBody(consumerGroup="new", mode=mode, topic="orders")
        await call(town, 0, RequestCode.SET_MESSAGE_REQUEST_MODE, wanted.encode())
        answer = await call(town, 0, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, b"")
        assert (b'"new"' in answer.body) == is_there


def test_only_queues_that_can_be_read_are_divided() -> None:
    data = [
        bodies.QueueData("b", 6, 1, writeQueueNums=4),
        bodies.QueueData("a", 2, 4),
        bodies.QueueData("c", 4, 2),
    ]
    found = readable_queues("T", bodies.TopicRouteData(queueDatas=data))
    assert [(queue.brokerName, queue.queueId) for queue in found] == [("b", 0), ("c", 0), ("c", 1)]


@given(
    st.integers(0, 20),
    st.sets(st.text("abc", min_size=1, max_size=3), max_size=6),
    st.text("abc", max_size=3),
)
def test_the_rules_are_those_of_clients(count: int, members: set[str], me: str) -> None:
    queues = [ClientQueue("T", "b", number) for number in range(count)]
    ordered = sorted(members)
    assert set(STRATEGIES) == {"AVG", "AVG_BY_CIRCLE"}
    assert tuple(averagely(queues, ordered, me)) == strategies.averagely(queues, ordered, me)
    assert tuple(by_circle(queues, ordered, me)) == strategies.by_circle(queues, ordered, me)
