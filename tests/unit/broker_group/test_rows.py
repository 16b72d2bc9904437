"""Known ways to lose data in a DLedger group, by their rows in the list of known failures."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.broker_group.kit import Group, broker_of, group, member_of
from tests.unit.replication.kit import NAME_SERVER, Node

from turbopump.protocol.bodies import TopicRouteData
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.namesrv import GetRouteInfoRequest

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
async def test_row_1_messages_that_were_not_in_their_queues_when_all_were_killed_are_there_again() -> None:
    """apache/rocketmq#7355: the entries were in the log, and recovery left them out of the queues."""
    async with group() as world:
        leader = await world.leader()
        assert (await world.send(leader, b"before")).code == OK
        await world.equal()
        for node in world.nodes:
            committed = node.store.committed
            assert committed is not None
            committed.advance = lambda: None  # type: ignore[method-assign]
            committed.dispatch = lambda size=0: False  # type: ignore[method-assign]
        sent = [b"before", *await send_all(world, leader)]
        for node in world.nodes:
            queue = node.store.queues.find("T", 0)
            assert queue is not None
            assert queue.max_offset == 1, "nothing was dispatched since"
            await node.kill()
        for node in world.nodes:
            await node.start()
        await world.leader()
        await world.equal()
        for node in world.nodes:
            assert await bodies(world, node) == sent


async def route(world: Group) -> dict[int, str]:
    """Returns the addresses of the group by id, as the name server tells clients."""
    header = GetRouteInfoRequest(topic="T", acceptStandardJsonOnly=True)
    question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    answer = await world.tool.call(NAME_SERVER, question, 10.0)
    assert answer.code == OK, answer
    (data,) = TopicRouteData.decode(answer.body).brokerDatas
    return dict(data.brokerAddrs)


@virtual
async def test_row_15_an_old_leader_that_returns_serves_as_slave_while_another_one_leads() -> None:
    """apache/rocketmq#1464: a node that rejoined registered as id 0 before it knew its role."""
    async with group() as world:
        old = await world.leader()
        await world.send(old, b"one")
        await old.kill()
        new = await world.leader()
        await world.until(lambda: broker_of(new).config.identity.broker_id == 0)
        assert (await route(world))[0] == new.address
        await old.start()
        seen = set()
        for _ in range(450):  # registrations are repeated every 30 s
            assert broker_of(old).config.identity.broker_id != 0
            addresses = await route(world)
            assert addresses[0] == new.address, "clients are sent to a broker that does not lead"
            seen.update(number for number, address in addresses.items() if address == old.address)
            await asyncio.sleep(0.1)
        assert seen == {member_of(old).slave_id}
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


@pytest.mark.parametrize("killed_after_s", [0.0, 2.0])
@virtual
async def test_row_25_the_next_leader_knows_a_topic_that_was_just_created(killed_after_s: float) -> None:
    """Apache's followers copy tables every ten seconds: the next leader answers 17."""
    async with group("autoCreateTopicEnable=false\n") as world:
        old = await world.leader()
        fields = {
            "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "order": "false",
        }  # fmt: skip
        command = Command(int(RequestCode.UPDATE_AND_CREATE_TOPIC), ext=fields)
        assert (await world.tool.call(old.address, command, 10.0)).code == OK
        for number in range(5):
            assert (await world.send(old, b"%d" % number)).code == OK
        await asyncio.sleep(killed_after_s)
        await old.kill()
        new = await world.leader()
        assert (await world.send(new, b"5")).code == OK
        assert await bodies(world, new) == [b"%d" % number for number in range(6)]


@virtual
async def test_row_20_fast_leader_flips_lose_and_double_nothing() -> None:
    """KIP-101, KIP-279: logs diverged when leaders followed each other quickly."""
    async with group() as world:
        sent: list[bytes] = []
        for flip in range(6):
            leader = await world.leader()
            for number in range(3):
                body = b"%d-%d" % (flip, number)
                if (await world.send(leader, body)).code == OK:
                    sent.append(body)
            await leader.kill()
            await leader.start()
        leader = await world.leader()
        assert (await world.send(leader, b"last")).code == OK
        await world.equal()
        found = await bodies(world, leader)
        assert [body for body in found if body in sent] == sent
        assert len(found) == len(set(found))
        assert len({node.log for node in world.nodes}) == 1
