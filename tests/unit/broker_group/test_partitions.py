"""A leader cut off from its group: its sends are answered, its tail is cut, clients go to the other."""

import asyncio

from tests.kit import virtual
from tests.unit.broker_group.failover import bodies
from tests.unit.broker_group.kit import Group, broker_of, group
from tests.unit.broker_group.partition_kit import cut_off, join
from tests.unit.replication.kit import NAME_SERVER, NAME_SERVER_IP, Node

from turbopump.client.message import Message
from turbopump.client.produce.producer import Producer
from turbopump.client.world import World
from turbopump.protocol.codes import ResponseCode
from turbopump.runtime.chance import Chance

OK = ResponseCode.SUCCESS
STEPPED_DOWN_WITHIN_S = 10.0


async def other_leader(world: Group, old: Node) -> Node:
    await world.until(lambda: world.leader_now() not in (None, old))
    return await world.leader()


@virtual
async def test_sends_at_a_leader_that_is_cut_off_are_answered_and_their_tail_is_replaced() -> None:
    async with group() as world:
        old = await world.leader()
        before = [b"before %d" % number for number in range(5)]
        for body in before:
            assert (await world.send(old, body)).code == OK
        await world.equal()
        cut_off(world, old)
        began = world.clock.monotonic()
        lost = [asyncio.create_task(world.send(old, b"lost %d" % number)) for number in range(7)]
        while not all(task.done() for task in lost):
            assert await bodies(world, old) == before, "a consumer saw what is not committed"
            await asyncio.sleep(0.2)
        assert world.clock.monotonic() - began < STEPPED_DOWN_WITHIN_S
        assert all(task.result().code != OK for task in lost)
        new = await other_leader(world, old)
        after = [b"after %d" % number for number in range(3)]
        for number, body in enumerate(after):
            answer = await world.send(new, body)
            assert (answer.code, (answer.ext or {})["queueOffset"]) == (OK, str(5 + number))
        await world.until(lambda: broker_of(old).config.identity.is_slave)
        assert await bodies(world, old) == before
        join(world, old)
        await world.equal()
        for node in world.nodes:
            queue = node.store.queues.find("T", 0)
            assert queue is not None
            assert (queue.min_offset, queue.max_offset, queue.next_offset) == (0, 8, 8)
            assert await bodies(world, node) == before + after
        assert len({node.log for node in world.nodes}) == 1


@virtual
async def test_a_leader_that_was_cut_off_and_leads_again_gives_dense_queue_offsets() -> None:
    """The queue offsets that it gave to its cut tail are given again."""
    async with group() as world:
        old = await world.leader()
        assert (await world.send(old, b"0")).code == OK
        await world.equal()
        cut_off(world, old)
        await asyncio.gather(*(world.send(old, b"lost") for _ in range(5)))
        new = await other_leader(world, old)
        assert (await world.send(new, b"1")).code == OK
        join(world, old)
        await world.equal()
        for node in world.nodes:
            if node is not old and world.leader_now() is not old:
                await node.stop()
                await world.until(lambda: world.leader_now() is not None)
                again = await world.leader()
                await node.start()
                await world.equal()
                if again is old:
                    break
        again = await world.leader()
        answer = await world.send(again, b"2")
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (OK, "2")
        await world.equal()
        for node in world.nodes:
            assert await bodies(world, node) == [b"0", b"1", b"2"]


@virtual
async def test_a_producer_goes_to_the_new_leader() -> None:
    async with group() as world:
        old = await world.leader()
        assert (await world.send(old, b"first")).code == OK
        await world.equal()
        host = world.network.at("10.0.1.1")
        producer = Producer("makers", name_servers=NAME_SERVER, world=World(host, world.clock, Chance(1)))
        await producer.start()
        await producer.send(Message("T", b"by the old leader"))
        cut_off(world, old, NAME_SERVER_IP)
        began, sent = world.clock.monotonic(), 0
        while sent < 5 and world.clock.monotonic() - began < 120:
            try:
                await producer.send(Message("T", b"by the new leader %d" % sent))
                sent += 1
            except Exception:
                await asyncio.sleep(1)
        assert sent == 5
        new = await other_leader(world, old)
        found = [body for queue_id in range(4) for body in await bodies(world, new, queue_id=queue_id)]
        assert {b"by the old leader", *(b"by the new leader %d" % number for number in range(5))} <= set(
            found
        )
        await producer.close()
        join(world, old, NAME_SERVER_IP)
