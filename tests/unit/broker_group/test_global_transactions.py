"""Global transactions of a group: what its leader has answered holds at the next leader."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.broker import globals_kit
from tests.unit.broker_group.failover import bodies, desk_of_leader, next_leader
from tests.unit.broker_group.kit import group
from tests.unit.replication.kit import BrokerDesk

from turbopump.protocol.codes import RequestCode, ResponseCode

OK = ResponseCode.SUCCESS


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@virtual
async def test_a_leader_that_dies_after_its_answer_leaves_decision_records_and_messages_to_the_next(
    flush: str,
) -> None:
    async with group(f"flushDiskType={flush}\n") as world:
        desk = await desk_of_leader(world)
        await globals_kit.begun(desk)
        for gid in ("decided", "open"):
            await globals_kit.open_(desk, gid)
            assert (await globals_kit.append(desk, "tried", gid=gid)).code == OK
            assert (await globals_kit.write(desk, [gid.encode()], gid)).code == OK
        assert (await globals_kit.decide(desk, "commit", "decided", brokers="broker-a")).decision == "commit"
        desk = await next_leader(world)
        assert (await globals_kit.decide(desk, "abort", "decided")).decision == "commit"
        known = await globals_kit.read(desk, "open")
        assert (known.decision, known.lease, [one.event for one in known.records]) == ("", 1, ["tried"])
        await globals_kit.decide(desk, "abort", "open")
        await asyncio.sleep(3)
        assert await bodies(world, await world.leader(), queue_id=1) == [b"decided"]


@virtual
async def test_a_leader_without_a_majority_does_not_answer_a_decision_and_the_others_decide() -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        await globals_kit.begun(desk)
        await globals_kit.open_(desk)
        old, others = await world.leader(), world.followers()
        for other in others:
            world.network.cut(old.ip, other.ip)
        fields = {"gid": globals_kit.GID, "kind": "tcc", "decision": "commit", "owner": "tm"}
        asking = asyncio.ensure_future(globals_kit.ask(desk, RequestCode.GLOBAL_DECIDE, **fields))
        await world.until(lambda: world.leader_now() in others)
        assert (await globals_kit.decide(await desk_of_leader(world), "abort")).decision == "abort"
        assert (await asking).code != OK
        for other in others:
            world.network.join(old.ip, other.ip)
        assert (await globals_kit.decide(await desk_of_leader(world), "commit")).decision == "abort"


@virtual
async def test_a_follower_refuses_requests_about_global_transactions() -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        await globals_kit.begun(desk)
        await globals_kit.open_(desk)
        for node in world.followers():
            answer = await globals_kit.ask(
                BrokerDesk(world, node), RequestCode.GLOBAL_READ, gid=globals_kit.GID
            )
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
