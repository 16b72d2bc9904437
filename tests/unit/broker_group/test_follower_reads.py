"""Reads at followers of a group: consumers that are far behind, and all of them while nobody leads."""

import asyncio

from tests.kit import virtual
from tests.unit.broker_group.failover import bodies, desk_of_leader
from tests.unit.broker_group.kit import Group, group, member_of
from tests.unit.replication.kit import NAME_SERVER, Node
from tests.unit.replication.reading_kit import memory_of, pull, suggested

from turbopump.client.message import MessageExt
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere
from turbopump.client.world import World
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.record import decode_all
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk

OK = ResponseCode.SUCCESS
READS = "slaveReadEnable=true\n"
COUNT = 100


async def send(world: Group, first: int, count: int) -> None:
    desk = await desk_of_leader(world)
    for number in range(first, first + count):
        assert (await desk.send("T", b"%05d" % number + bytes(200))).code == OK


def numbers(count: int, first: int = 0) -> list[int]:
    return list(range(first, first + count))


@virtual
async def test_a_consumer_that_is_far_behind_is_sent_to_a_follower_and_gets_all_there() -> None:
    with memory_of(10_000):
        async with group(READS) as world:
            leader = await world.leader()
            await send(world, 0, COUNT)
            await world.equal()
            behind, near = await pull(world, leader, 0), await pull(world, leader, COUNT - 1)
            ids = {member_of(node).slave_id: node for node in world.followers()}
            assert suggested(near) == 0
            follower = ids.get(suggested(behind)) or ids[suggested(behind) + 1]
            assert len(await bodies(world, follower)) == COUNT
            last = await pull(world, follower, COUNT - 1)
            assert (last.code, suggested(last)) == (OK, 0), "it goes back to the leader"


@virtual
async def test_a_follower_gives_out_nothing_that_is_not_committed() -> None:
    async with group(READS) as world:
        leader = await world.leader()
        await send(world, 0, 10)
        await world.equal()
        follower, other = world.followers()
        await other.kill()
        # Entries come to the follower, and its acknowledgements do not come back.
        world.network._cut.add((follower.ip, leader.ip))
        late = asyncio.create_task(world.send(leader, b"late"))
        await world.until(lambda: follower.store.log.end > follower.store.log.dispatched)
        answer = await pull(world, follower, 10)
        assert answer.code != OK, "a consumer saw what is not committed"
        assert (await late).code != OK


class Reader:
    """A push consumer of ours that reads each queue in order, at most so far as it may."""

    def __init__(self, world: Group) -> None:
        self.read: list[int] = []
        self.may_go_on = asyncio.Event()
        self.consumer = Consumer(
            "readers",
            name_servers=NAME_SERVER,
            world=World(world.network.at("10.0.1.1"), world.clock, Chance(1)),
            disk=SimulatedDisk(Chance(1), world.clock),
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            pull_threshold_for_queue=16,
            poll_name_server_interval=5.0,
        )
        self.consumer.subscribe("T", self._take, "*", ordered=True)

    async def _take(self, message: MessageExt) -> None:
        await self.may_go_on.wait()
        self.read.append(int(message.body[:5]))


async def lose_majority(world: Group) -> Node:
    """Kills the leader and a follower; returns the one that is left."""
    left, other = world.followers()
    leader = await world.leader()
    await leader.kill()
    await other.kill()
    return left


@virtual
async def test_consumers_go_on_at_a_follower_while_the_group_has_no_leader() -> None:
    async with group(READS) as world:
        await send(world, 0, COUNT)
        await world.equal()
        reader = Reader(world)
        await reader.consumer.start()
        await asyncio.sleep(5)  # it has some messages, and does not go on with them yet
        left = await lose_majority(world)
        assert reader.read == []
        reader.may_go_on.set()
        await world.until(lambda: len(set(reader.read)) == COUNT, 180)
        assert sorted(set(reader.read)) == numbers(COUNT)
        assert world.leader_now() is None
        assert decode_all((await pull(world, left, 0)).body)
        for node in world.nodes:
            if node.broker is None:
                await node.start()
        await world.leader()
        await send(world, COUNT, 10)
        await world.until(lambda: len(set(reader.read)) == COUNT + 10, 120)
        await reader.consumer.close()
