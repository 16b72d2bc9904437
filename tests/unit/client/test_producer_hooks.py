"""Hooks around each try, and namespaces that the user never sees."""

import asyncio
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster
from tests.unit.client.producing import producing, stored

from turbopump.client.errors import Refused, SendFailed
from turbopump.client.message import Message, MessageQueue, SendStatus
from turbopump.client.observe.hooks import MessageKind, SendContext, SendMode
from turbopump.client.produce.producer import Producer
from turbopump.client.world import World
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.remoting.router import Answer, Request
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import run_virtual

ORDER = Message("orders", b"paid", tags="paid")


class Watch:
    """Remembers what it saw, and adds a property."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def before(self, context: SendContext) -> None:
        assert context.result is None
        context.notes["begun"] = True
        context.properties["traceparent"] = "00-1-2-01"
        self.seen.append(("before", context.attempt, context.queue.broker))

    def after(self, context: SendContext) -> None:
        assert context.notes["begun"]
        failure = type(context.failure).__name__ if context.failure else None
        status = context.result.status if context.result else None
        self.seen.append(("after", context.attempt, failure or status))


class Careless:
    def before(self, context: SendContext) -> None:
        context.properties["note"] = "a\x02b"

    def after(self, context: SendContext) -> None:
        pass


class Broken:
    def before(self, context: SendContext) -> None:
        raise RuntimeError("before")

    def after(self, context: SendContext) -> None:
        raise RuntimeError("after")


def test_hooks_see_every_try_and_may_add_properties(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        watch = Watch()
        async with cluster(brokers=2) as town, producing(town, hooks=[watch, Broken()]) as one:
            await town.create_topic("orders", 1, broker=0)
            await town.create_topic("orders", 1, broker=1)
            await one.send(ORDER)
            assert watch.seen[1] == ("after", 1, SendStatus.SEND_OK)
            assert {message.properties["traceparent"] for message in await stored(town, "orders")} == {
                "00-1-2-01"
            }
            await town.brokers[0].stop()
            watch.seen.clear()
            while not any(entry[1] == 2 for entry in watch.seen):
                await one.send(ORDER)
            first, failed, second, succeeded = watch.seen[-4:]
            assert (first[0], failed[0], second[0]) == ("before", "after", "before")
            assert (first[2], second[2]) == ("broker-a", "broker-b")
            assert succeeded == ("after", 2, SendStatus.SEND_OK)

    run_virtual(scene())
    assert "The hook" in caplog.text


def test_properties_that_cannot_be_sent_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[Careless()]) as one:
            assert (await one.send(ORDER)).status is SendStatus.SEND_OK

    run_virtual(scene())
    assert "Ignoring properties" in caplog.text


def test_hooks_see_refusals_batches_and_oneway_sends() -> None:
    contexts: list[SendContext] = []

    class Keep:
        def before(self, context: SendContext) -> None:
            pass

        def after(self, context: SendContext) -> None:
            contexts.append(context)

    async def scene() -> None:
        async with cluster() as town, producing(town, hooks=[Keep()]) as one:
            await town.create_topic("orders", 1)
            with pytest.raises(Refused):
                await one.send(ORDER, queue=MessageQueue("orders", "broker-a", 9))
            await one.send_oneway(Message("orders", b"x", delay_level=1))
            await one.send_batch([ORDER, ORDER])
            with pytest.raises(SendFailed):
                await one.send(ORDER, queue=MessageQueue("orders", "broker-z", 0))
            refused, oneway, batch = contexts
            assert isinstance(refused.failure, Refused)
            assert (oneway.mode, oneway.kind, oneway.result) == (SendMode.ONEWAY, MessageKind.DELAY, None)
            assert (len(batch.messages), batch.kind) == (2, MessageKind.NORMAL)
            assert batch.result is not None

    run_virtual(scene())


@virtual
async def test_a_namespace_is_on_the_wire_and_nowhere_else() -> None:
    async with cluster() as town:
        await town.create_topic("shop%orders")
        async with producing(town, namespace="shop") as one:
            receipt = await one.send(ORDER)
            assert receipt.queue.topic == "orders"
            queues = await one.queues("orders")
            assert {queue.topic for queue in queues} == {"orders"}
            assert (await one.send(ORDER, queue=queues[3])).queue == queues[3]
            assert (await one.send(ORDER, by="A-1")).queue in queues
            results = await one.send_batch([ORDER, ORDER], queue=queues[0])
            assert {result.queue for result in results} == {queues[0]}
            await one.send_oneway(ORDER)
            await town.clock.sleep(5)
            found = await stored(town, "shop%orders")
            assert len(found) == 6
            assert {message.properties["INSTANCE_ID"] for message in found} == {"shop"}
            producers = await town.admin.connections.all_producers(town.brokers[0].address)
            assert "shop%makers" in producers


@virtual
async def test_replies_keep_their_own_topic_in_a_namespace() -> None:
    async with cluster() as town, producing(town, namespace="shop") as one:
        await town.create_topic("shop%questions", queues=1)
        asked = asyncio.create_task(one.request(Message("questions", b"?")))
        await town.clock.sleep(1)
        (question,) = await stored(town, "shop%questions")
        await one.reply(question, b"!")
        assert (await asked).body == b"!"


@virtual
async def test_a_namespace_in_the_new_way_goes_with_every_request() -> None:
    seen: dict[int, list[dict[str, str]]] = {}

    def note(request: Request[None], answer: Answer) -> Answer:
        seen.setdefault(request.command.code, []).append(dict(request.command.ext or {}))
        return answer

    async with cluster() as town:
        address = await town.play(
            20911,
            {
                RequestCode.SEND_MESSAGE_V2: lambda request: note(
                    request, Answer({"msgId": "X", "queueId": "0", "queueOffset": "0"})
                ),
                RequestCode.HEART_BEAT: lambda request: note(request, Answer()),
                RequestCode.UNREGISTER_CLIENT: lambda request: note(request, Answer()),
            },
        )
        queue = bodies.QueueData(brokerName="played", perm=6, readQueueNums=1, writeQueueNums=1)
        broker = bodies.BrokerData(brokerAddrs={0: address}, brokerName="played", cluster="c")
        route = bodies.TopicRouteData(brokerDatas=[broker], queueDatas=[queue]).encode()
        played = await town.play(
            20876,
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda request: note(request, Answer(body=route)),
            },
        )
        world = World(town.network, town.clock, Chance(1))
        async with Producer("makers", name_servers=played, world=world, namespace_v2="tenant") as one:
            assert (await one.send(ORDER)).queue.broker == "played"
            await town.clock.sleep(5)
    assert set(seen) == {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    }
    for requests in seen.values():
        assert {(ext["nsd"], ext["ns"]) for ext in requests} == {("true", "tenant")}


@virtual
async def test_unit_mode_is_told_to_the_broker() -> None:
    async with cluster() as town, producing(town, unit_mode=True) as one:
        assert (await one.send(ORDER)).status is SendStatus.SEND_OK
        sender = one._sender
        assert sender is not None
        assert sender.packer.template("orders").fields["k"] == "true"
