import pickle
from typing import Any

import pytest
from tests.unit.client.kit import BROKER_A, BROKER_B, NAMESRV, Cluster, routes_to, stored

from turbopump.client.errors import SendFailed, SendRefused
from turbopump.client.message import Message, SendResult, SendStatus
from turbopump.client.name_servers import NameServers
from turbopump.client.produce.sender import Sender
from turbopump.client.routes import RoundRobin, RouteCache
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, reply
from turbopump.protocol.errors import AccessRefused, MessageIllegal, ServiceNotAvailable, TopicNotFound
from turbopump.protocol.ids import UniqueIds
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock, run_virtual

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def cluster_of(topics: dict[str, int], **brokers: str) -> Cluster:
    cluster = Cluster()
    cluster.on(NAMESRV, ROUTE, routes_to(topics, brokers))
    return cluster


def send(cluster: Cluster, message: Message, **options: Any) -> SendResult:
    async def once() -> SendResult:
        clock, chance = VirtualClock(), Chance(1)
        ids = UniqueIds("10.0.0.1", 1, clock.now_ms)
        producer = Sender(
            cluster, RouteCache(NameServers(cluster, [NAMESRV], chance)), clock, ids, RoundRobin(chance)
        )
        return await producer.send(message, **options)

    return run_virtual(once())


def sent(cluster: Cluster) -> list[Command]:
    return [request for _, request in cluster.asked if request.code == SEND]


def test_a_send_returns_where_the_message_is_and_its_receipt() -> None:
    cluster = cluster_of({"t": 1}, a=BROKER_A)
    cluster.on(BROKER_A, SEND, stored)
    result = send(cluster, Message("t", b"body", tags="x", keys=("k1", "k2")))
    assert result.status is SendStatus.SEND_OK
    assert (result.queue.broker, result.queue.id, result.offset) == ("a", 0, 7)
    assert (result.durability, result.replicas) == ("memory", 1)
    (request,) = sent(cluster)
    assert request.body == b"body"
    own = properties.parse((request.ext or {})["i"])
    assert own["TAGS"] == "x"
    assert own["KEYS"] == "k1 k2"
    assert own["UNIQ_KEY"] == result.message_id


def test_an_apache_broker_gives_no_receipt() -> None:
    cluster = cluster_of({"t": 1}, a=BROKER_A)
    ext = {"msgId": "X", "queueId": "0", "queueOffset": "1"}
    cluster.on(BROKER_A, SEND, lambda request: reply(request, 10, ext=ext))
    result = send(cluster, Message("t", b"x"))
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert result.durability is None


def test_a_dead_broker_costs_one_try_and_the_key_stays() -> None:
    cluster = cluster_of({"t": 1}, a=BROKER_A, b=BROKER_B)
    cluster.on(BROKER_B, SEND, stored)
    for _ in range(4):
        cluster.asked.clear()
        assert send(cluster, Message("t", b"x")).queue.broker == "b"
        keys = {properties.find((request.ext or {})["i"], "UNIQ_KEY") for request in sent(cluster)}
        assert len(keys) == 1


def test_a_refusal_that_another_broker_would_repeat_is_final() -> None:
    cluster = cluster_of({"t": 1}, a=BROKER_A, b=BROKER_B)
    for broker in (BROKER_A, BROKER_B):
        cluster.on(broker, SEND, lambda request: reply(request, 13, "too long"))
    with pytest.raises(MessageIllegal):
        send(cluster, Message("t", b"x"))
    assert len(sent(cluster)) == 1


def test_the_only_broker_is_tried_until_another_process_is_its_master() -> None:
    cluster = cluster_of({"t": 1}, a=BROKER_A)
    answers = iter([14] * 8)
    cluster.on(
        BROKER_A,
        SEND,
        lambda request: (
            reply(request, code, "not the leader") if (code := next(answers, 0)) else stored(request)
        ),
    )
    assert send(cluster, Message("t", b"x")).status is SendStatus.SEND_OK
    assert len(sent(cluster)) == 9


def test_after_three_tries_every_one_of_them_is_told() -> None:
    cluster = cluster_of({"t": 1}, a=BROKER_A, b=BROKER_B)
    for broker in (BROKER_A, BROKER_B):
        cluster.on(broker, SEND, lambda request: reply(request, 14, "disk full"))
    with pytest.raises(SendFailed) as raised:
        send(cluster, Message("t", b"x"))
    assert len(sent(cluster)) == len(raised.value.tries) == 3
    assert raised.value.code == 14
    assert isinstance(raised.value.__cause__, ServiceNotAvailable)
    assert [one.broker for one in raised.value.tries] in (["a", "b", "a"], ["b", "a", "b"])


def test_a_topic_nobody_has_is_sent_after_the_pattern() -> None:
    cluster = cluster_of({"TBW102": 8}, a=BROKER_A)
    cluster.on(BROKER_A, SEND, stored)
    assert send(cluster, Message("new", b"x")).queue.id < 4
    (request,) = sent(cluster)
    assert (request.ext or {})["c"] == "TBW102"


def test_without_a_pattern_an_unknown_topic_is_refused() -> None:
    with pytest.raises(TopicNotFound):
        send(cluster_of({}, a=BROKER_A), Message("new", b"x"))


def test_no_time_no_try() -> None:
    cluster = cluster_of({"t": 1}, a=BROKER_A)
    with pytest.raises(TimeoutError):
        send(cluster, Message("t", b"x"), timeout_s=0)


def refused(request: Command) -> Command:
    return reply(request, 16, "check signature failed.")


def test_a_send_that_access_control_refuses_is_not_repeated_at_the_same_broker() -> None:
    cluster = cluster_of({"t": 4}, a=BROKER_A)
    cluster.on(BROKER_A, SEND, refused)
    with pytest.raises(SendRefused, match="What to do: secret_key must be the secret") as caught:
        send(cluster, Message("t", b"x"))
    assert isinstance(caught.value, AccessRefused)
    assert (caught.value.code, caught.value.remark) == (16, "check signature failed.")
    assert len(sent(cluster)) == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (SendRefused, str(caught.value))


def test_a_send_that_access_control_refuses_goes_to_a_broker_that_knows_the_user() -> None:
    cluster = cluster_of({"t": 4}, a=BROKER_A, b=BROKER_B)
    cluster.on(BROKER_A, SEND, refused)
    cluster.on(BROKER_B, SEND, stored)
    assert send(cluster, Message("t", b"x")).queue.broker == "b"
    assert len(sent(cluster)) <= 2
    cluster.on(BROKER_B, SEND, refused)
    cluster.asked.clear()
    with pytest.raises(SendRefused):
        send(cluster, Message("t", b"x"))
    assert len(sent(cluster)) == 2
