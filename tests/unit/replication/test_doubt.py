"""Slaves that may have lost a part of their copy: they say so, until they are compared again."""

import asyncio

import msgspec
from tests.kit import virtual
from tests.unit.replication.kit import Node, Pair, pair

from turbopump.protocol.codes import RequestCode
from turbopump.testing.simulated_files import Survival

MASTER = "brokerRole=ASYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"


async def _status(world: Pair, node: Node) -> dict[str, str]:
    answer = await world.call(node, RequestCode.REPLICA_STATUS)
    status: dict[str, str] = msgspec.json.decode(answer.body)
    return status


async def _reaches(world: Pair, node: Node, state: str) -> None:
    async with asyncio.timeout(60):
        while (await _status(world, node))["state"] != state:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)


async def _crash(node: Node) -> None:
    """Ends a node, and leaves its disk as a crash of the machine does."""
    disk, node.disk = node.disk, node.disk.crash(Survival.LOST)
    disk.is_off = False  # for the process, which goes on until it is stopped
    await node.stop()


@virtual
async def test_a_slave_that_crashed_is_incomplete_until_it_is_compared_again() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await slave.start()
        await world.send(master, b"one")
        await world.copied(master, slave)
        await _reaches(world, slave, "following")
        assert (await _status(world, slave))["missing"] == ""
        world.network.cut(master.ip, slave.ip)
        await _crash(slave)
        await slave.start()
        assert "crashed" in (await _status(world, slave))["missing"]
        world.network.join(master.ip, slave.ip)
        await _reaches(world, slave, "following")
        assert (await _status(world, slave))["missing"] == ""


@virtual
async def test_a_slave_that_was_no_copy_is_incomplete_also_when_that_master_is_gone() -> None:
    async with pair() as world:
        first, second, slave = world.node(MASTER), world.node(MASTER), world.node(SLAVE)
        await first.start()
        await slave.start()
        for number in range(5):
            await world.send(first, b"%d" % number)
        await world.copied(first, slave)
        await first.stop()
        await second.start()
        await world.send(second, b"another log")
        await _reaches(world, slave, "stopped")
        await second.stop()
        await _reaches(world, slave, "searching")
        assert "ahead" in (await _status(world, slave))["missing"]
