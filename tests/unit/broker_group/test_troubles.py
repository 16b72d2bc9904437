"""A member that cannot do its work says so, gives a leadership away, and stands for none."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker_group.failover import bodies, desk_of_leader
from tests.unit.broker_group.figures_kit import PAGE, figures
from tests.unit.broker_group.kit import Group, broker_of, group, member_of
from tests.unit.replication.kit import Node

from turbopump.protocol.codes import ResponseCode
from turbopump.store.replica_log import NotACopy

OK = ResponseCode.SUCCESS


def cannot_dispatch(node: Node, error: Exception, only_as_leader: bool = False) -> Callable[[], None]:
    """Makes a member fail to put committed messages into queues; returns what ends that."""
    committed = node.store.committed
    assert committed is not None
    dispatch = committed.dispatch

    def fail() -> bool:
        if only_as_leader and node.broker is not None and not member_of(node).is_elected:
            return dispatch()
        raise error

    def heal() -> None:
        committed.dispatch = dispatch  # type: ignore[method-assign]

    committed.dispatch = fail  # type: ignore[method-assign]
    return heal


async def send(world: Group, body: bytes) -> None:
    assert (await (await desk_of_leader(world)).send("T", body)).code == OK


@pytest.mark.parametrize("error", [NotACopy(4711), RuntimeError("no such thing"), OSError(28, "disk full")])
@virtual
async def test_a_member_that_cannot_fill_its_queues_shows_it_and_does_not_lead(error: Exception) -> None:
    async with group(PAGE) as world:
        await send(world, b"0")
        await world.equal()
        leader, (broken, other) = await world.leader(), world.followers()
        heal = cannot_dispatch(broken, error)
        await send(world, b"1")
        await world.until(lambda: member_of(broken).trouble is not None)
        assert str(error) in (await world.status(broken)).trouble
        assert (await figures(world, broken))["trouble"] == 1
        assert (await figures(world, other))["trouble"] == 0
        await leader.kill()
        assert await world.leader() is other
        await send(world, b"2")
        # Alone with the leader's vote it would have been elected, and would never have served.
        await leader.start()
        await world.until(lambda: member_of(leader).server.leader is not None)
        await asyncio.sleep(3)
        await other.kill()
        assert await world.leader() is leader
        heal()
        await other.start()
        await world.equal()
        assert (await world.status(broken)).trouble == ""
        assert await bodies(world, broken) == [b"0", b"1", b"2"]


@virtual
async def test_a_member_that_works_again_can_lead() -> None:
    async with group() as world:
        await send(world, b"0")
        await world.equal()
        leader, (broken, other) = await world.leader(), world.followers()
        heal = cannot_dispatch(broken, RuntimeError("for a while"))
        await send(world, b"1")
        await world.until(lambda: member_of(broken).trouble is not None)
        await other.kill()
        await leader.kill()
        heal()
        await leader.start()
        await world.until(lambda: member_of(broken).trouble is None)
        await world.leader()
        await send(world, b"2")
        assert await bodies(world, await world.leader()) == [b"0", b"1", b"2"]


@virtual
async def test_an_elected_leader_that_cannot_fill_its_queues_gives_the_leadership_away() -> None:
    async with group() as world:
        await send(world, b"0")
        await world.equal()
        leader, (broken, _) = await world.leader(), world.followers()
        cannot_dispatch(broken, RuntimeError("no such thing"), only_as_leader=True)
        answer = await member_of(leader).server.transfer(member_of(broken).group.own_id)
        assert answer.code.name == "SUCCESS"
        await world.until(lambda: world.leader_now() not in (None, broken), 20)
        assert member_of(broken).trouble is not None
        await send(world, b"1")


@virtual
async def test_a_leader_whose_role_cannot_be_built_gives_the_leadership_away() -> None:
    async with group() as world:
        await send(world, b"0")
        await world.equal()
        old, (broken, _) = await world.leader(), world.followers()
        broker = broker_of(broken)
        serve = broker._serve_as

        async def fail_as_master(*given: Any) -> None:
            if given[-1] is not None:
                raise RuntimeError("a table is damaged")
            await serve(*given)

        broker._serve_as = fail_as_master  # type: ignore[method-assign]
        await member_of(old).server.transfer(member_of(broken).group.own_id)
        await world.until(lambda: member_of(broken).trouble is not None, 20)
        assert "a table is damaged" in str(member_of(broken).trouble)
        await world.until(lambda: world.leader_now() not in (None, broken), 20)
        await send(world, b"1")


def has_no_space(node: Node) -> Callable[[], None]:
    """Makes a member's log refuse every append, as a full disk does; returns what ends that."""
    entries = node.store.entries
    assert entries is not None
    append, append_entries = entries.append, entries.append_entries

    def fail(*given: Any) -> Any:
        raise OSError(28, "no space left on device")

    def free() -> None:
        entries.append, entries.append_entries = append, append_entries  # type: ignore[method-assign]

    entries.append = entries.append_entries = fail  # type: ignore[method-assign,assignment]
    return free


@virtual
async def test_a_leader_without_space_for_its_first_entry_gives_the_leadership_away() -> None:
    async with group() as world:
        await send(world, b"0")
        await world.equal()
        leader, (full, _) = await world.leader(), world.followers()
        has_no_space(full)
        await member_of(leader).server.transfer(member_of(full).group.own_id)
        await world.until(lambda: world.leader_now() not in (None, full), 15)
        await send(world, b"1")


@virtual
async def test_a_leader_writes_its_first_entry_as_soon_as_there_is_space() -> None:
    async with group() as world:
        await send(world, b"0")
        await world.equal()
        freed = [has_no_space(node) for node in world.nodes]
        leader, followers = await world.leader(), world.followers()
        await leader.kill()
        await world.until(lambda: any(member_of(node).is_elected for node in followers), 20)
        await asyncio.sleep(60)
        assert world.leader_now() is None
        for free in freed[1:]:
            free()
        began = world.clock.monotonic()
        await world.leader()
        assert world.clock.monotonic() - began < 15
        await send(world, b"1")
        assert await bodies(world, await world.leader()) == [b"0", b"1"]
