"""Another list of members, by a restart of the whole group as docs/cluster.md describes it."""

from tests.kit import virtual
from tests.unit.broker_group.failover import bodies, commit_offset, desk_of_leader, offset_of
from tests.unit.broker_group.kit import RAFT_PORT, Group, conf, group, member_of
from tests.unit.replication.kit import BrokerDesk, Node

from turbopump.testing.simulated_files import Survival

OK = 0


def peers_of(members: dict[str, Node]) -> str:
    return ";".join(f"{name}-{node.ip}:{RAFT_PORT}" for name, node in members.items())


async def send(world: Group, sent: list[bytes], count: int = 5) -> None:
    desk = await desk_of_leader(world)
    for _ in range(count):
        body = b"%d" % len(sent)
        answer = await desk.send("T", body)
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (OK, str(len(sent)))
        sent.append(body)
    await commit_offset(desk, len(sent))


async def stop_all(world: Group) -> None:
    """Stops all members in order, once none lacks a committed entry."""
    await world.equal()
    for node in [*world.followers(), await world.leader()]:
        await node.stop()


async def start_all(world: Group, members: dict[str, Node]) -> None:
    world.nodes[:] = members.values()
    for name, node in members.items():
        await node.start(conf(name, "flushConsumerOffsetInterval=1000\n", peers_of(members)))
    await world.joined()


async def has_all(world: Group, sent: list[bytes]) -> None:
    await world.leader()
    await world.equal()
    for node in world.nodes:
        assert await bodies(world, node) == sent
    assert await offset_of(BrokerDesk(world, await world.leader())) == len(sent)


@virtual
async def test_a_member_gets_another_address_one_is_added_and_one_is_removed() -> None:
    async with group("flushConsumerOffsetInterval=1000\n") as world:
        sent: list[bytes] = []
        members = dict(zip(("n0", "n1", "n2"), world.nodes, strict=True))
        await send(world, sent)
        await stop_all(world)

        moved = world.node()  # another host with the directory of n1
        moved.disk = members["n1"].disk.crash(Survival.KEPT)
        members["n1"] = moved
        await start_all(world, members)
        await has_all(world, sent)
        await send(world, sent)
        await stop_all(world)

        world.nodes.append(members["n0"])  # numbers give hosts their addresses
        members["n3"] = world.node()  # an empty directory
        await start_all(world, members)
        await has_all(world, sent)
        assert (await world.status(members["n3"])).brokerId in (0, 4)
        await send(world, sent)
        await stop_all(world)

        removed = members.pop("n0")
        await start_all(world, members)
        await has_all(world, sent)
        await send(world, sent)
        await has_all(world, sent)
        # Two of three are a majority again.
        await (await world.leader()).kill()
        await send(world, sent)
        assert await bodies(world, await world.leader()) == sent
        assert removed.broker is None


@virtual
async def test_a_member_with_the_old_list_takes_no_part_in_a_group_that_has_removed_it() -> None:
    async with group() as world:
        sent: list[bytes] = []
        members = dict(zip(("n0", "n1", "n2"), world.nodes, strict=True))
        await send(world, sent)
        await stop_all(world)
        removed = members.pop("n0")
        await start_all(world, members)
        leader = await world.leader()
        term = member_of(leader).term
        await removed.start()  # by mistake, with its old file
        await send(world, sent)
        await world.until(lambda: member_of(removed).server.status().term >= 0)
        assert world.leader_now() is leader
        assert member_of(leader).term == term, "its votes do not disturb the others"
        assert not member_of(removed).is_elected
        await removed.stop()
        await has_all(world, sent)
