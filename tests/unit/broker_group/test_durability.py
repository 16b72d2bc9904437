"""What an answered send survives: flushDiskType in a DLedger group, on disks that lose unsynced writes."""

import pytest
from tests.kit import virtual
from tests.unit.broker_group.failover import bodies
from tests.unit.broker_group.kit import Group, broker_of, group

from turbopump.testing.disk import SimulatedWorkers
from turbopump.testing.simulated_files import Survival

SYNC = "flushDiskType=SYNC_FLUSH\n"
COUNT = 20


async def power_cut(world: Group, survival: Survival) -> None:
    """All machines lose their power at once, and come back."""
    for node in world.nodes:
        node.disk.crash(Survival.KEPT) if node.broker is None else await node.kill(survival)
    for node in world.nodes:
        await node.start()
    await world.leader()
    await world.equal()


@pytest.mark.parametrize("survival", [Survival.LOST, Survival.RANDOM])
@virtual
async def test_with_sync_flush_an_answered_message_survives_a_power_cut_of_all(survival: Survival) -> None:
    async with group(SYNC) as world:
        leader = await world.leader()
        for number in range(COUNT):
            answer = await world.send(leader, b"%d" % number)
            assert (answer.code, (answer.ext or {})["durability"]) == (0, "quorum")
            assert (answer.ext or {})["replicasOnDisk"] == "2"
        await power_cut(world, survival)
        for node in world.nodes:
            assert await bodies(world, node) == [b"%d" % number for number in range(COUNT)]


@virtual
async def test_with_sync_flush_the_answer_waits_until_a_second_disk_has_synced() -> None:
    async with group(SYNC) as world:
        leader = await world.leader()
        assert (await world.send(leader, b"first")).code == 0
        await world.equal()
        for node in world.followers():
            workers = broker_of(node)._workers
            assert isinstance(workers, SimulatedWorkers)
            workers.stall(1.5)
        began = world.clock.monotonic()
        assert (await world.send(leader, b"second")).code == 0
        assert world.clock.monotonic() - began >= 1.5


@virtual
async def test_with_sync_flush_one_slow_disk_of_three_delays_nobody() -> None:
    async with group(SYNC) as world:
        leader = await world.leader()
        assert (await world.send(leader, b"first")).code == 0
        await world.equal()
        workers = broker_of(world.followers()[0])._workers
        assert isinstance(workers, SimulatedWorkers)
        workers.stall(30)
        began = world.clock.monotonic()
        for number in range(10):
            assert (await world.send(leader, b"%d" % number)).code == 0
        assert world.clock.monotonic() - began < 1.0


@virtual
async def test_with_async_flush_the_receipt_claims_no_disk() -> None:
    async with group() as world:
        leader = await world.leader()
        answer = await world.send(leader, b"one")
        assert (answer.ext or {})["durability"] == "quorum"
        assert (answer.ext or {})["replicasOnDisk"] == "0"
        assert "in memory" in broker_of(leader).acknowledgement
        assert "flushDiskType=SYNC_FLUSH" in broker_of(leader).acknowledgement
        await world.equal()
        await power_cut(world, Survival.KEPT)  # of the processes alone
        assert await bodies(world, await world.leader()) == [b"one"]
