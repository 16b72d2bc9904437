"""Committed offsets of a member that was started and does not know yet which entries are committed."""

import asyncio

from tests.kit import virtual
from tests.unit.broker_group.kit import group
from tests.unit.broker_group.table_kit import SAVED_S, commit, committed

from turbopump.protocol.codes import ResponseCode


@virtual
async def test_a_member_that_waits_for_its_group_does_not_move_offsets_back() -> None:
    async with group("flushConsumerOffsetInterval=1000\n") as world:
        leader = await world.leader()
        for number in range(3):
            assert (await world.send(leader, b"%d" % number)).code == ResponseCode.SUCCESS
        await commit(world, leader, 3)
        await asyncio.sleep(SAVED_S)
        follower = world.followers()[0]
        for node in list(world.running):
            await node.kill()
        await follower.start()  # alone: nothing can be committed
        await asyncio.sleep(SAVED_S)
        assert follower.store.log.dispatched == 0
        assert await committed(world, follower) == "3"
