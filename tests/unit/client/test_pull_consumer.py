"""The pull consumer against a broker in memory, in virtual time."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.admin.kit import NAMESRV, Town, cluster, virtual

from turbopump.client.admin import END
from turbopump.client.errors import InvalidArgument, NoNameServer, NotRunning, Refused
from turbopump.client.hooks import ConsumeContext
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.offsets import GroupOffsets
from turbopump.client.pull import PullStatus
from turbopump.client.pull_consumer import PullConsumer
from turbopump.client.settings import ConsumeFromWhere, MessageModel
from turbopump.client.world import World
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.names import retry_topic
from turbopump.remoting.router import Answer, Request
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
QUEUES = tuple(MessageQueue("orders", "broker-a", number) for number in range(4))


def consumer(town: Town, *, seed: int = 1, group: str = "readers", **settings: Any) -> PullConsumer:
    world = World(town.network, town.clock, Chance(seed))
    wanted: dict[str, Any] = {"topics": ["orders"], "consume_from_where": FIRST} | settings
    return PullConsumer(group, name_servers=NAMESRV, world=world, **wanted)


async def sent(town: Town, count: int, start: int = 0, **message: Any) -> list[str]:
    texts = [f"{number:03}" for number in range(start, start + count)]
    for text in texts:
        await town.send("orders", text.encode(), **message)
    return texts


async def all_of(reader: PullConsumer, timeout: float = 1.0) -> list[MessageExt]:  # noqa: ASYNC109
    found: list[MessageExt] = []
    while messages := await reader.poll(timeout):
        found += messages
    return found


def texts_of(messages: list[MessageExt]) -> list[str]:
    return sorted(message.text for message in messages)


async def committed(town: Town, group: str = "readers") -> list[int | None]:
    offsets = GroupOffsets(town.admin.client, town.admin.routes, group)
    return [await offsets.query(queue) for queue in QUEUES]


def nothing_known(request: Request[None]) -> Answer:
    return Answer({}, code=ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info in name server")


# Subscribing


def test_what_was_sent_and_what_comes_is_polled() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            texts = await sent(town, 20)
            async with consumer(town) as reader:
                assert reader.assignment() == QUEUES
                assert texts_of(await all_of(reader)) == texts
                more = await sent(town, 5, 20)
                assert texts_of(await all_of(reader)) == more

    virtual(scene())


def test_a_poll_gives_messages_of_one_queue_in_order_and_at_most_a_batch() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await sent(town, 40)
            async with consumer(town, pull_batch_size=4) as reader:
                await town.clock.sleep(1)
                batches = [await reader.poll(1) for _ in range(12)]
                assert [len(batch) for batch in batches] == [4] * 8 + [2] * 4
                for batch in batches:
                    assert len({message.queue for message in batch}) == 1
                for queue in QUEUES:
                    seen = [one.offset for batch in batches for one in batch if one.queue == queue]
                    assert seen == list(range(10))
                assert {batch[0].queue for batch in batches[:4]} == set(QUEUES)  # they take turns

    virtual(scene())


def test_a_poll_that_finds_nothing_ends_after_its_timeout() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            async with consumer(town) as reader:
                began_s = town.clock.monotonic()
                assert await reader.poll(2) == []
                assert await reader.poll(0) == []
                assert await reader.poll() == []
                assert town.clock.monotonic() - began_s == pytest.approx(7)

    virtual(scene())


def test_iteration_waits_for_messages_and_ends_when_the_consumer_is_closed() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            texts = await sent(town, 3)
            reader = consumer(town)
            await reader.start()
            seen: list[str] = []

            async def read() -> None:
                seen.extend([message.text async for message in reader])

            reading = asyncio.create_task(read())
            await town.clock.sleep(60)
            texts += await sent(town, 2, 3)
            await town.clock.sleep(1)
            await reader.close()
            await reading
            assert sorted(seen) == texts

    virtual(scene())


def test_only_wanted_tags_are_given_out_and_the_others_are_passed_over() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await sent(town, 8, tags="paid")
            await sent(town, 8, 100, tags="open")
            async with consumer(town, topics={"orders": "open || lost"}) as reader:
                assert {message.tags for message in await all_of(reader)} == {"open"}
            assert await committed(town) == [4, 4, 4, 4]

    virtual(scene())


def test_other_tags_apply_from_then_on_and_nothing_comes_twice() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await sent(town, 4, tags="paid")
            async with consumer(town) as reader:
                assert len(await all_of(reader)) == 4
                await reader.subscribe("orders", "open")
                await sent(town, 4, 10, tags="open")
                await sent(town, 4, 20, tags="paid")
                assert texts_of(await all_of(reader)) == ["010", "011", "012", "013"]

    virtual(scene())


def test_two_members_share_the_queues_and_the_one_left_takes_all() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            async with consumer(town, seed=1) as first:
                async with consumer(town, seed=2) as second:
                    await town.clock.sleep(2)
                    assert sorted([*first.assignment(), *second.assignment()]) == list(QUEUES)
                    assert len(first.assignment()) == 2
                await town.clock.sleep(2)
                assert first.assignment() == QUEUES

    virtual(scene())


def test_a_topic_can_be_added_and_left_while_running() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await town.create_topic("bills", 1)
            await town.send("bills", b"bill")
            async with consumer(town) as reader:
                await reader.subscribe("bills")
                assert len(reader.assignment()) == 5
                assert texts_of(await all_of(reader)) == ["bill"]
                await reader.unsubscribe("bills")
                assert reader.assignment() == QUEUES

    virtual(scene())


def test_a_topic_that_comes_later_is_read_when_it_is_there() -> None:
    async def scene() -> None:
        async with cluster() as town, consumer(town) as reader:
            assert reader.assignment() == ()
            await town.create_topic("orders")
            texts = await sent(town, 4)
            await town.clock.sleep(5)
            assert texts_of(await all_of(reader)) == texts

    virtual(scene())


# Commits


def test_what_a_call_gave_out_is_committed_after_the_next_call_began() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            await sent(town, 30)
            async with consumer(town) as reader:
                first = await reader.poll(1)
                assert len(first) == 10
                await town.clock.sleep(20)
                assert (await committed(town))[0] == 0  # the first ten may still be in work
                await reader.poll(1)
                await town.clock.sleep(6)
                assert (await committed(town))[0] == 10

    virtual(scene())


def test_while_an_iteration_waits_all_that_came_before_is_committed() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await sent(town, 8)
            async with consumer(town) as reader:

                async def read() -> None:
                    async for _ in reader:
                        pass

                reading = asyncio.create_task(read())
                await town.clock.sleep(7)
                assert await committed(town) == [2, 2, 2, 2]
                reading.cancel()

    virtual(scene())


def test_leaving_the_block_commits_what_was_given_out_and_the_next_run_goes_on_there() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            texts = await sent(town, 15)
            async with consumer(town) as reader:
                assert len(await reader.poll(1)) == 10
            assert (await committed(town))[0] == 10
            async with consumer(town) as reader:
                assert texts_of(await all_of(reader)) == texts[10:]

    virtual(scene())


def test_after_an_exception_what_was_in_work_comes_again() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            texts = await sent(town, 15)

            async def fail() -> None:
                async with consumer(town) as reader:
                    await reader.poll(1)
                    await reader.poll(1)
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            assert (await committed(town))[0] == 10
            async with consumer(town) as reader:
                assert texts_of(await all_of(reader)) == texts[10:]

    virtual(scene())


def test_without_auto_commit_only_the_user_commits() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            texts = await sent(town, 15)
            async with consumer(town, auto_commit=False) as reader:
                await reader.poll(1)
                await reader.commit()
                await reader.poll(1)
                await town.clock.sleep(20)
            assert (await committed(town))[0] == 10
            async with consumer(town, auto_commit=False) as reader:
                assert texts_of(await all_of(reader)) == texts[10:]
                await reader.commit({QUEUES[0]: 12})
                assert await reader.committed(QUEUES[0]) == 12
            assert (await committed(town))[0] == 12

    virtual(scene())


def test_a_queue_that_goes_to_another_member_is_committed_first_without_what_is_in_work() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await sent(town, 40)
            async with consumer(town, pull_batch_size=5) as first:
                for _ in range(4):
                    assert len(await first.poll(1)) == 5
                async with consumer(town, seed=2) as second:
                    await town.clock.sleep(1)
                    ours = [*first.assignment()]
                    theirs = [*second.assignment()]
                    assert len(ours) == len(theirs) == 2
                    positions = [await second.committed(queue) for queue in theirs]
                    assert set(positions) <= {0, 5}
                    assert 5 in positions

    virtual(scene())


# Assigning


def test_assigned_queues_are_read_whatever_the_group_does() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await sent(town, 8)
            async with consumer(town, topics=()) as first, consumer(town, topics=(), seed=2) as second:
                await first.assign(QUEUES[:1])
                await second.assign(QUEUES[:1])
                assert len(await all_of(first)) == len(await all_of(second)) == 2
                assert first.assignment() == QUEUES[:1]
                await first.assign(QUEUES)
                assert len(await all_of(first)) == 6  # the first queue goes on where it was

    virtual(scene())


def test_queues_can_be_assigned_before_the_start() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            texts = await sent(town, 8)
            reader = consumer(town, topics=())
            await reader.assign(QUEUES)
            async with reader:
                assert texts_of(await all_of(reader)) == texts

    virtual(scene())


def test_subscribing_and_assigning_do_not_mix() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            async with consumer(town) as subscriber:
                with pytest.raises(InvalidArgument, match="subscribe already"):
                    await subscriber.assign(QUEUES)
            async with consumer(town, topics=()) as assigned:
                await assigned.assign(QUEUES)
                with pytest.raises(InvalidArgument, match="assign already"):
                    await assigned.subscribe("orders")
                with pytest.raises(InvalidArgument, match="at least one"):
                    await assigned.assign([])

    virtual(scene())


# Seeking and pausing


def test_seeking_to_an_offset_gives_what_is_there() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            texts = await sent(town, 30)
            async with consumer(town) as reader:
                await all_of(reader)
                await reader.seek(QUEUES[0], 25)
                assert reader.position(QUEUES[0]) == 25
                assert texts_of(await all_of(reader)) == texts[25:]
                await reader.seek(QUEUES[0], 30)
                assert await reader.poll(1) == []
                for offset in (-1, 31):
                    with pytest.raises(InvalidArgument, match="0 to 30"):
                        await reader.seek(QUEUES[0], offset)
                with pytest.raises(InvalidArgument, match="assignment"):
                    await reader.seek(MessageQueue("orders", "broker-a", 9), 1)

    virtual(scene())


def test_seeking_to_begin_end_and_a_time() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            early = await sent(town, 8)
            await town.clock.sleep(3600)
            noon_ms = town.clock.now_ms()
            late = await sent(town, 8, 50)
            async with consumer(town) as reader:
                await reader.seek_to_end()
                assert await reader.poll(1) == []
                await reader.seek_to_begin()
                assert texts_of(await all_of(reader)) == early + late
                moment = datetime.fromtimestamp(noon_ms / 1000, UTC)
                for when in (moment, moment.isoformat(), noon_ms / 1000):
                    await reader.seek_to_time(when)
                    assert texts_of(await all_of(reader)) == late
                assert await reader.offset_at(QUEUES[0], moment) == 2
                await reader.seek_to_begin(QUEUES[:1])
                assert len(await all_of(reader)) == 4

    virtual(scene())


def test_a_paused_queue_gives_nothing_until_it_is_resumed() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await sent(town, 8)
            async with consumer(town) as reader:
                await town.clock.sleep(1)
                reader.pause(QUEUES[:3])
                assert {message.queue for message in await all_of(reader)} == {QUEUES[3]}
                reader.resume()
                assert len(await all_of(reader)) == 6

    virtual(scene())


def test_what_is_held_is_bounded() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            texts = await sent(town, 400)
            async with consumer(town, pull_threshold_for_queue=20, pull_threshold_for_all=50) as reader:
                await town.clock.sleep(5)
                assert reader._member.shelves.count <= 50 + 4 * 10  # what was on its way
                for shelf in reader._member.shelves:
                    assert len(shelf) <= 20 + 10
                assert texts_of(await all_of(reader)) == texts

    virtual(scene())


# Namespaces, broadcasting, SQL


def test_a_namespace_is_on_the_wire_and_not_in_what_the_user_sees() -> None:
    async def scene() -> None:
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

    virtual(scene())


def test_a_broadcasting_member_reads_everything_and_keeps_its_offsets_in_a_file() -> None:
    async def scene() -> None:
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

    virtual(scene())


def test_an_expression_that_brokers_do_not_know_is_refused_at_the_start() -> None:
    async def scene() -> None:
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

    virtual(scene())


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

    virtual(scene())


# Single pulls


def test_a_single_pull_remembers_and_commits_nothing() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            await sent(town, 20, tags="paid")
            async with consumer(town, topics=()) as reader:
                (queue,) = await reader.queues("orders")
                for _ in range(2):
                    result = await reader.pull(queue, 5, 3)
                    assert result.status is PullStatus.FOUND
                    assert [message.text for message in result.messages] == ["005", "006", "007"]
                    assert (result.next_offset, result.min_offset, result.max_offset) == (8, 0, 20)
                assert (await reader.pull(queue, 0, 3, "open")).status is PullStatus.NO_MATCHED_MSG
                assert (await reader.pull(queue, 99)).status is PullStatus.OFFSET_ILLEGAL
                assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 20)
                began_s = town.clock.monotonic()
                assert (await reader.pull(queue, 20, wait=3)).status is PullStatus.NO_NEW_MSG
                assert 3 <= town.clock.monotonic() - began_s < 10
                for offset, count in ((-1, 1), (0, 0)):
                    with pytest.raises(InvalidArgument):
                        await reader.pull(queue, offset, count)
            assert (await committed(town))[0] in (None, 0)

    virtual(scene())


def test_a_message_sent_back_comes_again_through_the_retry_topic() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", 1)
            await sent(town, 1)
            async with consumer(town, topics=["orders", retry_topic("readers")]) as reader:
                (message,) = await reader.poll(1)
                await reader.send_back(message, delay_level=1)
                (again,) = await reader.poll(20)
                assert (again.text, again.topic, again.reconsume_times) == ("000", "orders", 1)

    virtual(scene())


# Being called


def test_a_listener_hears_which_queues_there_are_and_which_are_ours() -> None:
    async def scene() -> None:
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

    virtual(scene())


def test_a_scheduled_callback_is_called_for_each_queue_with_the_delay_it_asks_for() -> None:
    async def scene() -> None:
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

    virtual(scene())


def test_a_scheduled_callback_that_fails_is_called_again_after_a_second() -> None:
    async def scene() -> None:
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

    virtual(scene())


# What brokers and tools ask


def test_tools_see_the_consumer_and_what_it_holds() -> None:
    async def scene() -> None:
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

    virtual(scene())


def test_a_tool_can_move_a_running_group() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            texts = await sent(town, 8)
            async with consumer(town) as reader:
                assert len(await all_of(reader)) == 8
                await town.admin.offsets.reset("readers", "orders", 0)
                await town.clock.sleep(1)
                assert texts_of(await all_of(reader)) == texts

    virtual(scene())


def test_a_tool_that_skips_the_backlog_skips_what_is_held_too() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            await sent(town, 80)
            async with consumer(town) as reader:
                await town.clock.sleep(1)
                assert reader._member.shelves.count == 80
                await town.admin.offsets.reset_to("readers", "orders", END)
                await town.clock.sleep(1)
                texts = await sent(town, 4, 100)
                assert texts_of(await all_of(reader)) == texts

    virtual(scene())


def test_offsets_that_are_not_there_are_corrected_by_the_broker() -> None:
    async def scene() -> None:
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

    virtual(scene())


def test_a_broker_that_was_away_is_read_again() -> None:
    async def scene() -> None:
        async with cluster(2) as town:
            await town.create_topic("orders", 2, broker=0)
            await town.create_topic("orders", 2, broker=1)
            async with consumer(town) as reader:
                assert len(reader.assignment()) == 4
                await town.brokers[1].stop()
                await town.clock.sleep(5)
                texts = await sent(town, 8)
                assert texts_of(await all_of(reader)) == texts

    virtual(scene())


def test_without_name_servers_reading_goes_on_and_a_new_one_that_knows_nothing_does_no_harm() -> None:
    async def scene() -> None:
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

    virtual(scene())


def test_a_strategy_that_fails_costs_nothing_that_is_held() -> None:
    async def scene() -> None:
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

    virtual(scene())


# What cannot be


def test_before_the_start_and_after_the_end_calls_say_so() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            reader = consumer(town)
            with pytest.raises(NotRunning, match="async with"):
                await reader.poll()
            with pytest.raises(NotRunning, match="async with"):
                await reader.pull(QUEUES[0], 0)
            async with reader:
                with pytest.raises(InvalidArgument, match="0 seconds or more"):
                    await reader.poll(-1)
            await reader.close()
            with pytest.raises(NotRunning, match="closed"):
                await reader.poll()
            with pytest.raises(NotRunning, match="closed"):
                await reader.start()

    virtual(scene())


def test_a_poll_that_waits_ends_when_the_consumer_is_closed() -> None:
    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders")
            reader = consumer(town)
            await reader.start()
            waiting = asyncio.create_task(reader.poll(60))
            await town.clock.sleep(1)
            await reader.close()
            with pytest.raises(NotRunning):
                await waiting

    virtual(scene())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"group": ""}, "empty"),
        ({"group": "g" * 121}, "at most 120"),
        ({"topics": [""]}, "empty"),
        ({"topics": ["a b"]}, "not allowed"),
        ({"pull_batch_size": 0}, "between 1 and 1024"),
        ({"broker_suspend_max_time": 40.0}, "consumer_timeout_when_suspend"),
        ({"poll_timeout": 5000.0}, "milliseconds"),
        ({"autoCommit": True}, "auto_commit"),
    ],
)
def test_what_cannot_be_right_is_refused_with_words(arguments: dict[str, Any], told: str) -> None:
    wanted = {"group": "readers", "topics": ["orders"]} | arguments
    with pytest.raises(InvalidArgument, match=told):
        PullConsumer(**wanted)


def test_without_a_name_server_the_start_fails_and_says_so() -> None:
    async def scene() -> None:
        async with cluster() as town:
            world = World(town.network, town.clock, Chance(1))
            with pytest.raises(NoNameServer):
                await PullConsumer("readers", name_servers="127.0.0.1:1", world=world).start()

    virtual(scene())
