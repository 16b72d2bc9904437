"""Known ways to lose data in a DLedger group, by their rows in the list of known failures."""

import asyncio

from tests.kit import virtual
from tests.unit.broker_group.kit import Group, broker_of, group
from tests.unit.replication.kit import Node

from turbopump.protocol.codes import ResponseCode

OK = ResponseCode.SUCCESS
COUNT = 50


async def bodies(world: Group, node: Node) -> list[bytes]:
    found: list[bytes] = []
    while more := await world.pull(node, offset=len(found)):
        found += more
    return found


async def send_all(world: Group, node: Node) -> list[bytes]:
    sent = [b"%02d" % number for number in range(COUNT)]
    for body in sent:
        assert (await world.send(node, body)).code == OK
    return sent


@virtual
async def test_rows_1_and_2_all_queues_are_whole_after_all_processes_were_killed() -> None:
    """apache/rocketmq#7355, #8032: recovery left the tail out of the queues, or deleted queue data."""
    async with group() as world:
        sent = await send_all(world, await world.leader())
        await world.equal()
        for node in world.nodes:
            await node.kill()
        for node in world.nodes:
            await node.start()
        await world.leader()
        await world.equal()
        for node in world.nodes:
            queue = node.store.queues.find("T", 0)
            assert queue is not None
            assert (queue.min_offset, queue.max_offset) == (0, COUNT)
            assert await bodies(world, node) == sent


@virtual
async def test_row_15_an_old_leader_that_returns_serves_as_slave_while_another_one_leads() -> None:
    """apache/rocketmq#1464: a node that rejoined registered as id 0 before it knew its role."""
    async with group() as world:
        old = await world.leader()
        await world.send(old, b"one")
        await old.kill()
        new = await world.leader()
        await old.start()
        for _ in range(100):
            assert broker_of(old).config.identity.broker_id != 0
            await asyncio.sleep(0.1)
        assert world.leader_now() is new


@virtual
async def test_rows_28_and_29_sends_without_a_majority_are_answered_and_stored_at_most_once() -> None:
    """Apache's leader never answers appends that wait when it steps down; they may be committed later."""
    async with group() as world:
        leader = await world.leader()
        assert (await world.send(leader, b"before")).code == OK
        for follower in world.followers():
            await follower.kill()
        answers = await asyncio.gather(*(world.send(leader, b"%d" % number) for number in range(5)))
        assert all(answer.code != OK for answer in answers)
        await asyncio.sleep(20)
        assert (await world.send(leader, b"late")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        for node in world.nodes:
            if node.broker is None:
                await node.start()
        leader = await world.leader()
        assert (await world.send(leader, b"after")).code == OK
        found = await bodies(world, leader)
        assert found[0] == b"before"
        assert found[-1] == b"after"
        assert len(found) == len(set(found))
        assert b"late" not in found
