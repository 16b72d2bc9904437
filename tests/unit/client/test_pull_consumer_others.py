"""Pull consumers and others: namespaces, files, callbacks, tools, and servers that come and go."""

from collections.abc import Sequence

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster
from tests.unit.client.pulling import QUEUES, all_of, committed, consumer, nothing_known, sent, texts_of

from turbopump.client.admin import END
from turbopump.client.errors import Refused
from turbopump.client.message import MessageQueue
from turbopump.client.observe.hooks import ConsumeContext
from turbopump.client.settings import MessageModel
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.names import retry_topic
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import run_virtual

# Namespaces, broadcasting, SQL


@virtual
async def test_a_namespace_is_on_the_wire_and_not_in_what_the_user_sees() -> None:
    async with cluster() as town:
        await town.create_topic("shop%orders")
        await town.send("shop%orders", b"paid")
        async with consumer(town, namespace="shop") as reader:
            assert reader.assignment() == await reader.queues("orders") == QUEUES
            (message,) = await all_of(reader)
            assert (message.topic, message.queue in QUEUES) == ("orders", True)
            await reader.seek(message.queue, 0)
            assert len(await all_of(reader)) == 1
            assert len((await reader.pull(message.queue, 0)).messages) == 1
            await reader.commit({message.queue: 1})
            assert await reader.committed(message.queue) == 1
            await reader.send_back(message, delay_level=1)
            await reader.subscribe(retry_topic("readers"))
            (again,) = await reader.poll(20)
            assert (again.topic, again.reconsume_times) == ("orders", 1)
        assert "shop%readers" in await town.admin.groups.names()


@virtual
async def test_a_broadcasting_member_reads_everything_and_keeps_its_offsets_in_a_file() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        texts = await sent(town, 8)
        disk = SimulatedDisk(Chance(1), town.clock)
        model = {"message_model": MessageModel.BROADCASTING, "disk": disk}
        for seed in (1, 2):
            async with consumer(town, seed=seed, instance_name=f"m{seed}", **model) as reader:
                assert texts_of(await all_of(reader)) == texts
        assert set(await committed(town)) <= {None, 0}
        async with consumer(town, instance_name="m1", **model) as reader:
            assert await reader.committed(QUEUES[0]) == 2
            assert await reader.poll(1) == []


@virtual
async def test_an_expression_that_brokers_do_not_know_is_refused_at_the_start() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        reader = consumer(town, topics=())
        await reader.subscribe("orders", sql="price > 10")
        with pytest.raises(Refused):
            await reader.start()
        async with consumer(town) as running:
            with pytest.raises(Refused):
                await running.subscribe("orders", sql="price > 10")
            await sent(town, 4)
            assert len(await all_of(running)) == 4  # what was, is still


def test_hooks_hear_of_what_is_given_out() -> None:
    class Hook:
        def __init__(self) -> None:
            self.heard: list[tuple[str, int, bool | None]] = []

        def before(self, context: ConsumeContext) -> None:
            self.heard.append(("before", len(context.messages), context.success))

        def after(self, context: ConsumeContext) -> None:
            self.heard.append(("after", len(context.messages), context.success))
            raise ZeroDivisionError

    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            await sent(town, 3)
            hook = Hook()
            async with consumer(town, hooks=[hook]) as reader:
                await town.clock.sleep(1)
                assert len(await reader.poll(1)) == 3
            assert hook.heard == [("before", 3, None), ("after", 3, True)]

    run_virtual(scene())


# Being called


@virtual
async def test_a_listener_hears_which_queues_there_are_and_which_are_ours() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        heard: list[tuple[object, ...]] = []

        async def listen(*change: object) -> None:
            heard.append(change)

        reader = consumer(town)
        reader.on_queues_changed("orders", listen)
        async with reader:
            await town.clock.sleep(1)
            assert heard == [("orders", QUEUES[:2], QUEUES[:2])]
            config = TopicConfig(topicName="orders", readQueueNums=4, writeQueueNums=4)
            await town.admin.topics.create(town.brokers[0].address, config)
            await town.clock.sleep(35)
            assert heard[-1] == ("orders", QUEUES, QUEUES)


@virtual
async def test_a_scheduled_callback_is_called_for_each_queue_with_the_delay_it_asks_for() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        texts = await sent(town, 8)
        reader = consumer(town, topics=())
        seen: list[str] = []
        calls: list[float] = []

        async def look(queue: MessageQueue) -> float:
            calls.append(town.clock.monotonic())
            result = await reader.pull(queue, await reader.committed(queue) or 0)
            seen.extend(message.text for message in result.messages)
            await reader.commit({queue: result.next_offset})
            return 5

        await reader.schedule("orders", look)
        async with reader:
            await town.clock.sleep(11)
            assert len(calls) == 6
            assert sorted(seen) == texts
        await town.clock.sleep(20)
        assert len(calls) == 6


@virtual
async def test_a_scheduled_callback_that_fails_is_called_again_after_a_second() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        calls: list[float] = []

        async def fail(queue: MessageQueue) -> None:
            calls.append(town.clock.monotonic())
            raise ZeroDivisionError

        async with consumer(town, topics=()) as reader:
            await reader.schedule("orders", fail)
            await town.clock.sleep(2.5)
            assert len(calls) == 3


# What brokers and tools ask


@virtual
async def test_tools_see_the_consumer_and_what_it_holds() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 8)
        async with consumer(town) as reader:
            await town.clock.sleep(1)
            found = await town.admin.connections.consumers("readers")
            assert found.consumeType == "CONSUME_ACTIVELY"
            (member,) = found.connectionSet
            info = await town.admin.groups.running_info("readers", member.clientId)
            assert sorted(MessageQueue.of_wire(queue) for queue in info.mqTable) == list(QUEUES)
            assert sum(one.cachedMsgCount for one in info.mqTable.values()) == 8
            assert reader.is_running


@virtual
async def test_a_tool_can_move_a_running_group() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        texts = await sent(town, 8)
        async with consumer(town) as reader:
            assert len(await all_of(reader)) == 8
            await town.admin.offsets.reset("readers", "orders", 0)
            await town.clock.sleep(1)
            assert texts_of(await all_of(reader)) == texts


@virtual
async def test_a_tool_that_skips_the_backlog_skips_what_is_held_too() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 80)
        async with consumer(town) as reader:
            await town.clock.sleep(1)
            assert reader._member.buffers.count == 80
            await town.admin.offsets.reset_to("readers", "orders", END)
            await town.clock.sleep(1)
            texts = await sent(town, 4, 100)
            assert texts_of(await all_of(reader)) == texts


@virtual
async def test_offsets_that_are_not_there_are_corrected_by_the_broker() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 10)
        async with consumer(town, topics=(), auto_commit=False) as reader:
            await reader.pull(QUEUES[0], 0)  # from then on the broker knows the group
            await reader.commit({QUEUES[0]: 500})
            await reader.assign(QUEUES[:1])
            await town.clock.sleep(1)
            texts = await sent(town, 2, 50)
            assert texts_of(await all_of(reader)) == texts


@virtual
async def test_a_broker_that_was_away_is_read_again() -> None:
    async with cluster(2) as town:
        await town.create_topic("orders", 2, broker=0)
        await town.create_topic("orders", 2, broker=1)
        async with consumer(town) as reader:
            assert len(reader.assignment()) == 4
            await town.brokers[1].stop()
            await town.clock.sleep(5)
            texts = await sent(town, 8)
            assert texts_of(await all_of(reader)) == texts


@virtual
async def test_without_name_servers_reading_goes_on_and_a_new_one_that_knows_nothing_does_no_harm() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 4)
        async with consumer(town) as reader:
            assert len(await all_of(reader)) == 4
            await town.name_server.stop()
            await town.clock.sleep(300)
            await sent(town, 4, 10)
            assert len(await all_of(reader)) == 4
            await town.play(9876, {RequestCode.GET_ROUTEINFO_BY_TOPIC: nothing_known})
            await town.clock.sleep(60)
            await sent(town, 4, 20)
            assert len(await all_of(reader)) == 4
            assert reader.assignment() == QUEUES


@virtual
async def test_a_strategy_that_fails_costs_nothing_that_is_held() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        fails: list[bool] = []

        def strategy(
            queues: Sequence[MessageQueue], members: Sequence[str], me: str
        ) -> tuple[MessageQueue, ...]:
            if fails:
                raise ZeroDivisionError
            return tuple(queues)

        async with consumer(town, allocate_message_queue_strategy=strategy) as reader:
            fails.append(True)
            await town.clock.sleep(60)
            texts = await sent(town, 4)
            assert texts_of(await all_of(reader)) == texts
