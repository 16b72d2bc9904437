"""The life of a pair: rolling restarts, a lone broker that gets a slave, backups."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.kit import virtual
from tests.unit.broker import producers
from tests.unit.replication.kit import BrokerDesk, Node, Pair, pair

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.headers.offsets import UpdateConsumerOffsetRequest
from turbopump.replication.slave import SlaveState
from turbopump.store.backup import backup
from turbopump.testing.disk import SimulatedDisk

OK = ResponseCode.SUCCESS
MASTER, SYNC = "brokerRole=ASYNC_MASTER\n", "brokerRole=SYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"


async def following(world: Pair, master: Node, slave: Node) -> None:
    await world.until(lambda: slave.slave.state is SlaveState.FOLLOWING)
    await world.copied(master, slave)


def bodies(node: Node, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue, in its order."""
    queue = node.store.queues.find(topic, queue_id)
    found = []
    for offset in range(queue.min_offset, queue.max_offset) if queue is not None else ():
        entry = queue.entry(offset) if queue is not None else None
        assert entry is not None
        record = node.store.log.look_up(entry[0])
        assert record is not None
        found.append(record.body)
    return found


@virtual
async def test_a_rolling_restart_loses_nothing_that_was_acknowledged() -> None:
    """The slave first, then the master, while a producer goes on."""
    async with pair() as world:
        master, slave = world.node(SYNC), world.node(SLAVE)
        await master.start()
        await slave.start()
        await following(world, master, slave)
        acknowledged: list[tuple[bytes, int]] = []
        is_over = False

        async def produce() -> None:
            number = 0
            while not is_over:
                body = b"%04d" % number
                with contextlib.suppress(OSError):
                    answer = await world.send(master, body)
                    if answer.code in (
                        OK,
                        ResponseCode.SLAVE_NOT_AVAILABLE,
                        ResponseCode.FLUSH_SLAVE_TIMEOUT,
                    ):
                        acknowledged.append((body, int((answer.ext or {})["replicas"])))
                number += 1
                await asyncio.sleep(0.1)

        producing = asyncio.ensure_future(produce())
        await asyncio.sleep(3)
        for node in (slave, master):
            await node.stop()
            await asyncio.sleep(2)
            await node.start()
            await following(world, master, slave)
            await asyncio.sleep(3)
        is_over = True
        await producing
        await following(world, master, slave)
        assert slave.log == master.log
        assert {copies for _, copies in acknowledged} == {1, 2}
        stored = bodies(slave)
        assert set(stored) >= {body for body, _ in acknowledged}
        assert len(acknowledged) > 60
        assert sorted(stored) == stored


@pytest.mark.parametrize("ends_in_order", [True, False])
@virtual
async def test_the_store_of_a_lone_broker_becomes_that_of_a_pair(ends_in_order: bool) -> None:
    async with pair() as world:
        lone = world.node("")
        await lone.start()
        desk = BrokerDesk(world, lone)
        for number in range(50):
            await world.send(lone, b"%02d" % number + bytes(30_000))
        await desk.send("T", b"delayed", queue_id=1, pairs={"DELAY": "4"})
        half = await producers.prepare(desk, b"half", queue_id=2)
        header = UpdateConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0, commitOffset=20)
        assert (await world.call(lone, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == OK
        await asyncio.sleep(6)
        before = lone.log
        await (lone.stop() if ends_in_order else lone.kill())
        await lone.start(SYNC)
        slave = world.node(SLAVE)
        await slave.start()
        await following(world, lone, slave)
        assert slave.log[: len(before)] == before
        assert slave.slave.untaken == {}
        answer = await world.send(lone, b"two copies")
        assert (answer.code, (answer.ext or {})["replicas"]) == (OK, "2")
        await lone.kill()
        await slave.kill()
        await slave.start(MASTER)
        desk = BrokerDesk(world, slave)
        assert (await producers.end(desk, half, producers.COMMIT)).code == OK
        await asyncio.sleep(40)
        assert [body[:2] for body in bodies(slave)[:50]] == [b"%02d" % number for number in range(50)]
        assert bodies(slave)[50:] == [b"two copies"]
        assert bodies(slave, queue_id=1) == [b"delayed"]
        assert bodies(slave, queue_id=2) == [b"half"]


def copy_of(disk: SimulatedDisk, world: Pair) -> SimulatedDisk:
    """Makes a backup of a store and returns a disk that has it as its store."""
    for _ in backup("/store", "/backup", disk):
        pass
    made = SimulatedDisk(world.chance, world.clock)
    for part in ("config", "commitlog"):
        for entry in disk.entries(f"/backup/{part}"):
            made.make_dirs(f"/store/{part}")
            made.write(f"/store/{part}/{entry.name}", disk.read(f"/backup/{part}/{entry.name}"))
    made.sync_all("/store")
    return made


@pytest.mark.parametrize("of", ["master", "slave"])
@virtual
async def test_a_pair_is_restored_from_a_backup_of_either_node(of: str) -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await slave.start()
        await following(world, master, slave)
        desk = BrokerDesk(world, master)
        for number in range(40):
            await world.send(master, b"%02d" % number + bytes(30_000))
        await desk.send("T", b"delayed", queue_id=1, pairs={"DELAY": "4"})
        header = UpdateConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0, commitOffset=20)
        assert (await world.call(master, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == OK
        await asyncio.sleep(6)
        await world.copied(master, slave)
        before = master.log
        saved = copy_of((master if of == "master" else slave).disk, world)
        await master.kill()
        await slave.kill()
        master.disk, slave.disk = saved, SimulatedDisk(world.chance, world.clock)
        await master.start(MASTER)
        await slave.start(SLAVE)
        await following(world, master, slave)
        assert master.log[: len(before)] == before
        assert [body[:2] for body in bodies(master)] == [b"%02d" % number for number in range(40)]
        await asyncio.sleep(40)
        assert bodies(master, queue_id=1) == [b"delayed"]
        await world.copied(master, slave)
        assert slave.log == master.log
