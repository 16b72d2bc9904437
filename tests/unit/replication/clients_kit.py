"""Our own clients in a cluster of whole brokers, in virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.unit.replication.kit import NAME_SERVER, TOPIC, Node, Pair, pair
from tests.unit.replication.reading_kit import MASTER, SLAVE, until

from turbopump.client.message import Message, MessageExt
from turbopump.client.produce.producer import Producer
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.runtime.chance import Chance
from turbopump.store.reading import GetResult
from turbopump.testing.disk import SimulatedDisk

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
OTHER = "brokerRole=ASYNC_MASTER\nbrokerName=broker-b\n"
GROUP = "readers"
MAX_PULLS = 1_000


@dataclass
class Clients:
    """A cluster with one master and one slave, and makers of clients."""

    pair: Pair
    master: Node
    slave: Node
    number: int = 0

    def _world(self) -> World:
        self.number += 1
        network = self.pair.network.at(f"10.0.1.{self.number}")
        return World(network, self.pair.clock, Chance(self.number))

    def producer(self, **settings: Any) -> Producer:
        return Producer("makers", name_servers=NAME_SERVER, world=self._world(), **settings)

    def consumer(self, handler: Any, *, ordered: bool = False, **settings: Any) -> Consumer:
        given = {"consume_from_where": FIRST} | settings
        disk = SimulatedDisk(Chance(1), self.pair.clock)
        made = Consumer(GROUP, name_servers=NAME_SERVER, world=self._world(), disk=disk, **given)
        made.subscribe(TOPIC, handler, "*", ordered=ordered)
        return made

    def pull_consumer(self, **settings: Any) -> PullConsumer:
        given = {"topics": [TOPIC], "consume_from_where": FIRST} | settings
        return PullConsumer(GROUP, name_servers=NAME_SERVER, world=self._world(), **given)

    async def send(self, first: int, count: int, node: Node | None = None) -> None:
        """Sends numbered messages to the queues in turn, by a tool."""
        for number in range(first, first + count):
            answer = await self.pair.send(node or self.master, b"%04d" % number, queue_id=number % 4)
            assert answer.code == 0

    async def copied(self) -> None:
        await self.pair.copied(self.master, self.slave)

    async def positions(self, node: Node) -> list[int]:
        """Returns what the group has committed at a broker, by queue."""
        found = []
        for queue_id in range(4):
            ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
            command = Command(int(RequestCode.QUERY_CONSUMER_OFFSET), ext=ext)
            found.append(int(((await self.pair.tool.call(node.address, command, 5)).ext or {})["offset"]))
        return found


@dataclass
class Reader:
    """A handler that remembers what it got, and when."""

    pair: Pair
    pause_s: float = 0.0
    got: list[int] = field(default_factory=list)
    at: dict[int, float] = field(default_factory=dict)

    async def __call__(self, message: MessageExt) -> None:
        await asyncio.sleep(self.pause_s)
        number = int(message.body)
        self.got.append(number)
        self.at.setdefault(number, self.pair.clock.monotonic())

    async def has(self, count: int, within_s: float = 120.0) -> None:
        await until(lambda: len(set(self.got)) >= count, within_s)


class PullTimes:
    """Counts the pulls that a broker serves, and notes when it gives messages."""

    def __init__(self, node: Node, pair: Pair) -> None:
        self.pulls = 0
        self.found_at: list[float] = []
        reader = node.store.reader
        get = reader.get

        def counted(*args: Any, **options: Any) -> GetResult:
            result = get(*args, **options)
            self.pulls += 1
            assert self.pulls < MAX_PULLS, "a tight loop"
            if result.count:
                self.found_at.append(pair.clock.monotonic())
            return result

        reader.get = counted  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def clients(master: str = "", slave: str = "", seed: int = 1) -> AsyncIterator[Clients]:
    """A master, its slave, and the topic."""
    async with pair(seed) as world:
        made = Clients(world, world.node(MASTER + master), world.node(SLAVE + slave))
        await made.master.start()
        await made.slave.start()
        await made.send(0, 4)
        await made.copied()
        await asyncio.sleep(5)
        yield made


def message(number: int) -> Message:
    return Message(TOPIC, b"%04d" % number)
