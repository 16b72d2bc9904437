"""Everything at once, from a seed: members join, leave and die, connections break, handlers fail and dawdle.

Nothing is missed; and of ordered queues, with repeats dropped, everything is seen in order.
"""

import asyncio
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.listening import plain

from turbopump.client.message import Message, MessageExt, MessageQueue
from turbopump.client.push.consumer import Consumer
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import run_virtual

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(6)]
ROUNDS = 20


class Members:
    def __init__(self, town: MemoryCluster, chance: Chance, ordered: bool) -> None:
        self._town = town
        self._chance = chance
        self._ordered = ordered
        self._number = 0
        self.here: list[Consumer] = []
        self.dying: list[Consumer] = []
        self.seen: list[str] = []
        self.calm = False

    def make(self) -> Consumer:
        self._number += 1
        member = plain(self._town, 1000 + self._number, await_termination_when_shutdown=5)
        is_plain = self._chance.random() < 0.3
        member.subscribe("orders", self._handle_plainly if is_plain else self._handle, ordered=self._ordered)
        return member

    def _handle_plainly(self, message: MessageExt) -> None:
        if not self.calm and self._chance.random() < 0.05:
            raise ValueError("not now")
        self.seen.append(message.text)

    async def _handle(self, message: MessageExt) -> None:
        if not self.calm:
            await asyncio.sleep(self._chance.choice((0, 0, 0.01, 0.3)))
            if self._chance.random() < 0.05:
                raise ValueError("not now")
        self.seen.append(message.text)

    async def something_happens(self) -> None:
        chance = self._chance
        event = chance.random()
        if len(self.here) < 4 and event < 0.4:
            self.here.append(self.make())
            await self.here[-1].start()
        elif self.here and event < 0.6:
            await self.here.pop(chance.randrange(len(self.here))).close()
        elif self.here and event < 0.75:
            self._kill(self.here.pop(chance.randrange(len(self.here))))
        elif event < 0.9:
            self._town.network.break_connections("127.0.0.1")
            await self._town.clock.sleep(0.1)

    def _kill(self, member: Consumer) -> None:
        """It hears and says nothing any more, as a process that is gone."""
        client = member._running._instance.client
        client._closed = True
        for connection in list(client._connections.values()):
            connection.abort()
        for held in member._running.queues.ours.values():
            held.dropped = True
        self.dying.append(member)

    async def close(self) -> None:
        for member in (*self.dying, *self.here):
            await member.close()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", range(2))
@virtual
async def test_whatever_happens_nothing_is_missed(ordered: bool, seed: int) -> None:
    chance = Chance(seed)
    async with cluster() as town:
        await town.create_topic("orders", len(QUEUES))
        members = Members(town, chance, ordered)
        sent: dict[MessageQueue, int] = dict.fromkeys(QUEUES, 0)
        for _ in range(ROUNDS):
            await members.something_happens()
            for queue in QUEUES:
                await send(town, queue, sent, chance.randrange(6))
            await town.clock.sleep(chance.choice((0.1, 1, 5, 25)))
        members.calm = True
        await members.close()
        last = members.make()
        async with last:
            await town.clock.sleep(150)
            held = last._running.queues.positions()
        for queue in QUEUES:
            assert held[queue] == sent[queue]
            wanted = [f"{queue.id}:{number:04d}" for number in range(sent[queue])]
            seen = list(dict.fromkeys(one for one in members.seen if one.startswith(f"{queue.id}:")))
            assert (seen if ordered else sorted(seen)) == wanted


async def send(town: MemoryCluster, queue: MessageQueue, sent: dict[MessageQueue, int], count: int) -> None:
    for _ in range(count):
        text = f"{queue.id}:{sent[queue]:04d}"
        await town.producer.send_to(queue, Message("orders", text.encode()))
        sent[queue] += 1


def test_two_runs_of_a_seed_are_the_same() -> None:
    """So that a failure can be looked into."""
    runs: list[Any] = []

    async def scene() -> None:
        async with cluster() as town:
            await town.create_topic("orders", len(QUEUES))
            members = Members(town, Chance(7), True)
            members.here.append(members.make())
            await members.here[0].start()
            sent: dict[MessageQueue, int] = dict.fromkeys(QUEUES, 0)
            for queue in QUEUES:
                await send(town, queue, sent, 5)
            await town.clock.sleep(10)
            runs.append(list(members.seen))
            await members.close()

    run_virtual(scene())
    run_virtual(scene())
    assert runs[0] == runs[1]
