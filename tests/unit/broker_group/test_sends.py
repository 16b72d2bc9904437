"""Kinds of sends to a group: one-way, without waiting, batches, light queues, large bodies."""

import asyncio

from tests.kit import virtual
from tests.unit.broker.desk import letters
from tests.unit.broker_group.failover import bodies, desk_of_leader, next_leader
from tests.unit.broker_group.kit import Group, group, member_of
from tests.unit.replication.kit import Node

from turbopump.protocol import batch, properties
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command

ONE_WAY = 2
LIGHT = "enableLmq=true\nenableMultiDispatch=true\n"


def messages(*contents: bytes, **pairs: str) -> bytes:
    rows = [(0, one, properties.pack({"UNIQ_KEY": f"K{at}"} | pairs)) for at, one in enumerate(contents)]
    return batch.join([(flag, body, text.encode()) for flag, body, text in rows])


@virtual
async def test_a_one_way_send_is_stored_by_the_group() -> None:
    async with group() as world:
        leader = await world.leader()
        ext = {name: str(value) for name, value in letters("T").items()}
        for number in range(3):
            command = Command(int(RequestCode.SEND_MESSAGE_V2), ext=ext, body=b"%d" % number, flag=ONE_WAY)
            await world.tool.send_oneway(leader.address, command)
        await world.until(lambda: leader.store.log.appended_messages > 0)
        await asyncio.sleep(0.5)
        await world.equal()
        for node in world.nodes:
            assert await bodies(world, node) == [b"0", b"1", b"2"]


@virtual
async def test_a_send_that_does_not_wait_is_answered_without_a_majority_and_promises_none() -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        for node in world.followers():
            await node.kill()
        began = world.clock.monotonic()
        answer = await desk.send("T", b"one", pairs={"WAIT": "false"})
        assert world.clock.monotonic() - began < 0.5
        assert answer.code == ResponseCode.SUCCESS
        assert (answer.ext or {})["durability"] == "memory"
        assert (answer.ext or {}).get("replicas", "1") == "1"
        assert await bodies(world, await world.leader()) == [], "nobody reads what is not committed"


@virtual
async def test_a_batch_has_consecutive_offsets_and_one_answer_with_the_index_of_its_last_message() -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        for turn in range(2):
            contents = [b"%d-%d" % (turn, number) for number in range(5)]
            fields = letters("T", m="true", i="WAIT\x01true\x02")
            answer = await desk.ask(RequestCode.SEND_BATCH_MESSAGE, fields, messages(*contents))
            ext = answer.ext or {}
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert len(ext["msgId"].split(",")) == 5
            assert ext["queueOffset"] == str(5 * turn)
            assert int(ext["index"]) == member_of(await world.leader()).server.end_index
        await world.equal()
        for node in world.nodes:
            assert await bodies(world, node) == [
                b"%d-%d" % (turn, one) for turn in (0, 1) for one in range(5)
            ]


@virtual
async def test_a_batch_that_crosses_files_of_the_log_is_whole() -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        contents = [bytes([65 + number]) * 100_000 for number in range(12)]
        fields = letters("T", m="true", i="WAIT\x01true\x02")
        answer = await desk.ask(RequestCode.SEND_BATCH_MESSAGE, fields, messages(*contents))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        desk = await next_leader(world)
        assert await bodies(world, await world.leader()) == contents


@virtual
async def test_messages_of_one_append_have_offsets_of_their_own_in_one_light_queue() -> None:
    async with group(LIGHT) as world:
        desk = await desk_of_leader(world)
        body = messages(b"one", b"two", b"three", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
        answer = await desk.send("Parent", body, code=RequestCode.SEND_BATCH_MESSAGE, m="true")
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        single = await desk.send("Parent", b"four", pairs={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        assert single.code == ResponseCode.SUCCESS, single.remark
        await world.equal()
        for node in world.nodes:
            assert await bodies(world, node, "%LMQ%a") == [b"one", b"two", b"three", b"four"]
            assert await bodies(world, node, "%LMQ%b") == [b"one", b"two", b"three"]
        desk = await next_leader(world)
        again = await desk.send("Parent", b"five", pairs={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        assert again.code == ResponseCode.SUCCESS, again.remark
        found = await bodies(world, await world.leader(), "%LMQ%a")
        assert found == [b"one", b"two", b"three", b"four", b"five"]


@virtual
async def test_large_bodies_are_copied_and_one_larger_than_a_file_is_refused() -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        contents = [bytes([65 + number]) * 700_000 for number in range(4)]
        for one in contents:
            answer = await desk.send("T", one)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        refused = await desk.send("T", bytes(1 << 20))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        await world.equal()
        for node in world.nodes:
            assert await bodies(world, node) == contents


@virtual
async def test_a_leader_whose_disk_is_full_gives_the_leadership_to_a_member_that_has_space() -> None:
    async with group() as world:
        full = await world.leader()
        await world.equal()
        capacity, full.disk.capacity = full.disk.capacity, 1
        refused = await _until_refused(world, full)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, refused
        await world.until(lambda: world.leader_now() not in (None, full), 20)
        second = await world.leader()
        assert second is not full
        assert (await world.send(second, b"two")).code == ResponseCode.SUCCESS
        full.disk.capacity = capacity
        await world.equal()


async def _until_refused(world: Group, leader: Node) -> Command:
    """Sends until the leader's file is full and the next one cannot be made."""
    while True:
        answer = await world.send(leader, bytes(4000))
        if answer.code != ResponseCode.SUCCESS:
            return answer
