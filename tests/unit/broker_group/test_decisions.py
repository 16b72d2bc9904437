"""The ledger and the book of global transactions, decided at one leader and known at the next one."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.broker import globals_kit, writers
from tests.unit.broker_group.failover import desk_of_leader, next_leader
from tests.unit.broker_group.kit import Group, group, member_of
from tests.unit.broker_group.partition_kit import cut_off, join
from tests.unit.replication.kit import BrokerDesk

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.global_transactions import GlobalDecision, GlobalState

OK = ResponseCode.SUCCESS


async def following_leader(world: Group, is_killed: bool) -> BrokerDesk:
    """Ends the leadership at once, or in order; returns the next leader."""
    await world.equal()
    if is_killed:
        return await next_leader(world)
    old = await world.leader()
    await member_of(old).hand_over()
    await world.until(lambda: world.leader_now() not in (None, old))
    return await desk_of_leader(world)


@pytest.mark.parametrize("is_killed", [True, False])
@virtual
async def test_what_the_ledger_has_decided_is_decided_at_the_next_leader(is_killed: bool) -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        await writers.topic(desk)
        assert (await writers.open_(desk)).code == OK
        assert (await writers.write(desk, 1, "wins", [b"a", b"b"])).code == OK
        assert (await writers.write(desk, 1, "loses", [b"x"])).code == OK
        assert (await writers.decide(desk, 1, "wins")).code == OK
        assert (await writers.write(desk, 2, "waits", [b"c"])).code == OK
        desk = await following_leader(world, is_killed)
        await asyncio.sleep(2)
        assert (await writers.book(desk, 1)).decided[1].tokens == ("wins",)
        other = await writers.decide(desk, 1, "loses")
        assert other.code == OK
        assert (await writers.book(desk, 1)).decided[1].tokens == ("wins",), "decided once"
        assert sorted(await writers.seen(desk)) == [b"a", b"b"]
        assert (await writers.decide(desk, 2, "waits")).code == OK
        await asyncio.sleep(2)
        assert sorted(await writers.seen(desk)) == [b"a", b"b", b"c"]
        late = await writers.write(desk, 2, "late", [b"never"])
        assert late.code != OK


@pytest.mark.parametrize("is_killed", [True, False])
@virtual
async def test_a_global_transaction_goes_on_at_the_next_leader(is_killed: bool) -> None:
    async with group() as world:
        desk = await desk_of_leader(world)
        await globals_kit.begun(desk)
        for gid in ("decided", "open"):
            await globals_kit.open_(desk, gid)
            assert (await globals_kit.append(desk, "tried", gid=gid)).code == OK
            assert (await globals_kit.write(desk, [gid.encode()], gid)).code == OK
        await globals_kit.decide(desk, "commit", "decided", brokers=writers.HOME)
        desk = await following_leader(world, is_killed)
        await asyncio.sleep(2)
        known = await globals_kit.read(desk, "decided")
        assert (known.state, known.decision) == (GlobalState.DECIDED, GlobalDecision.COMMIT)
        assert [one.event for one in known.records] == ["tried"]
        assert (await globals_kit.decide(desk, "abort", "decided")).decision is GlobalDecision.COMMIT
        assert (await globals_kit.read(desk, "open")).decision is not GlobalDecision.COMMIT
        assert await writers.seen(desk) == [b"decided"]
        assert (await globals_kit.decide(desk, "abort", "open")).decision is GlobalDecision.ABORT
        answer = await globals_kit.append(desk, "done", gid="decided", length=1, state="ended")
        assert answer.code == OK, answer.remark
        desk = await following_leader(world, is_killed=False)
        assert (await globals_kit.read(desk, "decided")).state is GlobalState.ENDED
        assert (await globals_kit.read(desk, "open")).decision is GlobalDecision.ABORT
        await asyncio.sleep(2)
        assert await writers.seen(desk) == [b"decided"]


@virtual
async def test_a_decision_that_no_majority_has_does_not_count() -> None:
    """A leader that is cut off does not answer it; the next one may decide otherwise."""
    async with group() as world:
        desk = await desk_of_leader(world)
        await globals_kit.begun(desk)
        await globals_kit.open_(desk)
        assert (await globals_kit.write(desk, [b"row"])).code == OK
        await world.equal()
        old = await world.leader()
        cut_off(world, old)
        fields = {"gid": globals_kit.GID, "kind": "tcc", "decision": "commit", "owner": "tm"}
        fields |= {"brokers": writers.HOME, "deadlineMs": str(world.clock.now_ms() + 60_000)}
        lost = await globals_kit.ask(desk, globals_kit.RequestCode.GLOBAL_DECIDE, **fields)
        assert lost.code != OK
        await world.until(lambda: world.leader_now() not in (None, old))
        desk = await desk_of_leader(world)
        assert (await globals_kit.decide(desk, "abort")).decision is GlobalDecision.ABORT
        join(world, old)
        await world.equal()
        await asyncio.sleep(2)
        for node in world.nodes:
            assert await writers.seen(BrokerDesk(world, node)) == []
        assert (await globals_kit.read(desk)).decision is GlobalDecision.ABORT
