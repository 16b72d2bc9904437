"""The pull consumer against a broker in memory, in virtual time: what it gives out, and what that commits."""

import asyncio
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster
from tests.unit.client.pulling import (
    QUEUES,
    all_of,
    committed,
    consumer,
    sent,
    texts_of,
)

from turbopump.client.errors import InvalidArgument, NoNameServer, NotRunning
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.world import World
from turbopump.runtime.chance import Chance

# Subscribing


@virtual
async def test_what_was_sent_and_what_comes_is_polled() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        texts = await sent(town, 20)
        async with consumer(town) as reader:
            assert reader.assignment() == QUEUES
            assert texts_of(await all_of(reader)) == texts
            more = await sent(town, 5, 20)
            assert texts_of(await all_of(reader)) == more


@virtual
async def test_a_poll_gives_messages_of_one_queue_in_order_and_at_most_a_batch() -> None:
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


@virtual
async def test_a_poll_that_finds_nothing_ends_after_its_timeout() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        async with consumer(town) as reader:
            began_s = town.clock.monotonic()
            assert await reader.poll(2) == []
            assert await reader.poll(0) == []
            assert await reader.poll() == []
            assert town.clock.monotonic() - began_s == pytest.approx(7)


@virtual
async def test_iteration_waits_for_messages_and_ends_when_the_consumer_is_closed() -> None:
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


@virtual
async def test_only_wanted_tags_are_given_out_and_the_others_are_passed_over() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 8, tags="paid")
        await sent(town, 8, 100, tags="open")
        async with consumer(town, topics={"orders": "open || lost"}) as reader:
            assert {message.tags for message in await all_of(reader)} == {"open"}
        assert await committed(town) == [4, 4, 4, 4]


@virtual
async def test_other_tags_apply_from_then_on_and_nothing_comes_twice() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        await sent(town, 4, tags="paid")
        async with consumer(town) as reader:
            assert len(await all_of(reader)) == 4
            await reader.subscribe("orders", "open")
            await sent(town, 4, 10, tags="open")
            await sent(town, 4, 20, tags="paid")
            assert texts_of(await all_of(reader)) == ["010", "011", "012", "013"]


@virtual
async def test_two_members_share_the_queues_and_the_one_left_takes_all() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        async with consumer(town, seed=1) as first:
            async with consumer(town, seed=2) as second:
                await town.clock.sleep(2)
                assert sorted([*first.assignment(), *second.assignment()]) == list(QUEUES)
                assert len(first.assignment()) == 2
            await town.clock.sleep(2)
            assert first.assignment() == QUEUES


@virtual
async def test_a_topic_can_be_added_and_left_while_running() -> None:
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


@virtual
async def test_a_topic_that_comes_later_is_read_when_it_is_there() -> None:
    async with cluster() as town, consumer(town) as reader:
        assert reader.assignment() == ()
        await town.create_topic("orders")
        texts = await sent(town, 4)
        await town.clock.sleep(5)
        assert texts_of(await all_of(reader)) == texts


# Commits


@virtual
async def test_what_a_call_gave_out_is_committed_after_the_next_call_began() -> None:
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


@virtual
async def test_while_an_iteration_waits_all_that_came_before_is_committed() -> None:
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


@virtual
async def test_leaving_the_block_commits_what_was_given_out_and_the_next_run_goes_on_there() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        texts = await sent(town, 15)
        async with consumer(town) as reader:
            assert len(await reader.poll(1)) == 10
        assert (await committed(town))[0] == 10
        async with consumer(town) as reader:
            assert texts_of(await all_of(reader)) == texts[10:]


@virtual
async def test_after_an_exception_what_was_in_work_comes_again() -> None:
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


@virtual
async def test_without_auto_commit_only_the_user_commits() -> None:
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


@virtual
async def test_a_queue_that_goes_to_another_member_is_committed_first_without_what_is_in_work() -> None:
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


# What cannot be


@virtual
async def test_before_the_start_and_after_the_end_calls_say_so() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        reader = consumer(town)
        with pytest.raises(NotRunning, match="async with"):
            await reader.poll()
        with pytest.raises(NotRunning, match="async with"):
            await reader.pull(QUEUES[0], 0)
        async with reader:
            with pytest.raises(InvalidArgument, match="must be at least 0"):
                await reader.poll(-1)
        await reader.close()
        with pytest.raises(NotRunning, match="closed"):
            await reader.poll()
        with pytest.raises(NotRunning, match="closed"):
            await reader.start()


@virtual
async def test_a_poll_that_waits_ends_when_the_consumer_is_closed() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        reader = consumer(town)
        await reader.start()
        waiting = asyncio.create_task(reader.poll(60))
        await town.clock.sleep(1)
        await reader.close()
        with pytest.raises(NotRunning):
            await waiting


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"group": ""}, "empty"),
        ({"group": "g" * 121}, "at most 120"),
        ({"topics": [""]}, "empty"),
        ({"topics": ["a b"]}, "only letters"),
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


@virtual
async def test_without_a_name_server_the_start_fails_and_says_so() -> None:
    async with cluster() as town:
        world = World(town.network, town.clock, Chance(1))
        with pytest.raises(NoNameServer):
            await PullConsumer("readers", name_servers="127.0.0.1:1", world=world).start()
