"""A slave deletes old files of its log when its master has, or when its disk is full."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import FILE_SIZE, BrokerDesk, Node, Pair, pair
from tests.unit.replication.played import PlayedLog, PlayedMaster
from tests.unit.replication.promotion_kit import bodies, promoted

from turbopump.broker.replicas.slave_retention import SlaveRetention
from turbopump.replication.comparison import CannotCompare, Extent
from turbopump.replication.progress import CopyProgress
from turbopump.replication.slave import MasterAddress, SlaveState

ALWAYS = "deleteWhen=" + ";".join(map(str, range(24)))
KEEPS = f"brokerRole=ASYNC_MASTER\nfileReservedTime=10000\n{ALWAYS}\n"
SLAVE = f"brokerRole=SLAVE\nbrokerId=1\nfileReservedTime=10000\n{ALWAYS}\n"
ROUNDS_S = 90.0  # a store deletes nothing in its first minute, then looks every ten seconds
LEVEL_OF_5_MIN = 9


async def filled(world: Pair) -> tuple[Node, Node]:
    """A master and its slave, with a message that waits for five minutes in the first of three files."""
    master, slave = world.node(KEEPS), world.node(SLAVE)
    await master.start()
    await slave.start()
    await BrokerDesk(world, master).send("T", b"late", pairs={"DELAY": str(LEVEL_OF_5_MIN)})
    for number in range(80):
        await world.send(master, b"%d" % number + bytes(30_000))
    await world.copied(master, slave)
    assert slave.store.log.end > 2 * FILE_SIZE
    return master, slave


def expire(node: Node) -> None:
    """Lets all files of a node be expired."""
    node.store.retention.configure(replace(node.store.config, file_reserved_hours=0))


async def delete_expired(master: Node) -> None:
    expire(master)
    await master.store.retention.round()
    assert master.store.log.min_offset == 2 * FILE_SIZE


@virtual
async def test_a_slave_keeps_what_its_master_has_however_old(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with pair() as world:
        _, slave = await filled(world)
        expire(slave)
        await asyncio.sleep(ROUNDS_S)
        assert slave.store.log.min_offset == 0
        lines = [line for line in caplog.messages if "Keeping the expired log" in line]
        assert len(lines) == 1
        assert "the log of the master at 10.0.0.1:10911 begins at 0" in lines[0]


@virtual
async def test_a_slave_deletes_what_its_master_has_deleted() -> None:
    async with pair() as world:
        master, slave = await filled(world)
        expire(slave)
        await asyncio.sleep(ROUNDS_S)
        await delete_expired(master)
        await asyncio.sleep(30)
        assert slave.store.log.min_offset == 2 * FILE_SIZE


@virtual
async def test_a_slave_with_a_longer_time_of_its_own_keeps_its_files() -> None:
    async with pair() as world:
        master, slave = await filled(world)
        await asyncio.sleep(ROUNDS_S)
        await delete_expired(master)
        await asyncio.sleep(30)
        assert slave.store.log.min_offset == 0


@pytest.mark.parametrize("master_deletes", [True, False])
@virtual
async def test_a_message_that_waits_in_an_expired_file_comes_after_a_promotion(master_deletes: bool) -> None:
    async with pair() as world:
        master, slave = await filled(world)
        expire(slave)
        await asyncio.sleep(ROUNDS_S)
        if master_deletes:  # after it has rewritten the message
            await delete_expired(master)
            await asyncio.sleep(30)
        await promoted(world, master, slave, conf=KEEPS)
        assert b"late" not in bodies(slave)
        await asyncio.sleep(300)
        assert Counter(bodies(slave))[b"late"] == 1


@virtual
async def test_without_its_master_a_slave_keeps_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with pair() as world:
        master, slave = await filled(world)
        await master.stop()
        expire(slave)
        await asyncio.sleep(ROUNDS_S)
        assert slave.store.log.min_offset == 0
        assert "the master, which may still have it, cannot be asked" in caplog.text


@virtual
async def test_a_slave_with_a_full_disk_deletes_early_and_is_incomplete(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as world:
        master, slave = await filled(world)
        progress = slave.broker.replication.requests._side.progress  # type: ignore[union-attr]
        slave.disk.used_ratio = 0.89
        await asyncio.sleep(120)
        assert slave.store.log.min_offset == 0, "its master may make room by deleting first"
        slave.disk.used_ratio = 0.95
        await asyncio.sleep(30)
        assert slave.store.log.min_offset == 2 * FILE_SIZE
        slave.disk.used_ratio = 0.5
        assert "The disk is full: deleting the log before" in caplog.text
        missing = f"it lacks the first {2 * FILE_SIZE} bytes of its master's log"
        assert progress.state.missing(slave.store.log.end) == missing
        await slave.stop()
        await slave.start()
        await world.until(lambda: slave.slave.state is SlaveState.FOLLOWING)
        progress = slave.broker.replication.requests._side.progress  # type: ignore[union-attr]
        assert progress.state.missing(slave.store.log.end) == missing
        await delete_expired(master)
        await master.stop()
        await master.start()
        await world.until(lambda: slave.slave.state is SlaveState.FOLLOWING)
        await world.until(lambda: progress.state.missing(slave.store.log.end) == "")


@virtual
async def test_the_beginning_of_an_apache_masters_log_counts_as_well() -> None:
    async with pair() as world:
        source = world.node(KEEPS + "brokerName=source\n")
        await source.start()
        for number in range(20):
            await world.send(source, b"%d" % number + bytes(30_000))
        master = PlayedMaster(world, "10.0.0.6", PlayedLog(source.log), FILE_SIZE)
        await master.start()
        slave = world.node(SLAVE)
        await slave.start()
        try:
            await world.until(lambda: slave.store.replica.dispatched == source.store.log.end)
            before = len(source.log)
            for number in range(80):
                await world.send(source, b"%d" % number + bytes(30_000))
            master.append(source.log[before:])
            await world.until(lambda: slave.store.replica.dispatched == source.store.log.end)
            expire(slave)
            await asyncio.sleep(ROUNDS_S)
            assert slave.store.log.min_offset == 0
            master.log.data, master.log.begin = master.log.data[FILE_SIZE:], FILE_SIZE
            await asyncio.sleep(30)
            assert slave.store.log.min_offset == FILE_SIZE
        finally:
            await slave.stop()
            await master.stop()


class Scene:
    """A guard with everything around it played."""

    def __init__(self) -> None:
        self.master: Extent | None = Extent(0, 0)
        self.asked = 0
        self.replica = SimpleNamespace(dispatched=0)
        address = MasterAddress("m:1", "m:2")
        self.slave = SimpleNamespace(state=SlaveState.FOLLOWING, master=address, is_ours=True)
        self.progress = CopyProgress(lambda data: None, lambda: 0.0)
        self.is_full = False
        parts: Any = (self.slave, self, self.replica, self.progress, lambda: self.is_full)
        self.guard = SlaveRetention(*parts)

    async def extent(self, address: str, is_ours: bool) -> Extent:
        self.asked += 1
        if self.master is None:
            raise CannotCompare("it hangs")
        return self.master


@virtual
async def test_a_file_goes_when_all_that_the_master_had_by_its_deletion_is_here() -> None:
    """The master has rewritten what waited in the file: at the end of its log, which is not copied yet."""
    scene = Scene()
    scene.master, scene.replica.dispatched = Extent(1000, 5000), 4000
    assert not await scene.guard.may_delete(1000)
    scene.master = Extent(1000, 9000)  # it goes on growing
    scene.replica.dispatched = 5000
    assert await scene.guard.may_delete(1000)
    assert scene.asked == 1


@virtual
async def test_an_answer_of_another_master_does_not_count() -> None:
    scene = Scene()
    scene.master, scene.replica.dispatched = Extent(1000, 5000), 4000
    assert not await scene.guard.may_delete(1000)
    scene.replica.dispatched = 5000
    scene.slave.master, scene.master = MasterAddress("other:1", "other:2"), Extent(0, 5000)
    assert not await scene.guard.may_delete(1000)


@virtual
async def test_a_master_that_does_not_answer_keeps_the_file() -> None:
    scene = Scene()
    scene.master = None
    assert not await scene.guard.may_delete(1000)
    scene.is_full = True
    assert await scene.guard.may_delete(1000)
