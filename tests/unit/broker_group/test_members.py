"""What every member of a group has: deletions, tables, all on an emptied disk, what retention leaves."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker_group.failover import (
    bodies,
    commit_offset,
    desk_of_leader,
    next_leader,
    offset_of,
    topics_of,
)
from tests.unit.broker_group.kit import MEMBERS, Group, broker_of, conf, group, member_of
from tests.unit.broker_group.lead_kit import OK, lead
from tests.unit.replication.kit import FILE_SIZE, BrokerDesk, Node

from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.replicas import RaftTransferRequest
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.simulated_files import Survival

ALWAYS = "fileReservedTime=10000\ndeleteWhen=" + ";".join(map(str, range(24))) + "\n"


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


async def delete_old_files(world: Group) -> int:
    """Has all members that run delete expired files; returns where the leader's log begins then."""
    leader = await world.leader()
    for node in world.running:
        node.store.retention.configure(replace(node.store.config, file_reserved_hours=0))
    await world.until(lambda: leader.store.log.min_offset >= FILE_SIZE)
    await asyncio.sleep(30)  # the other followers delete when they have read of it in a table
    return leader.store.log.min_offset


async def has_the_rest_and_can_lead(world: Group, returned: Node, sent: list[bytes]) -> None:
    """A member has all messages that its leader still has, no trouble, and leads when it is asked."""
    await world.joined()
    await world.equal()
    queues = [node.store.queues.find("T", 0) for node in (await world.leader(), returned)]
    firsts = [queue.min_offset for queue in queues if queue is not None]
    assert len(firsts) == 2
    assert firsts[0] == firsts[1] > 0, "the first messages were deleted"
    assert await bodies(world, returned, first=firsts[1]) == sent[firsts[1] :]
    assert (await world.status(returned)).trouble == ""
    await lead(world, returned)
    answer = await BrokerDesk(world, returned).send("T", b"next")
    assert (answer.code, (answer.ext or {})["queueOffset"]) == (OK, str(len(sent)))
    assert await bodies(world, returned, first=firsts[1]) == [*sent[firsts[1] :], b"next"]
    await returned.kill()
    await returned.start()
    await world.joined()
    await world.equal()
    assert await bodies(world, returned, first=firsts[1]) == [*sent[firsts[1] :], b"next"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@virtual
async def test_a_member_with_an_emptied_disk_begins_where_its_leader_begins(flush: str) -> None:
    async with group(f"{ALWAYS}flushDiskType={flush}\n") as world:
        desk = await desk_of_leader(world)
        sent = [b"%d" % number + bytes(30_000) for number in range(80)]
        for body in sent:
            assert (await desk.send("T", body)).code == OK
        await asyncio.sleep(90)  # a store deletes nothing in its first minute
        await world.equal()
        await delete_old_files(world)
        emptied = world.followers()[0]
        await emptied.kill()
        emptied.disk = SimulatedDisk(world.chance, world.clock)
        await emptied.start()
        await has_the_rest_and_can_lead(world, emptied, sent)


@virtual
async def test_a_member_whose_log_ends_before_that_of_its_leader_begins_continues_with_what_is_left() -> None:
    async with group(ALWAYS) as world:
        desk = await desk_of_leader(world)
        sent = [b"%d" % number + bytes(30_000) for number in range(80)]
        for body in sent[:10]:
            assert (await desk.send("T", body)).code == OK
        await world.equal()
        stale = world.followers()[0]
        await stale.kill()
        for body in sent[10:]:
            assert (await desk.send("T", body)).code == OK
        await asyncio.sleep(90)
        begin = await delete_old_files(world)
        await stale.start()
        assert stale.store.log.end < begin
        await has_the_rest_and_can_lead(world, stale, sent)


@virtual
async def test_a_member_with_an_emptied_disk_joins_a_group_that_was_switched_over() -> None:
    world = Group()
    await world.name_server.start()
    try:
        plain = world.node()
        await plain.start()
        old = [b"old %d" % number for number in range(5)]
        for body in old:
            assert (await world.send(plain, body)).code == OK
        await plain.stop()
        world.nodes.clear()
        for member in MEMBERS:
            node = world.node(conf(member))
            node.disk = plain.disk.crash(Survival.KEPT)
            await node.start()
        await world.joined()
        desk = await desk_of_leader(world)
        new = [b"new %d" % number for number in range(5)]
        for body in new:
            assert (await desk.send("T", body)).code == OK
        await world.equal()
        for node in world.nodes:
            assert await bodies(world, node) == old + new
        emptied = world.followers()[0]
        await emptied.kill()
        emptied.disk = SimulatedDisk(world.chance, world.clock)
        await emptied.start()
        await world.joined()
        await world.equal()
        assert await bodies(world, emptied, first=len(old)) == new, "the old log is in no entry"
        await lead(world, emptied)
        answer = await BrokerDesk(world, emptied).send("T", b"next")
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (OK, "10")
    finally:
        await world.close()


@virtual
async def test_a_leader_that_needs_long_for_its_first_tables_is_not_taken_for_apaches() -> None:
    """Members of an Apache leader delete by their own clock, and ignore the tables in the log."""
    async with group(f"flushConsumerOffsetInterval=1000\n{ALWAYS}") as world:
        desk = await desk_of_leader(world)
        assert (await desk.send("T", b"delayed", pairs={"DELAY": "18"})).code == OK
        for number in range(80):
            assert (await desk.send("T", b"%d" % number + bytes(30_000))).code == OK
        await commit_offset(desk, 70)
        await asyncio.sleep(90)  # a store deletes nothing in its first minute
        await world.equal()
        target = world.followers()[0]
        broker = broker_of(target)
        serve, is_slow = broker._serve_as, asyncio.Event()

        async def serve_late(*given: Any) -> None:
            if given[-1] is not None:
                is_slow.set()
                await asyncio.sleep(30)
            await serve(*given)

        broker._serve_as = serve_late  # type: ignore[method-assign]
        for node in world.nodes:
            node.store.retention.configure(replace(node.store.config, file_reserved_hours=0))
        header = RaftTransferRequest(member=member_of(target).group.own_id)
        await world.call(await world.leader(), RequestCode.RAFT_TRANSFER, header)
        await is_slow.wait()
        await asyncio.sleep(25)
        assert world.leader_now() is not target
        for node in world.nodes:
            assert node.store.log.min_offset == 0, "nobody has deleted anything"
            assert not node.disk.exists("/store/config/dledgerTables.json")
        await world.until(lambda: world.leader_now() is target)
        assert await offset_of(BrokerDesk(world, target)) == 70
        await world.until(lambda: target.store.log.min_offset >= FILE_SIZE)
        waiting = target.store.queues.find("SCHEDULE_TOPIC_XXXX", 17)
        assert waiting is not None
        assert not waiting.is_empty, "the delayed message has gone with its file"


@virtual
async def test_nothing_is_deleted_while_a_role_is_built() -> None:
    async with group(ALWAYS) as world:
        await world.leader()
        target = world.followers()[0]
        broker, guards = broker_of(target), target.store.retention.guards
        build, seen = broker._serve, list[bool]()

        async def look(*given: Any, **more: Any) -> Any:
            seen.append(await target.store.retention._may_go(FILE_SIZE))
            return await build(*given, **more)

        broker._serve = look  # type: ignore[method-assign]
        await lead(world, target)
        assert seen
        assert not any(seen)
        assert len(guards) > 1, "those of the new role"
