"""Tries of a send: which failures are tried again, where, for how long, and what the caller hears at last."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.kit import BROKER_A, BROKER_B, NAMESRV, routes_to, stored
from tests.unit.client.producer_retries_kit import ORDER, ROUTE, SEND, Scene
from tests.unit.client.producing import producing

from turbopump.client.errors import SendFailed, SendTimedOut, TopicUnknown
from turbopump.client.message import Message, MessageQueue, SendResult, SendStatus
from turbopump.client.produce.producer import Producer
from turbopump.client.settings import ProducerSettings
from turbopump.client.world import World
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import MessageIllegal, NoPermission, Refused, SystemBusy
from turbopump.protocol.headers.topics import CreateTopicRequest
from turbopump.remoting.router import Answer, Request
from turbopump.runtime.chance import Chance


def test_each_retry_code_is_tried_at_the_other_broker() -> None:
    for code in ProducerSettings().retry_response_codes:
        scene = Scene()
        scene.answers(BROKER_A, code)
        scene.cluster.on(BROKER_B, SEND, stored)
        assert scene.send().queue.broker == "b"
        assert scene.cluster.tried() == ["a", "b"]


def test_other_refusals_are_final() -> None:
    for code in (13, 29, 15):
        scene = Scene()
        scene.answers(BROKER_A, code, "no")
        scene.cluster.on(BROKER_B, SEND, stored)
        with pytest.raises(Refused) as raised:
            scene.send()
        assert raised.value.code == code
        assert scene.cluster.tried() == ["a"]


def test_the_codes_can_be_chosen() -> None:
    scene = Scene(retry_response_codes=frozenset({13}))
    scene.answers(BROKER_A, 13)
    scene.cluster.on(BROKER_B, SEND, stored)
    assert scene.send().queue.broker == "b"
    scene = Scene(retry_response_codes=frozenset({13}))
    scene.answers(BROKER_A, 2, "busy")
    with pytest.raises(SystemBusy):
        scene.send()


def test_the_number_of_tries_is_a_setting() -> None:
    for retries in (0, 1, 5):
        scene = Scene(retry_times_when_send_failed=retries)
        for broker in (BROKER_A, BROKER_B):
            scene.answers(broker, 14, "disk full")
        with pytest.raises(SendFailed) as raised:
            scene.send()
        assert len(scene.cluster.tried()) == retries + 1 == len(raised.value.tries)
        assert raised.value.code == 14
        assert "disk full" in str(raised.value)


def test_a_broker_that_is_silent_takes_the_whole_time_as_with_apache() -> None:
    scene = Scene()
    scene.cluster.slowness[BROKER_A] = 60.0
    scene.cluster.on(BROKER_B, SEND, stored)
    with pytest.raises(SendTimedOut, match="send_msg_max_timeout_per_request") as raised:
        scene.send()
    assert scene.took == pytest.approx(3.0)
    assert raised.value.code == 10002
    assert scene.cluster.tried() == ["a"]


def test_a_limit_for_each_try_leaves_time_for_the_other_broker() -> None:
    scene = Scene(send_msg_max_timeout_per_request=0.5)
    scene.cluster.slowness[BROKER_A] = 60.0
    scene.cluster.on(BROKER_B, SEND, stored)
    assert scene.send().queue.broker == "b"
    assert scene.took == pytest.approx(0.5)


def test_the_last_try_has_all_the_time_that_is_left() -> None:
    scene = Scene(send_msg_max_timeout_per_request=0.5, retry_times_when_send_failed=1)
    scene.cluster.slowness = {BROKER_A: 60.0, BROKER_B: 2.0}
    scene.cluster.on(BROKER_B, SEND, stored)
    assert scene.send().queue.broker == "b"
    assert scene.took == pytest.approx(2.5)


def test_an_explicit_queue_has_one_try_and_its_refusal_is_told_as_it_is() -> None:
    scene = Scene()
    scene.answers(BROKER_A, 16, "not here")
    with pytest.raises(NoPermission):
        scene.send(queue=MessageQueue("t", "a", 0))
    scene = Scene()
    with pytest.raises(SendFailed):
        scene.send(queue=MessageQueue("t", "a", 0))
    assert set(scene.cluster.tried()) == {"a"}


def test_the_vip_channel_is_two_ports_below() -> None:
    scene = Scene(vip_channel_enabled=True)
    scene.cluster.on("127.0.0.1:10909", SEND, stored)
    assert scene.send(queue=MessageQueue("t", "a", 0)).queue.broker == "a"


def test_stored_but_not_as_asked_is_a_result_unless_one_wants_better() -> None:
    scene = Scene()
    scene.answers(BROKER_A, 11)
    assert scene.send().status is SendStatus.SLAVE_NOT_AVAILABLE
    scene = Scene(retry_another_broker_when_not_store_ok=True)
    scene.answers(BROKER_A, 11)
    scene.cluster.on(BROKER_B, SEND, stored)
    assert scene.send().status is SendStatus.SEND_OK
    assert scene.cluster.tried() == ["a", "b"]


def test_a_weak_result_is_better_than_the_failure_that_follows_it() -> None:
    for code in (13, 14):
        scene = Scene(retry_another_broker_when_not_store_ok=True, retry_times_when_send_failed=1)
        scene.answers(BROKER_A, 10)
        scene.answers(BROKER_B, code)
        result = scene.send()
        assert (result.status, result.queue.broker) == (SendStatus.FLUSH_DISK_TIMEOUT, "a")
        assert scene.cluster.tried() == ["a", "b"]


def test_a_broker_that_failed_gets_nothing_for_a_while() -> None:
    scene = Scene(send_latency_fault_enable=True)
    scene.cluster.on(BROKER_B, SEND, stored)
    scene.send(times=5)
    assert scene.cluster.tried() == ["a", "b", "b", "b", "b", "b"]


def test_without_fault_avoidance_it_gets_its_turn_again() -> None:
    scene = Scene()
    scene.cluster.on(BROKER_B, SEND, stored)
    scene.send(times=3)
    assert scene.cluster.tried().count("a") > 1


# --- with brokers of ours ---------------------------------------------------------------------------------


async def with_topic(town: MemoryCluster) -> None:
    for number in range(len(town.brokers)):
        await town.create_topic("orders", 2, broker=number)
    await town.registered()


@virtual
async def test_one_broker_of_two_goes_down_and_no_caller_hears_of_it() -> None:
    async with cluster(brokers=2) as town, producing(town) as one:
        await with_topic(town)
        assert {(await one.send(Message("orders", b"x"))).queue.broker for _ in range(4)} == {
            "broker-a",
            "broker-b",
        }
        tasks = [one.send_async(Message("orders", b"%d" % number)) for number in range(50)]
        await town.brokers[0].stop()
        results = await asyncio.gather(*tasks)
        for _ in range(100):
            results.append(await one.send(Message("orders", b"y")))
            await town.clock.sleep(0.5)
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        assert {result.queue.broker for result in results[-50:]} == {"broker-b"}


@virtual
async def test_a_first_try_that_ends_otherwise_than_with_success_is_followed_by_others() -> None:
    """Through the producer, whose first try takes a short way."""

    async with cluster() as town:
        script: list[int] = []
        asked: list[str] = []

        def broker(name: str) -> Callable[[Request[None]], Answer]:
            def answer(request: Request[None]) -> Answer:
                asked.append(name)
                place = {"msgId": "X", "queueId": "0", "queueOffset": "0"}
                return Answer(place, code=script.pop(0), remark="so be it")

            return answer

        brokers = {
            "a": await town.play(20911, {SEND: broker("a")}),
            "b": await town.play(20921, {SEND: broker("b")}),
        }

        def route(request: Request[None]) -> Answer:
            return Answer(body=routes_to({"t": 1}, brokers)(request.command).body)

        name_server = await town.play(20876, {ROUTE: route})
        world = World(town.network, town.clock, Chance(1))
        settings: Any = {"retry_another_broker_when_not_store_ok": True}
        async with Producer("makers", name_servers=name_server, world=world, **settings) as one:

            async def send(*codes: int) -> SendResult:
                script[:] = codes
                asked.clear()
                return await one.send(ORDER)

            for _ in range(2):  # from now on there are connections to both
                await send(0)
            for codes in ([14, 0], [10, 0], [2, 1, 0], [11, 14, 0]):
                assert (await send(*codes)).status is SendStatus.SEND_OK
                assert script == []
                assert asked[: len(codes)] in (
                    ["a", "b", "a"][: len(codes)],
                    ["b", "a", "b"][: len(codes)],
                )
            with pytest.raises(MessageIllegal):
                await send(13)
            with pytest.raises(SendFailed) as raised:
                await send(14, 14, 2)
            assert raised.value.code == 2
            assert [one_try.broker for one_try in raised.value.tries] == asked
            assert (await send(12, 10, 11)).status is SendStatus.SLAVE_NOT_AVAILABLE
            assert (await send(12, 13)).status is SendStatus.FLUSH_SLAVE_TIMEOUT


@virtual
async def test_all_name_servers_are_down_for_five_minutes_and_sending_goes_on() -> None:
    async with cluster(brokers=2) as town, producing(town) as one:
        await with_topic(town)
        await one.send(Message("orders", b"x"))
        await town.name_server.stop()
        began = town.clock.monotonic()
        slowest = 0.0
        for number in range(300):
            if number == 150:
                await town.brokers[0].stop()
            before = town.clock.monotonic()
            assert (await one.send(Message("orders", b"x"))).status is SendStatus.SEND_OK
            slowest = max(slowest, town.clock.monotonic() - before)
            await town.clock.sleep(1)
        assert town.clock.monotonic() - began >= 300
        assert slowest < 0.5


@virtual
async def test_a_topic_that_is_new_while_no_name_server_answers_fails_in_time_and_says_why() -> None:
    async with cluster() as town, producing(town) as one:
        await town.name_server.stop()
        with pytest.raises(SendFailed, match="name server") as raised:
            await one.send(Message("orders", b"x"))
        assert raised.value.code == 10004


def test_name_servers_that_are_silent_do_not_take_more_than_the_whole_time() -> None:
    scene = Scene()
    scene.cluster.slowness[NAMESRV] = 2.9
    scene.cluster.slowness[BROKER_A] = 60.0
    with pytest.raises(SendTimedOut):
        scene.send()
    assert scene.took == pytest.approx(3.0)
    scene = Scene()
    scene.cluster.slowness[NAMESRV] = 60.0
    with pytest.raises(SendTimedOut, match="name server"):
        scene.send(timeout_s=2.0)
    assert scene.took == pytest.approx(2.0)


@virtual
async def test_a_topic_that_nobody_may_write_to_is_an_error_until_one_may() -> None:
    async with cluster() as town, producing(town) as one:
        await town.create_topic("orders", 1)
        address = town.brokers[0].address
        header = CreateTopicRequest(1, 1, 4, "SINGLE_TAG", "orders", "TBW102", attributes="")
        await town.admin.asking.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        await town.registered()
        for _ in range(2):
            with pytest.raises(TopicUnknown):
                await one.send(Message("orders", b"x"))
            with pytest.raises(TopicUnknown):
                await one.send_oneway(Message("orders", b"x"))
        await town.create_topic("orders", 1)
        assert (await one.send(Message("orders", b"x"))).status is SendStatus.SEND_OK


def test_a_broker_that_comes_back_elsewhere_is_found_by_the_retry() -> None:
    scene = Scene(retry_times_when_send_failed=1)
    asked = scene.cluster.asked
    moved = "127.0.0.1:20911"

    def route(request: Command) -> Command:
        is_first = sum(1 for _, other in asked if other.code == ROUTE) == 1
        return routes_to({"t": 1}, {"a": BROKER_A if is_first else moved})(request)

    scene.cluster.on(NAMESRV, ROUTE, route)
    scene.cluster.on(moved, SEND, stored)
    assert scene.send().queue.broker == "a"
