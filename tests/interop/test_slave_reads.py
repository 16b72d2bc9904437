"""Our consumers with Apache's master and slave: who is behind reads from the slave when the master suggests
it, while the master is away everybody does, and when it is back, it is read again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from turbopump.client.admin import Admin
from turbopump.client.admin.clusters import BrokerNotFound
from turbopump.client.message import Message, MessageExt
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.protocol.bodies import TopicConfig
from turbopump.protocol.errors import Refused

from . import artifacts, peers
from .conftest import Early

TOPIC, BROKER = "orders", "broker-a"
QUEUES = 4
PATIENCE_S = 90.0
SLAVE = {"brokerId": "1", "brokerRole": "SLAVE", "slaveReadEnable": "true"}
MASTER = {
    "brokerRole": "ASYNC_MASTER",
    "slaveReadEnable": "true",
    "accessMessageInMemoryMaxRatio": "0",  # whoever is behind at all is sent to the slave
}
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


IN_CI = "4.9.7"
EARLY = {f"slave-{kind}": lambda home, kind=kind: tell(kind, home) for kind in artifacts.SERVERS}


@pytest.mark.early(f"slave-{IN_CI}")
def test_consumers_read_on_from_the_slave_while_the_master_is_away(early: Early) -> None:
    early(f"slave-{IN_CI}")


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in artifacts.SERVERS if kind != IN_CI])
def test_the_same_with_other_servers(kind: str, tmp_path: Path) -> None:
    tell(kind, tmp_path)


def tell(kind: str, tmp_path: Path) -> None:
    with peers.start(kind, peers.place(tmp_path / "master"), MASTER) as master:
        slave = peers.join(master, tmp_path / "slave", BROKER, SLAVE)
        try:
            asyncio.run(asyncio.wait_for(Story(master, slave).run(), 6 * PATIENCE_S))
        finally:
            slave.discard()


class Story:
    def __init__(self, master: peers.Cluster, slave: peers.Cluster) -> None:
        self.master = master
        self.slave = slave
        self.admin = Admin(master.namesrv)
        self.sent: list[str] = []
        self.pushed: Counter[str] = Counter()
        self.pulled: Counter[str] = Counter()

    async def run(self) -> None:
        async with self.admin, asyncio.TaskGroup() as tasks:
            await self.begin()
            pusher, puller = self.push_consumer(), self.pull_consumer("pullers")
            async with pusher, puller:
                reading = tasks.create_task(self.read(puller))
                await eventually(self.everything_came)
                assert await self.given_out_by(self.slave) > 0
                assert await self.given_out_by(self.master) > 0
                await self.without_the_master(pusher, puller)
                await self.with_both_again()
                await self.without_the_slave()
                reading.cancel()

    async def begin(self) -> None:
        config = TopicConfig(topicName=TOPIC, readQueueNums=QUEUES, writeQueueNums=QUEUES)
        await self.admin.topics.create(self.master.broker_addr, config)
        await eventually(self.master_has_the_topic)
        await self.send(200)
        await eventually(self.slave_has_all)

    async def without_the_master(self, pusher: Consumer, puller: PullConsumer) -> None:
        """What a pull under way brings in is much less than what is sent while both pause."""
        pusher.pause()
        puller.pause()
        await self.send(600)
        await eventually(self.slave_has_all)
        before = await self.given_out_by(self.slave)
        self.master.kill_broker()
        pusher.resume()
        puller.resume()
        await eventually(self.everything_came)
        assert await self.given_out_by(self.slave) > before + 600
        late: Counter[str] = Counter()
        async with self.pull_consumer("late") as newcomer:  # a group that knows the slave only
            async with asyncio.timeout(PATIENCE_S):
                while len(late) < len(self.sent):
                    late.update(message.text for message in await newcomer.poll(1))
        assert set(late) == set(self.sent)

    async def with_both_again(self) -> None:
        await asyncio.to_thread(self.master.start_broker)
        await eventually(self.master_has_the_topic)
        await self.send(100)
        await eventually(self.everything_came)
        await eventually(self.the_master_is_read)

    async def without_the_slave(self) -> None:
        await eventually(self.slave_has_all)
        self.slave.kill_broker()
        await self.send(100)
        await eventually(self.everything_came)

    # Reading

    def push_consumer(self) -> Consumer:
        consumer = Consumer("pushers", name_servers=self.master.namesrv, consume_from_where=FIRST)

        async def take(message: MessageExt) -> None:
            self.pushed[message.text] += 1

        consumer.subscribe(TOPIC, take)
        return consumer

    def pull_consumer(self, group: str) -> PullConsumer:
        return PullConsumer(group, topics=[TOPIC], name_servers=self.master.namesrv, consume_from_where=FIRST)

    async def read(self, puller: PullConsumer) -> None:
        async for message in puller:
            self.pulled[message.text] += 1

    # Looking

    async def send(self, count: int) -> None:
        producer = self.admin.producer("senders")
        for _ in range(count):
            text = f"{len(self.sent):04}"
            await producer.send(Message(TOPIC, text.encode()), PATIENCE_S)
            self.sent.append(text)

    async def master_has_the_topic(self) -> bool:
        try:
            route = await self.admin.routes.refresh(TOPIC)
            (await self.admin.clusters.layout()).master_of(BROKER)
        except (Refused, BrokerNotFound):
            return False
        return len(route.publish) == QUEUES

    async def slave_has_all(self) -> bool:
        try:
            ends = (await self.admin.topics.stats_at(self.slave.broker_addr, TOPIC)).offsetTable
        except Refused:  # it asks its master for topics every ten seconds
            return False
        return sum(end.maxOffset for end in ends.values()) >= len(self.sent)

    async def given_out_by(self, server: peers.Cluster) -> int:
        return int((await self.admin.brokers.figures(server.broker_addr))["msgGetTotalTodayNow"])

    async def the_master_is_read(self) -> bool:
        """An address that failed is tried again after a while, and waiting pulls come back one by one."""
        await self.send(10)
        return await self.given_out_by(self.master) > 0

    async def everything_came(self) -> bool:
        return set(self.pushed) == set(self.pulled) == set(self.sent)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.2)
