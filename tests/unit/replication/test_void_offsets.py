"""Offsets of messages that a crash or a promotion has cost: slaves and masters tell them from valid ones."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.kit import virtual
from tests.unit.replication.kit import TOPIC, Node, Pair, pair
from tests.unit.replication.reading_kit import MASTER, SLAVE, commit, committed, field_of, pull, until

from turbopump.broker.consume.reused_offsets import JUDGED_S
from turbopump.broker.replicas.slave_commits import FILE, SlaveCommits
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.replication.slave import SlaveState
from turbopump.store.config_files import ConfigFiles
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers

CONSUMER = 20  # system flag of a pull whose offset counts: with a subscription, of a lite consumer
MOVED, NOT_FOUND = ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND
SAVED_S = 6.0  # offsets are saved every five seconds
LOST, KEPT = 3, 5  # messages that only the old master has; messages that all have


async def send(world: Pair, node: Node, count: int) -> None:
    for number in range(count):
        assert (await world.send(node, b"%d" % number)).code == 0


async def ask(world: Pair, node: Node, offset: int) -> tuple[int, int]:
    """Pulls as a consumer; returns the code, and where the consumer has to go on."""
    answer = await pull(world, node, offset, sysFlag=CONSUMER)
    return answer.code, field_of(answer, "nextBeginOffset")


async def commit_as_consumer(
    world: Pair, node: Node, offset: int, mark: Mapping[str, str] = {}, language: str = "GO"
) -> None:
    ext = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset), **mark}
    command = Command(int(RequestCode.UPDATE_CONSUMER_OFFSET), ext=ext, language=language)
    assert (await world.tool.call(node.address, command, 5)).code == 0


async def following(world: Pair, master: Node, slave: Node) -> None:
    await until(lambda: slave.slave.state is SlaveState.FOLLOWING)
    await world.copied(master, slave)


async def after_a_promotion(world: Pair) -> tuple[Node, Node]:
    """Returns a promoted master that has other messages than the first at 5, 6 and 7, and a slave of it."""
    first, second = world.node(MASTER), world.node(SLAVE)
    await first.start()
    await second.start()
    await send(world, first, KEPT)
    assert await commit(world, first, KEPT) == 0
    await asyncio.sleep(SAVED_S)
    await following(world, first, second)
    world.network.cut(first.ip, second.ip)
    await send(world, first, LOST)
    assert await ask(world, first, KEPT) == (0, KEPT + LOST)
    await first.kill()
    await second.kill()
    await second.start(MASTER)
    await send(world, second, LOST + 1)
    third = world.node(SLAVE.replace("brokerId=1", "brokerId=2"))
    await third.start()
    await following(world, second, third)
    return second, third


@virtual
async def test_a_slave_sends_a_consumer_back_that_has_read_what_a_promotion_has_cost() -> None:
    async with pair() as world:
        _, slave = await after_a_promotion(world)
        assert await ask(world, slave, KEPT + LOST) == (MOVED, KEPT)
        assert await ask(world, slave, KEPT) == (0, KEPT + LOST + 1)
        assert await ask(world, slave, KEPT + LOST) == (0, KEPT + LOST + 1)  # now it was given by the slave


@virtual
async def test_a_slave_ignores_a_commit_of_what_a_promotion_has_cost() -> None:
    async with pair() as world:
        _, slave = await after_a_promotion(world)
        await commit_as_consumer(world, slave, KEPT + LOST)
        assert await committed(world, slave) == KEPT
        await ask(world, slave, KEPT)
        await commit_as_consumer(world, slave, KEPT + LOST)
        assert await committed(world, slave) == KEPT + LOST


@virtual
async def test_a_commit_of_our_consumer_does_not_make_lost_messages_valid() -> None:
    async with pair() as world:
        _, slave = await after_a_promotion(world)
        await commit_as_consumer(world, slave, KEPT + LOST, {"ofConsumer": "true"}, language="PYTHON")
        assert await committed(world, slave) == KEPT
        assert await ask(world, slave, KEPT + LOST) == (MOVED, KEPT)


async def beside_another_log(world: Pair) -> tuple[Node, Node]:
    """Returns a slave that has stopped, and its master, which began again with an empty disk.

    The slave has 5 messages, of which its group has committed 3. The master has 8 others.
    """
    first, slave, master = world.node(MASTER), world.node(SLAVE), world.node(MASTER)
    await first.start()
    await slave.start()
    await send(world, first, KEPT)
    assert await commit(world, first, KEPT - 2) == 0
    await asyncio.sleep(SAVED_S)
    await following(world, first, slave)
    await first.kill()
    await master.start()
    await send(world, master, KEPT + LOST)
    await until(lambda: slave.slave.state is SlaveState.STOPPED)
    return slave, master


@virtual
async def test_a_stopped_slave_ignores_a_commit_of_what_its_master_has_in_another_log() -> None:
    async with pair() as world:
        slave, master = await beside_another_log(world)
        for offset in (KEPT - 1, KEPT + LOST):
            await commit_as_consumer(world, slave, offset)
            assert await committed(world, slave) == KEPT - 2
        await master.kill()
        await commit_as_consumer(world, slave, KEPT + LOST)
        await slave.stop()
        await slave.start(SLAVE)
        await commit_as_consumer(world, slave, KEPT + LOST)
        assert await committed(world, slave) == KEPT - 2


@virtual
async def test_a_stopped_slave_takes_a_commit_of_what_it_has_given() -> None:
    async with pair() as world:
        slave, master = await beside_another_log(world)
        await master.kill()
        assert await ask(world, slave, KEPT) == (MOVED, KEPT - 2)
        assert await ask(world, slave, KEPT - 2) == (0, KEPT)
        await commit_as_consumer(world, slave, KEPT)
        assert await committed(world, slave) == KEPT


@virtual
async def test_a_slave_of_another_log_than_its_masters_sends_consumers_back_when_it_is_promoted() -> None:
    async with pair() as world:
        slave, master = await beside_another_log(world)
        await master.kill()
        await commit_as_consumer(world, slave, KEPT + LOST)
        await slave.stop()
        await slave.start(MASTER)
        await send(world, slave, 1)
        for offset in (KEPT - 1, KEPT, KEPT + LOST):
            assert await ask(world, slave, offset) == (MOVED, KEPT - 2)
        assert await ask(world, slave, KEPT - 2) == (0, KEPT + 1)


@virtual
async def test_a_slave_that_copies_the_new_log_takes_commits_again() -> None:
    async with pair() as world:
        slave, master = await beside_another_log(world)
        await slave.stop()
        slave.disk.remove_tree("/store")
        await slave.start(SLAVE)
        await following(world, master, slave)
        await commit_as_consumer(world, slave, KEPT)
        assert await committed(world, slave) == KEPT


@virtual
async def test_a_consumer_beyond_a_slaves_queue_waits_and_is_sent_back_when_the_messages_are_there() -> None:
    async with pair() as world:
        master, slave = await after_a_promotion(world)
        for _ in range(int(JUDGED_S / 30) + 2):  # its connection lives on
            assert await ask(world, slave, 10) == (NOT_FOUND, 10)
            await asyncio.sleep(30)
        await send(world, master, 4)
        await world.copied(master, slave)
        assert await ask(world, slave, 10) == (MOVED, KEPT)


@virtual
async def test_a_slave_takes_any_offset_again_when_no_consumer_can_know_the_old_messages() -> None:
    async with pair() as world:
        _, slave = await after_a_promotion(world)
        await asyncio.sleep(JUDGED_S + 1)
        assert await ask(world, slave, KEPT + LOST) == (0, KEPT + LOST + 1)


@virtual
async def test_a_slave_that_is_promoted_knows_what_earlier_promotions_have_cost() -> None:
    async with pair() as world:
        master, slave = await after_a_promotion(world)
        await master.kill()
        await slave.kill()  # before its table of offsets was saved
        await slave.start(MASTER)
        code, offset = await ask(world, slave, KEPT + LOST)
        assert code == MOVED
        assert offset <= KEPT


@virtual
async def test_commits_at_a_slave_are_lowered_to_what_is_left_of_its_log() -> None:
    async with pair() as world:
        disk = SimulatedDisk(world.chance, world.clock)
        files, workers = ConfigFiles("/config", disk), SimulatedWorkers(disk)
        files.save(FILE, b'[["CG","T",0,9],["CG","T",1,3]]')
        commits = SlaveCommits(files, workers, world.tool, world.clock, lambda topic, queue_id: 4)
        assert commits.pending == {("CG", "T", 0): 4, ("CG", "T", 1): 3}


# given by a slave


async def read_at_the_slave(world: Pair) -> tuple[Node, Node]:
    """Returns a master that has crashed twice, and a slave that gave 5 to 9 in between."""
    master, slave = world.node(MASTER), world.node(SLAVE)
    await master.start()
    await slave.start()
    await send(world, master, 5)
    await following(world, master, slave)
    await master.kill()
    await master.start()
    await following(world, master, slave)
    await send(world, master, 5)
    await world.copied(master, slave)
    await master.kill()
    assert await ask(world, slave, 5) == (0, 10)
    await master.start()
    await following(world, master, slave)
    return master, slave


@virtual
async def test_a_consumer_comes_back_to_a_crashed_master_with_what_its_slave_gave_it() -> None:
    async with pair() as world:
        master, _ = await read_at_the_slave(world)
        assert await ask(world, master, 10) == (NOT_FOUND, 10)
        await commit_as_consumer(world, master, 10)
        assert await committed(world, master) == 10


@virtual
async def test_what_a_slave_gave_one_consumer_proves_nothing_about_another() -> None:
    async with pair() as world:
        master, _ = await read_at_the_slave(world)
        other = Client(world.network.at("10.0.7.7"), world.clock)
        world.tool, tool = other, world.tool
        assert (await ask(world, master, 10))[0] == MOVED
        world.tool = tool
        await other.close()


@virtual
async def test_consumers_are_known_by_their_client_ids_where_they_have_sent_heartbeats() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await slave.start()
        await send(world, master, 5)
        await following(world, master, slave)
        await master.kill()
        await master.start()
        await following(world, master, slave)
        await send(world, master, 5)
        await world.copied(master, slave)
        await beat(world, slave, "one")
        assert await ask(world, slave, 5) == (0, 10)
        await asyncio.sleep(3)  # the slave has told the master
        await beat(world, master, "two")
        assert (await ask(world, master, 10))[0] == MOVED
        await beat(world, master, "one")
        assert await ask(world, master, 10) == (NOT_FOUND, 10)


async def beat(world: Pair, node: Node, client_id: str) -> None:
    body: dict[str, Any] = {"clientID": client_id, "consumerDataSet": [], "producerDataSet": []}
    command = Command(int(RequestCode.HEART_BEAT), body=str(body).replace("'", '"').encode())
    assert (await world.tool.call(node.address, command, 5)).code == 0
