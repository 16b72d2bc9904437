"""Clients that send to a group and read from it while members die."""

import asyncio
from dataclasses import dataclass, field

from tests.unit.broker_group.kit import Group
from tests.unit.replication.kit import NAME_SERVER, Node

from turbopump.client.message import Message, MessageExt
from turbopump.client.produce.producer import Producer
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk

TIMEOUT_S = 30.0
SENDERS = 4
PRODUCER_IP, CONSUMER_IP = "10.0.1.1", "10.0.1.2"


@dataclass
class Traffic:
    """Senders that send without a pause, and a consumer; `failed` has what a caller has seen."""

    world: Group
    sent: list[str] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    async def __aenter__(self) -> "Traffic":
        network, clock = self.world.network, self.world.clock
        self._producer = Producer(
            "makers",
            name_servers=NAME_SERVER,
            world=World(network.at(PRODUCER_IP), clock, Chance(1)),
            send_msg_timeout=TIMEOUT_S,
        )
        self._consumer = Consumer(
            "readers",
            name_servers=NAME_SERVER,
            world=World(network.at(CONSUMER_IP), clock, Chance(2)),
            disk=SimulatedDisk(Chance(1), clock),
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self._consumer.subscribe("T", self._take, "*")
        await self._producer.start()
        await self._consumer.start()
        self._senders = [asyncio.create_task(self._send(number)) for number in range(SENDERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        await self._consumer.close()
        await self._producer.close()

    async def _send(self, number: int) -> None:
        count = 0
        while True:
            body, count = f"{number}-{count}", count + 1
            try:
                await self._producer.send(Message("T", body.encode()))
                self.sent.append(body)
            except Exception as error:
                self.failed.append(error)
            await asyncio.sleep(0.05)

    def _take(self, message: MessageExt) -> None:
        self.read.append(message.body.decode())

    async def goes_on(self) -> None:
        """Waits until each sender has sent more, and all that was sent has been read."""
        count = len(self.sent)
        await self.world.until(lambda: len(self.sent) >= count + 10 * SENDERS, 60)
        sent = list(self.sent)
        await self.world.until(lambda: set(self.read).issuperset(sent), 120)


async def kill(world: Group, leader: Node) -> None:
    await leader.kill()
