"""Our producer and consumer through a failover: no error reaches the caller while its timeout allows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.kit import virtual
from tests.unit.broker_group.kit import Group, broker_of, group, member_of
from tests.unit.broker_group.lead_kit import lead
from tests.unit.broker_group.traffic_kit import CONSUMER_IP, PRODUCER_IP, TIMEOUT_S, Traffic, kill
from tests.unit.replication.kit import NAME_SERVER_IP, TOOL_IP, Node

from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.replicas import RaftTransferRequest
from turbopump.testing.disk import SimulatedWorkers


@contextlib.asynccontextmanager
async def traffic(more: str = "") -> AsyncIterator[Traffic]:
    async with group(more) as world:
        await world.leader()
        async with Traffic(world) as made:
            await made.goes_on()
            yield made


async def stop(world: Group, leader: Node) -> None:
    await leader.stop()


async def cut_off_from_members(world: Group, leader: Node) -> None:
    for node in world.nodes:
        if node is not leader:
            world.network.cut(leader.ip, node.ip)


async def freeze(world: Group, leader: Node) -> None:
    """Nothing passes to and from the leader, and no connection ends."""
    world.network.silent_cuts = True
    hosts = (*(node.ip for node in world.nodes), NAME_SERVER_IP, TOOL_IP, PRODUCER_IP, CONSUMER_IP)
    for ip in hosts:
        if ip != leader.ip:
            world.network.cut(leader.ip, ip)


async def cut_off_from_all_but_name_servers(world: Group, leader: Node) -> None:
    await freeze(world, leader)
    world.network.join(leader.ip, NAME_SERVER_IP)


async def transfer(world: Group, leader: Node) -> None:
    header = RaftTransferRequest(member=member_of(world.followers()[0]).group.own_id)
    await world.call(leader, RequestCode.RAFT_TRANSFER, header)


Death = Callable[[Group, Node], Awaitable[None]]
DEATHS = [kill, stop, cut_off_from_members, freeze, cut_off_from_all_but_name_servers, transfer]


@pytest.mark.parametrize("death", DEATHS)
@virtual
async def test_no_send_fails_and_all_is_read_through_a_failover(death: Death) -> None:
    async with traffic() as made:
        world = made.world
        old = await world.leader()
        began = world.clock.monotonic()
        await death(world, old)
        await world.until(lambda: world.leader_now() not in (None, old), 30)
        await made.goes_on()
        assert made.failed == []
        assert world.clock.monotonic() - began < 2 * TIMEOUT_S


@virtual
async def test_a_slow_leader_keeps_the_sends_that_wait_at_it() -> None:
    async with traffic("flushDiskType=SYNC_FLUSH\ndLegerQuorumTimeout=20000\n") as made:
        world = made.world
        leader = await world.leader()
        for node in world.nodes:
            workers = broker_of(node)._workers
            assert isinstance(workers, SimulatedWorkers)
            workers.stall(8.0)
        await asyncio.sleep(20)
        assert await world.leader() is leader
        await made.goes_on()
        assert made.failed == []
        assert len(made.read) == len(set(made.read)), "a message was sent twice"


@virtual
async def test_no_send_fails_while_the_leadership_moves_again_and_again() -> None:
    async with traffic() as made:
        world = made.world
        for _ in range(3):
            for node in world.nodes:
                await lead(world, node)
                await asyncio.sleep(0.5)
        await made.goes_on()
        assert made.failed == []
