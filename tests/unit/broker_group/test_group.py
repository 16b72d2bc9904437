"""A group of three whole brokers: election, sends, reads, failover, in virtual time."""

from tests.kit import virtual
from tests.unit.broker_group.kit import broker_of, group, member_of

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.headers.replicas import RaftTransferRequest


@virtual
async def test_a_group_elects_a_master_that_stores_messages_at_a_majority() -> None:
    async with group() as world:
        leader = await world.leader()
        answer = await world.send(leader, b"one")
        assert answer.code == ResponseCode.SUCCESS, answer
        assert answer.ext["durability"] == "quorum"
        assert answer.ext["replicas"] == "2"
        assert answer.ext["term"] == str(member_of(leader).term)
        index = int(answer.ext["index"])
        assert index <= member_of(leader).server.committed_index
        await world.equal()
        for node in world.nodes:
            assert await world.pull(node) == [b"one"]
        assert len({node.log for node in world.nodes}) == 1


@virtual
async def test_the_next_leader_has_all_messages_and_topics() -> None:
    async with group() as world:
        leader = await world.leader()
        for number in range(20):
            assert (await world.send(leader, b"%d" % number)).code == ResponseCode.SUCCESS
        await leader.kill()
        second = await world.leader()
        assert second is not leader
        assert broker_of(second).config.identity.broker_id == 0
        assert (await world.send(second, b"20")).code == ResponseCode.SUCCESS
        assert await world.pull(second) == [b"%d" % number for number in range(21)]
        await leader.start()
        await world.equal()
        assert await world.pull(leader) == [b"%d" % number for number in range(21)]
        assert broker_of(leader).config.identity.is_slave


@virtual
async def test_a_leader_that_is_stopped_in_order_hands_over_at_once() -> None:
    async with group() as world:
        leader = await world.leader()
        assert (await world.send(leader, b"one")).code == ResponseCode.SUCCESS
        await world.equal()
        stopped_at = world.clock.monotonic()
        await leader.stop()
        second = await world.leader()
        assert world.clock.monotonic() - stopped_at < 2
        assert (await world.send(second, b"two")).code == ResponseCode.SUCCESS
        assert await world.pull(second) == [b"one", b"two"]


@virtual
async def test_a_setting_that_is_changed_leaves_the_role_as_it_is() -> None:
    async with group() as world:
        await world.leader()
        follower = world.followers()[0]
        body = b"maxTransferCountOnMessageInMemory=16\n"
        answer = await world.tool.call(
            follower.address, Command(int(RequestCode.UPDATE_BROKER_CONFIG), body=body), 10.0
        )
        assert answer.code == ResponseCode.SUCCESS, answer
        assert broker_of(follower).config.identity.is_slave
        assert broker_of(follower).config.store.max_count_in_memory == 16


@virtual
async def test_a_follower_refuses_what_only_a_leader_may_do() -> None:
    async with group() as world:
        await world.leader()
        answer = await world.send(world.followers()[0], b"one")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


@virtual
async def test_a_group_without_a_majority_answers_every_send() -> None:
    async with group() as world:
        leader = await world.leader()
        assert (await world.send(leader, b"one")).code == ResponseCode.SUCCESS
        for node in world.followers():
            await node.kill()
        late = await world.send(leader, b"late")
        assert late.code == ResponseCode.SYSTEM_ERROR
        assert "no majority" in (late.remark or "")
        await world.until(lambda: broker_of(leader).config.identity.is_slave)
        refused = await world.send(leader, b"refused")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE


@virtual
async def test_a_transfer_is_answered_although_the_role_ends_with_it() -> None:
    async with group() as world:
        leader = await world.leader()
        await world.equal()
        target = world.followers()[0]
        header = RaftTransferRequest(member=member_of(target).group.own_id)
        answer = await world.call(leader, RequestCode.RAFT_TRANSFER, header)
        assert answer.code == ResponseCode.SUCCESS, answer
        assert await world.leader() is target
        status = await world.status(leader)
        assert (status.role, status.leader) == ("follower", member_of(target).group.own_id)
        assert (await world.send(target, b"one")).code == ResponseCode.SUCCESS
