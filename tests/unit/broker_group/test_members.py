"""What every member of a group has: deletions, tables, all on an emptied disk, what retention leaves."""

import asyncio
from dataclasses import replace

from tests.kit import virtual
from tests.unit.broker_group.failover import (
    bodies,
    commit_offset,
    desk_of_leader,
    next_leader,
    offset_of,
    topics_of,
)
from tests.unit.broker_group.kit import Group, group, member_of
from tests.unit.replication.kit import FILE_SIZE, BrokerDesk, Node

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.headers.replicas import RaftTransferRequest
from turbopump.testing.disk import SimulatedDisk

OK = ResponseCode.SUCCESS
ALWAYS = "fileReservedTime=10000\ndeleteWhen=" + ";".join(map(str, range(24))) + "\n"


async def lead(world: Group, target: Node) -> None:
    """Gives the leadership to a member."""
    leader = await world.leader()
    if leader is not target:
        header = RaftTransferRequest(member=member_of(target).group.own_id)
        answer = await world.call(leader, RequestCode.RAFT_TRANSFER, header)
        assert answer.code == OK, answer
        await world.until(lambda: world.leader_now() is target)


@virtual
async def test_a_deleted_topic_is_deleted_at_all_members_and_stays_deleted() -> None:
    async with group("autoCreateTopicEnable=true\n") as world:
        desk = await desk_of_leader(world)
        assert (await desk.send("T", b"one")).code == OK
        assert (await desk.send("Gone", b"one")).code == OK
        await asyncio.sleep(1)  # a change after a quiet time is answered when the group has it
        assert (await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})).code == OK
        await world.equal()
        for node in world.nodes:
            topics = await topics_of(BrokerDesk(world, node))
            assert "Gone" not in topics
            assert "T" in topics
        desk = await next_leader(world)
        assert "Gone" not in await topics_of(desk)
        assert await bodies(world, await world.leader()) == [b"one"]


@virtual
async def test_a_topic_that_is_created_again_at_the_next_leader_begins_with_new_messages() -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        for _ in range(3):
            assert (await desk.send("T", b"old")).code == OK
        await asyncio.sleep(1)  # a change after a quiet time is answered when the group has it
        assert (await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == OK
        await world.equal()
        desk = await next_leader(world)
        answer = await desk.send("T", b"new")
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (OK, "0")
        for node in world.nodes:
            if node.broker is None:
                await node.start()
        await world.equal()
        for node in world.nodes:
            assert await bodies(world, node) == [b"new"]


@virtual
async def test_a_member_with_an_emptied_disk_gets_everything_and_can_lead() -> None:
    async with group("flushConsumerOffsetInterval=1000\n") as world:
        desk = await desk_of_leader(world)
        sent = [b"%d" % number for number in range(50)]
        for body in sent:
            assert (await desk.send("T", body)).code == OK
        await commit_offset(desk, 17)
        await asyncio.sleep(2)
        emptied = world.followers()[0]
        await emptied.kill()
        emptied.disk = SimulatedDisk(world.chance, world.clock)
        await emptied.start()
        await world.joined()
        await world.equal()
        assert await bodies(world, emptied) == sent
        await lead(world, emptied)
        desk = BrokerDesk(world, emptied)
        assert "T" in await topics_of(desk)
        assert await offset_of(desk) == 17
        answer = await desk.send("T", b"50")
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (OK, "50")


@virtual
async def test_members_delete_old_files_together_and_keep_the_tables() -> None:
    async with group(f"flushConsumerOffsetInterval=1000\n{ALWAYS}") as world:
        desk = await desk_of_leader(world)
        for number in range(80):
            assert (await desk.send("T", b"%d" % number + bytes(30_000))).code == OK
        await commit_offset(desk, 70)
        await asyncio.sleep(90)  # a store deletes nothing in its first minute
        await world.equal()
        leader = await world.leader()
        for node in world.nodes:
            node.store.retention.configure(replace(node.store.config, file_reserved_hours=0))
        for node in world.followers():
            await node.store.retention.round()
            assert node.store.log.min_offset == 0, "a follower keeps what its leader has"
        await world.until(lambda: leader.store.log.min_offset >= FILE_SIZE)
        await world.until(
            lambda: all(node.store.log.min_offset == leader.store.log.min_offset for node in world.nodes), 120
        )
        for node in world.nodes:
            await node.kill()
        for node in world.nodes:
            await node.start()
        desk = await desk_of_leader(world)
        assert "T" in await topics_of(desk)
        assert await offset_of(desk) == 70
        answer = await desk.send("T", b"next")
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (OK, "80")
