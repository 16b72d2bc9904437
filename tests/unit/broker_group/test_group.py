"""A group of three whole brokers: election, sends, reads, failover, in virtual time."""

from tests.kit import virtual
from tests.unit.broker_group.kit import broker_of, group, member_of

from turbopump.protocol.codes import ResponseCode


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
