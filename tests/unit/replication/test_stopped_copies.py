"""A stopped log beside a running master: where they part, by checksums or, as with Apache, by records."""

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import Node, Pair, pair

from turbopump.cli.replica import plan_of
from turbopump.replication.comparison import CannotCompare
from turbopump.replication.difference import BrokerLog, DirectoryLog, first_difference, first_foreign_record
from turbopump.store.stopped_log import StoppedLog

MASTER = "brokerRole=ASYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"
BIG = bytes(30_000)


class AsApaches(BrokerLog):
    """A broker that does not know checksums."""

    async def is_ours(self) -> bool:
        return False


async def parted(world: Pair, shared: int, mine: int, theirs: int) -> tuple[Node, StoppedLog, int]:
    """A master and a stopped copy, which part after `shared` messages; and the offset where they do."""
    master, other = world.node(MASTER), world.node(SLAVE)
    await master.start()
    for number in range(shared):
        await world.send(master, b"%d" % number + BIG)
    await other.start()
    await world.copied(master, other)
    end = master.store.log.end
    await other.stop()
    await master.stop()
    await other.start(MASTER)
    for number in range(mine):
        await world.send(other, b"mine %d" % number + BIG)
    await other.stop()
    await master.start()
    for number in range(theirs):
        await world.send(master, b"theirs %d" % number + BIG)
    return master, StoppedLog("/store", other.disk), end


@pytest.mark.parametrize(("shared", "mine", "theirs"), [(50, 3, 40), (80, 60, 2), (5, 1, 1)])
@virtual
async def test_the_last_record_that_both_have_is_found(shared: int, mine: int, theirs: int) -> None:
    async with pair() as world:
        master, log, end = await parted(world, shared, mine, theirs)
        ours = BrokerLog(world.tool, master.address)
        different = await first_difference(DirectoryLog(log), ours)
        assert different is not None
        assert end <= different < end + 200
        assert log.boundary(different) == end
        assert await first_foreign_record(log, ours) == end
        for asked in (ours, AsApaches(world.tool, master.address)):
            plan = await plan_of(log, asked)
            assert (plan.tail.begin, plan.tail.end, plan.tail.records) == (end, log.end, mine)


@virtual
async def test_a_copy_that_is_ahead_is_cut_at_the_masters_end() -> None:
    async with pair() as world:
        master, log, end = await parted(world, shared=40, mine=2, theirs=0)
        for asked in (BrokerLog(world.tool, master.address), AsApaches(world.tool, master.address)):
            plan = await plan_of(log, asked)
            assert (plan.tail.begin, plan.tail.records) == (end, 2)


@virtual
async def test_a_copy_that_is_only_behind_keeps_everything() -> None:
    async with pair() as world:
        master, log, _ = await parted(world, shared=40, mine=0, theirs=10)
        for asked in (BrokerLog(world.tool, master.address), AsApaches(world.tool, master.address)):
            plan = await plan_of(log, asked)
            assert plan.tail.bytes == 0
            assert "nothing has to be set aside" in plan.note


@virtual
async def test_a_log_of_another_broker_goes_as_a_whole() -> None:
    async with pair() as world:
        master, log, _ = await parted(world, shared=0, mine=5, theirs=5)
        for asked in (BrokerLog(world.tool, master.address), AsApaches(world.tool, master.address)):
            plan = await plan_of(log, asked)
            assert (plan.tail.begin, plan.tail.records) == (0, 5)


@virtual
async def test_a_master_that_does_not_answer_is_named() -> None:
    async with pair() as world:
        with pytest.raises(CannotCompare, match=r"10\.0\.0\.77:10911 does not answer"):
            await BrokerLog(world.tool, "10.0.0.77:10911").extent()
