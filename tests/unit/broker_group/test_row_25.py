"""Row 25 of the known failures: what the next leader of a group knows beside the messages.

Apache's followers copy tables every ten seconds, so that a failover forgets the last of them.
"""

import asyncio
import json

import pytest
from tests.kit import virtual
from tests.unit.broker.producers import COMMIT, ROLLBACK, Member, end, prepare
from tests.unit.broker_group.failover import bodies, commit_offset, desk_of_leader, next_leader, offset_of
from tests.unit.broker_group.kit import group

from turbopump.protocol.codes import RequestCode

OK = 0


@virtual
async def test_row_25_the_next_leader_knows_a_group_that_was_just_created() -> None:
    async with group("autoCreateSubscriptionGroup=false\n") as world:
        desk = await desk_of_leader(world)
        body = b'{"groupName":"FreshGroup","retryMaxTimes":7}'
        assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == OK
        desk = await next_leader(world)
        answer = await desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        groups = json.loads(answer.body)["subscriptionGroupTable"]
        assert groups["FreshGroup"]["retryMaxTimes"] == 7


@virtual
async def test_row_25_the_next_leader_knows_a_request_mode_that_was_just_set() -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        assert (await desk.send("T", b"makes the topic")).code == OK
        mode = b'{"consumerGroup":"CG","mode":"PULL","popShareQueueNum":2,"topic":"T"}'
        assert (await desk.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, mode)).code == OK
        desk = await next_leader(world)
        answer = await desk.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert json.loads(answer.body)["messageRequestModeMap"]["T"]["CG"]["popShareQueueNum"] == 2


@virtual
async def test_row_25_consumer_offsets_that_were_saved_do_not_step_back() -> None:
    async with group("flushConsumerOffsetInterval=1000\n") as world:
        desk = await desk_of_leader(world)
        for number in range(5):
            assert (await desk.send("T", b"%d" % number)).code == OK
        await commit_offset(desk, 3)
        await asyncio.sleep(2)
        assert await offset_of(await next_leader(world)) == 3


@pytest.mark.parametrize("killed_after_s", [0.3, 3.0, 20.0])
@virtual
async def test_row_25_a_delayed_message_comes_once(killed_after_s: float) -> None:
    """4.9.7 delivered delayed messages twice: the progress of delays was one of the tables."""
    async with group() as world:
        desk = await desk_of_leader(world)
        assert (await desk.send("T", b"late", pairs={"DELAY": "1"})).code == OK
        await asyncio.sleep(killed_after_s)
        desk = await next_leader(world)
        assert (await desk.send("T", b"later", queue_id=1, pairs={"DELAY": "1"})).code == OK
        await asyncio.sleep(30)
        leader = await world.leader()
        assert await bodies(world, leader) == [b"late"]
        assert await bodies(world, leader, queue_id=1) == [b"later"]


@pytest.mark.parametrize("killed_after_s", [0.3, 30.0])
@virtual
async def test_row_25_a_timed_message_comes_once_and_not_early(killed_after_s: float) -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        due_ms = world.clock.now_ms() + 20_000
        assert (await desk.send("T", b"timed", pairs={"TIMER_DELIVER_MS": str(due_ms)})).code == OK
        await asyncio.sleep(killed_after_s)
        desk = await next_leader(world)
        while world.clock.now_ms() < due_ms - 1000:
            assert await bodies(world, await world.leader()) == []
            await asyncio.sleep(0.5)
        await asyncio.sleep(30)
        assert await bodies(world, await world.leader()) == [b"timed"]


@pytest.mark.parametrize(("decision", "seen"), [(COMMIT, [b"half"]), (ROLLBACK, [])])
@virtual
async def test_row_25_a_transaction_ends_at_the_next_leader_once(decision: int, seen: list[bytes]) -> None:
    async with group() as world:
        place = await prepare(await desk_of_leader(world))
        desk = await next_leader(world)
        assert await bodies(world, await world.leader()) == []
        assert (await end(desk, place, decision)).code == OK
        await (await world.leader()).kill()
        for node in world.nodes:
            if node.broker is None:
                await node.start()
        desk = await desk_of_leader(world)
        await end(desk, place, decision)
        await asyncio.sleep(5)
        assert await bodies(world, await world.leader()) == seen


@virtual
async def test_row_25_the_next_leader_asks_producers_about_what_is_open() -> None:
    async with group("transactionTimeOut=6000\ntransactionCheckInterval=2000\n") as world:
        desk = await desk_of_leader(world)
        await prepare(desk, b"open")
        ended = await prepare(desk, b"ended")
        assert (await end(desk, ended, ROLLBACK)).code == OK
        desk = await next_leader(world)
        member = Member(lambda half: COMMIT)
        client = await member.join(desk)
        await asyncio.sleep(30)
        assert {half.body for half in member.shown} == {b"open"}
        assert await bodies(world, await world.leader()) == [b"open"]
        await client.close()
