"""preferredLeaderId in a group of whole brokers."""

import asyncio

from tests.kit import virtual
from tests.unit.broker_group.failover import bodies
from tests.unit.broker_group.kit import Group, group, member_of
from tests.unit.broker_group.traffic_kit import Traffic, kill
from tests.unit.replication.kit import Node


async def leads(world: Group, node: Node, within_s: float = 20.0) -> None:
    await world.until(lambda: world.leader_now() is node, within_s)


@virtual
async def test_a_preferred_leader_leads_whenever_it_can_and_no_send_fails() -> None:
    async with group("preferredLeaderId=n2\n") as world:
        preferred = world.nodes[2]
        await leads(world, preferred)
        async with Traffic(world) as made:
            await made.goes_on()
            term = member_of(preferred).term
            await kill(world, preferred)
            second = await world.leader()
            assert second is not preferred
            await made.goes_on()
            await preferred.start()
            await leads(world, preferred)
            await made.goes_on()
            assert made.failed == []
            assert member_of(preferred).term == term + 2, "one election, one transfer"


@virtual
async def test_of_two_preferred_leaders_the_one_that_leads_stays() -> None:
    async with group("preferredLeaderId=n1;n2\n") as world:
        await world.until(lambda: world.leader_now() in world.nodes[1:], 20)
        leader = await world.leader()
        term = member_of(leader).term
        await asyncio.sleep(30)
        assert world.leader_now() is leader
        assert member_of(leader).term == term
        await leader.kill()
        (other,) = [node for node in world.nodes[1:] if node is not leader]
        await leads(world, other)


@virtual
async def test_a_preferred_leader_that_lacks_much_copies_first() -> None:
    async with group("preferredLeaderId=n2\n") as world:
        preferred = world.nodes[2]
        await leads(world, preferred)
        await preferred.kill()
        leader = await world.leader()
        for number in range(1500):
            assert (await world.send(leader, b"%d" % number)).code == 0
        await preferred.start()
        await leads(world, preferred, 60)
        assert len(await bodies(world, preferred)) == 1500
