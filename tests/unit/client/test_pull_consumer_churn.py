"""Members of a pull group that come, go and fail at random: nothing counts as done that nobody finished."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, MemoryCluster, cluster

from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.runtime.chance import Chance

MESSAGES = 80


class Crash(Exception):
    pass


class Crew:
    """Three members at a time. A message is finished when the next call begins, or at an orderly end."""

    def __init__(self, town: MemoryCluster, seed: int) -> None:
        self.town = town
        self.chance = Chance(seed)
        self.finished: set[str] = set()
        self.number = 0

    def member(self) -> PullConsumer:
        self.number += 1
        return PullConsumer(
            "readers",
            topics=["orders"],
            name_servers=NAMESRV,
            world=World(self.town.network, self.town.clock, Chance(self.chance.getrandbits(32))),
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            auto_commit_interval=0.5,
            pull_batch_size=self.chance.randrange(1, 8),
        )

    async def live(self) -> None:
        while len(self.finished) < MESSAGES:
            try:
                await self._one_life(by_steps=self.chance.random() < 0.5)
            except Crash:
                await asyncio.sleep(self.chance.random())

    async def _one_life(self, by_steps: bool) -> None:
        in_hand: list[str] = []
        async with self.member() as member:
            for _ in range(self.chance.randrange(1, 30)):
                if by_steps:
                    message = await asyncio.wait_for(self._step(member), 3)
                    given = [] if message is None else [message]
                else:
                    given = [message.text for message in await member.poll(self.chance.random())]
                self.finished.update(in_hand)
                in_hand = given
                await asyncio.sleep(self.chance.random() / 2)
                if self.chance.random() < 0.05:
                    raise Crash
        self.finished.update(in_hand)

    async def _step(self, member: PullConsumer) -> str | None:
        try:
            async with asyncio.timeout(1):
                return (await anext(member)).text
        except TimeoutError:
            return None


@pytest.mark.parametrize("seed", range(4))
@virtual
async def test_every_message_is_finished_by_someone(seed: int) -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        sent = {f"{number:03}" for number in range(MESSAGES)}
        crew = Crew(town, seed)
        async with asyncio.timeout(3600), asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(crew.live())
            for text in sorted(sent):
                await town.send("orders", text.encode())
                await town.clock.sleep(0.05)
        assert crew.finished == sent
        assert crew.number > 3
