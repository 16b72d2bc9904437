"""Brokers are killed and come back, cables are pulled and put in again, while consumers work."""

import asyncio

import pytest
from tests.kit import virtual

from turbopump.client.message import Message, MessageExt, MessageQueue
from turbopump.client.produce.producer import Producer
from turbopump.client.push.consumer import Consumer
from turbopump.testing import AsyncCluster

QUEUES = 4


class Stored:
    """What was sent and acknowledged, by queue, in order."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self.texts: dict[int, list[str]] = {number: [] for number in range(QUEUES)}

    async def add(self, count: int) -> None:
        for queue in await self._producer.queues(self._topic):
            for _ in range(count):
                own = self.texts[queue.id]
                text = f"{queue.id}:{len(own):04d}"
                await self._producer.send(Message(self._topic, text.encode()), queue=queue)
                own.append(text)


def seen_once(texts: list[str], queue: int) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text.startswith(f"{queue}:")))


@pytest.mark.parametrize("ordered", [False, True])
@virtual
async def test_a_broker_is_killed_and_restarted_again_and_again(ordered: bool) -> None:
    async with AsyncCluster(clock="virtual") as cluster:
        await cluster.create_topic("orders", queues=QUEUES)
        producer, texts = cluster.producer(), list[str]()
        members: list[Consumer] = []

        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(0.01)
            texts.append(message.text)

        for _ in range(2):
            members.append(cluster.consumer("readers"))
            members[-1].subscribe("orders", handle, ordered=ordered)
        async with producer, members[0], members[1]:
            stored = Stored(producer, "orders")
            for _ in range(5):
                await stored.add(10)
                await cluster.world.clock.sleep(1)
                await cluster.kill_broker()
                await cluster.world.clock.sleep(3)
                await cluster.start_broker()
                await cluster.world.clock.sleep(10)
            await cluster.world.clock.sleep(90)
            owned = [queue for member in members for queue in member.queues()]
            assert sorted(queue.id for queue in owned) == list(range(QUEUES))
        for queue in range(QUEUES):
            seen = seen_once(texts, queue)
            assert (seen if ordered else sorted(seen)) == stored.texts[queue]


@virtual
async def test_a_member_whose_cable_was_pulled_comes_back_and_each_queue_has_one_owner() -> None:
    async with AsyncCluster(clock="virtual") as cluster:
        await cluster.create_topic("orders", queues=QUEUES)
        producer, texts = cluster.producer(), list[str]()

        async def handle(message: MessageExt) -> None:
            texts.append(message.text)

        members = [cluster.consumer("readers") for _ in range(2)]
        for member in members:
            member.subscribe("orders", handle)
        async with producer, members[0], members[1]:
            stored = Stored(producer, "orders")
            await stored.add(3)
            await cluster.world.clock.sleep(5)
            cluster.cut_off(members[0])
            await stored.add(3)
            await cluster.world.clock.sleep(200)  # the broker waits two minutes for a silent member
            assert {queue.id for queue in members[1].queues()} == set(range(QUEUES))
            await stored.add(3)
            cluster.rejoin(members[0])
            await cluster.world.clock.sleep(60)
            owned = [queue for member in members for queue in member.queues()]
            assert sorted(owned) == [MessageQueue("orders", "broker-a", n) for n in range(QUEUES)]
            assert {len(member.queues()) for member in members} == {2}
            await stored.add(3)
            await cluster.world.clock.sleep(5)
        for queue in range(QUEUES):
            assert sorted(seen_once(texts, queue)) == stored.texts[queue]
