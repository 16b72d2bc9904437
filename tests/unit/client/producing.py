"""Producers for tests, of group `makers`, in the town's network and virtual time; and what they sent."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.unit.admin.kit import NAMESRV, MemoryCluster

from turbopump.client.message import MessageExt
from turbopump.client.produce.producer import Producer
from turbopump.client.pull.puller import Puller
from turbopump.client.world import World
from turbopump.runtime.chance import Chance


def producer(town: MemoryCluster, group: str = "makers", seed: int = 7, **settings: Any) -> Producer:
    world = World(town.network, town.clock, Chance(seed))
    return Producer(group, name_servers=NAMESRV, world=world, **settings)


@contextlib.asynccontextmanager
async def producing(town: MemoryCluster, **settings: Any) -> AsyncIterator[Producer]:
    async with producer(town, **settings) as one:
        yield one


async def stored(town: MemoryCluster, topic: str) -> list[MessageExt]:
    """Everything in the topic, queue by queue."""
    puller = Puller(town.admin.client, town.admin.routes)
    found: list[MessageExt] = []
    for queue in (await town.admin.routes.refresh(topic)).subscribe:
        offset = 0
        while (pulled := await puller.pull(queue, offset, hold_s=0)).records:
            found += [MessageExt(record, queue) for record in pulled.records]
            offset = pulled.next_offset
    return found
