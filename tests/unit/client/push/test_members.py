"""Members of a group come and go, servers too: each queue has one owner, nothing is missed."""

from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.listening import Reader, committed, consumer

from turbopump.client.group.strategies import ConsistentHash, Strategy, averagely, by_circle
from turbopump.client.push.consumer import Consumer


async def sent(town: MemoryCluster, count: int, start: int = 0, **message: Any) -> list[bytes]:
    texts = [b"%04d" % number for number in range(start, start + count)]
    for text in texts:
        await town.send("orders", text, **message)
    return texts


def owners(members: list[Consumer]) -> list[int]:
    """The ids of all queues that members say are theirs."""
    return sorted(queue.id for member in members for queue in member.queues())


@pytest.mark.parametrize("strategy", [averagely, by_circle, ConsistentHash()])
@virtual
async def test_two_and_five_members_divide_the_queues_and_nothing_is_missed_when_they_leave(
    strategy: Strategy,
) -> None:
    async with cluster() as town:
        await town.create_topic("orders", 8)
        readers = [Reader() for _ in range(5)]
        members = [
            consumer(town, reader, number + 1, allocate_message_queue_strategy=strategy)
            for number, reader in enumerate(readers)
        ]
        here: list[Consumer] = []
        texts: list[bytes] = []
        for count in (2, 5, 4, 1, 0):
            while len(here) < count and members:
                here.append(members.pop())
                await here[-1].start()
            while len(here) > count:
                await here.pop(0).close()
            texts += await sent(town, 40, len(texts))
            await town.clock.sleep(5)
            if here:
                assert owners(here) == list(range(8))
        last = Reader()
        async with consumer(town, last, 99, allocate_message_queue_strategy=strategy):
            await town.clock.sleep(3)
        got = [message.body for reader in (*readers, last) for message in reader.got]
        assert set(got) == set(texts)
        assert await committed(town, queues=8) == [25] * 8


@virtual
async def test_a_member_that_dies_without_a_word_is_replaced() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 4)
        first, second = Reader(), Reader()
        dying = consumer(town, first, 1)
        await dying.start()
        async with consumer(town, second, 2) as living:
            await town.clock.sleep(2)
            assert len(living.queues()) == 2
            instance = dying._running._instance
            instance.client._closed = True  # it dials no more
            for connection in list(instance.client._connections.values()):
                connection.abort()
            await town.clock.sleep(2)
            assert len(living.queues()) == 4
            texts = await sent(town, 8)
            await town.clock.sleep(2)
            assert second.bodies == texts
        await dying.close()


@virtual
async def test_all_name_servers_are_down_for_five_minutes_and_consuming_goes_on() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 4)
        reader = Reader(lambda body: body == b"0003")
        async with consumer(town, reader) as member:
            await town.clock.sleep(3)
            texts = await sent(town, 4)
            await town.name_server.stop()
            for _ in range(10):
                texts += await sent(town, 4, len(texts))
                await town.clock.sleep(30)
                assert len(member.queues()) == 4
            assert set(reader.bodies) == set(texts)
            assert reader.bodies.count(b"0003") > 2  # retries go on as well
        assert await committed(town) == [11, 11, 11, 11]


@virtual
async def test_one_broker_of_two_is_down_for_a_while_and_the_other_is_consumed() -> None:
    async with cluster(brokers=2) as town:
        await town.create_topic("orders", 2, broker=0)
        await town.create_topic("orders", 2, broker=1)
        reader = Reader()
        async with consumer(town, reader):
            await town.clock.sleep(3)
            texts = await sent(town, 8)
            await town.clock.sleep(2)
            assert reader.bodies == texts
            await town.brokers.pop(1).stop()
            await town.clock.sleep(2)
            texts += await sent(town, 8, 8)
            await town.clock.sleep(5)
            assert reader.bodies == texts


@virtual
async def test_a_strategy_that_fails_leaves_everything_as_it_is() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 4)
        fails = False

        def moody(queues: Any, members: Any, me: str) -> Any:
            if fails:
                raise ValueError("not today")
            return averagely(queues, members, me)

        reader = Reader()
        async with consumer(town, reader, allocate_message_queue_strategy=moody) as member:
            await town.clock.sleep(2)
            fails = True
            await town.clock.sleep(60)
            assert len(member.queues()) == 4
            texts = await sent(town, 4)
            await town.clock.sleep(2)
            assert reader.bodies == texts
