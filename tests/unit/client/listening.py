"""Push consumers for tests: of group `readers`, from the first message on, with a handler that remembers."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.unit.admin.kit import NAMESRV, MemoryCluster

from turbopump.client.group.offsets import GroupOffsets
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Reader:
    """A handler that remembers what it got. `refuses` says which bodies it will not take."""

    def __init__(self, refuses: Callable[[bytes], bool] = lambda body: False) -> None:
        self.got: list[MessageExt] = []
        self.refuses = refuses
        self.pause_s = 0.0

    async def __call__(self, message: MessageExt) -> None:
        self.got.append(message)
        await asyncio.sleep(self.pause_s)
        if self.refuses(message.body):
            raise ValueError("not this one")

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.got)

    @property
    def texts(self) -> list[str]:
        """In the order in which they came."""
        return [message.text for message in self.got]


def world(town: MemoryCluster, seed: int = 1) -> World:
    return World(town.network, town.clock, Chance(seed))


def plain(town: MemoryCluster, seed: int = 1, group: str = "readers", **settings: Any) -> Consumer:
    """Without a handler."""
    given = {"consume_from_where": FIRST} | settings
    disk = settings.pop("disk", None) or SimulatedDisk(Chance(seed), town.clock)
    given.pop("disk", None)
    return Consumer(group, name_servers=NAMESRV, world=world(town, seed), disk=disk, **given)


def consumer(
    town: MemoryCluster, reader: Reader, seed: int = 1, topics: dict[str, str] | None = None, **settings: Any
) -> Consumer:
    if workers := settings.pop("workers", None):
        settings |= {"consume_thread_min": workers, "consume_thread_max": workers}
    made = plain(town, seed, **settings)
    for topic, tags in (topics or {"orders": "*"}).items():
        made.subscribe(topic, reader, tags)
    return made


async def committed(town: MemoryCluster, topic: str = "orders", queues: int = 4) -> list[int | None]:
    offsets = GroupOffsets(town.admin.client, town.admin.routes, "readers")
    return [await offsets.query(MessageQueue(topic, "broker-a", number)) for number in range(queues)]
