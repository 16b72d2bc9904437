"""Reads from a slave: who is sent there, and what a slave answers that lacks messages of its master."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.replication.kit import Node, Pair, pair
from tests.unit.replication.reading_kit import (
    MASTER,
    SLAVE,
    SUBSCRIPTION,
    JavaLoop,
    configure,
    field_of,
    kill,
    memory_of,
    pull,
    suggested,
    until,
)

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.testing.simulated_files import Survival

LITE = 16
READS = "slaveReadEnable=true\n"
MEMORY = 10_000  # bytes; 40 % of them count as memory for messages
FOUND, NOT_FOUND, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_OFFSET_MOVED,
)


async def send_some(world: Pair, master: Node, count: int = 100) -> None:
    for number in range(count):
        answer = await world.send(master, b"%05d" % number + bytes(200))
        assert answer.code == 0


async def set_group(world: Pair, master: Node, **fields: int) -> None:
    body = msgspec.json.encode({"groupName": "CG", "consumeEnable": True, "retryMaxTimes": 16} | fields)
    command = Command(int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP), body=body)
    assert (await world.tool.call(master.address, command, 5)).code == 0


@contextlib.asynccontextmanager
async def lagging_slave(conf: str = "") -> AsyncIterator[tuple[Pair, Node, Node]]:
    """A slave with 10 messages, whose master had 25 before it was killed."""
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE + conf)
        await master.start()
        await slave.start()
        await send_some(world, master, 10)
        await world.copied(master, slave)
        world.network.cut(master.ip, slave.ip)
        await send_some(world, master, 15)
        await kill(world, master)
        world.network.join(master.ip, slave.ip)
        await asyncio.sleep(1)
        yield world, master, slave


def begin_at(slave: Node, offset: int) -> None:
    """Lets the first queue begin at this offset, as if earlier files were deleted."""
    queue = slave.store.queues.find("T", 0)
    assert queue is not None
    queue._floor_for, queue._floor = slave.store.log.min_offset, offset


# suggestions


@virtual
async def test_a_master_sends_a_consumer_that_is_far_behind_to_the_first_slave() -> None:
    async with pair() as world:
        master = world.node(MASTER + READS)
        with memory_of(MEMORY):
            await master.start()
            for number in (1, 2):
                await world.node(f"brokerRole=SLAVE\nbrokerId={number}\n").start()
            await send_some(world, master)
            far = await pull(world, master, 0)
            near = await pull(world, master, 95)
            at_end = await pull(world, master, 100)
    assert [far.code, near.code, at_end.code] == [FOUND, FOUND, NOT_FOUND]
    assert [suggested(far), suggested(near), suggested(at_end)] == [1, 0, 0]


@virtual
async def test_without_the_setting_everyone_stays_at_the_master() -> None:
    async with pair() as world:
        master = world.node(MASTER)
        with memory_of(MEMORY):
            await master.start()
            await send_some(world, master)
            assert suggested(await pull(world, master, 0)) == 0


@virtual
async def test_a_group_can_name_the_servers_that_it_is_sent_to() -> None:
    async with pair() as world:
        master = world.node(MASTER + READS)
        with memory_of(MEMORY):
            await master.start()
            await send_some(world, master)
            await set_group(world, master, whichBrokerWhenConsumeSlowly=2, brokerId=3)
            assert suggested(await pull(world, master, 0)) == 2
            assert suggested(await pull(world, master, 95)) == 3


@virtual
async def test_a_reader_of_old_messages_that_a_filter_rejects_is_far_behind_too() -> None:
    async with pair() as world:
        master = world.node(MASTER + READS)
        with memory_of(MEMORY):
            await master.start()
            await send_some(world, master, 1000)
            answer = await pull(world, master, 0, subscription="nothing")
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert suggested(answer) == 1


@virtual
async def test_a_slave_takes_ten_percent_less_of_the_memory_for_messages_than_its_master() -> None:
    """Apache 5.x takes that much from the setting; 4.9 does it before it has read its role."""
    async with pair() as world:
        master, slave = world.node(MASTER + READS), world.node(SLAVE + READS)
        with memory_of(MEMORY):
            await master.start()
            await send_some(world, master)
            await slave.start()
            await world.copied(master, slave)
            assert slave.broker is not None
            assert slave.broker.config.store.access_in_memory_ratio == 30
            size = master.store.log.end // 100
            for node, share in ((master, 4000), (slave, 3000)):
                near = 100 - share // size  # the first of the messages that are in memory
                assert suggested(await pull(world, node, near, maxMsgNums=1)) == 0
                assert suggested(await pull(world, node, near - 1, maxMsgNums=1)) == 1


@virtual
async def test_a_slave_keeps_a_consumer_that_is_far_behind_and_sends_others_back() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE + READS)
        with memory_of(MEMORY):
            await master.start()
            await send_some(world, master)
            await slave.start()
            await world.copied(master, slave)
            assert suggested(await pull(world, slave, 0)) == 1
            assert suggested(await pull(world, slave, 95)) == 0
            await configure(world, slave, "slaveReadEnable=false")
            assert suggested(await pull(world, slave, 0)) == 0


@virtual
async def test_without_its_master_a_slave_suggests_what_the_group_says() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE + READS)
        await master.start()
        await send_some(world, master, 5)
        await set_group(world, master, brokerId=2)
        await slave.start()
        await world.copied(master, slave)
        assert suggested(await pull(world, slave, 0)) == 0
        await kill(world, master)
        await asyncio.sleep(1)
        assert suggested(await pull(world, slave, 0)) == 2


# beside a master


@virtual
async def test_beside_its_master_a_slave_holds_a_pull_for_a_second_at_most() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await send_some(world, master, 5)
        await slave.start()
        await world.copied(master, slave)
        began = world.clock.monotonic()
        answer = await pull(world, slave, 5, hold_s=15.0)
        assert world.clock.monotonic() - began == pytest.approx(1.0, abs=0.1)
        assert (answer.code, suggested(answer)) == (NOT_FOUND, 0)


@virtual
async def test_a_pull_that_waits_at_a_slave_is_answered_when_the_master_is_back() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await send_some(world, master, 5)
        await slave.start()
        await world.copied(master, slave)
        await kill(world, master)
        await asyncio.sleep(1)
        began = world.clock.monotonic()
        waiting = asyncio.create_task(pull(world, slave, 5, hold_s=30.0))
        await asyncio.sleep(4)
        assert not waiting.done()
        await master.start()
        answer = await waiting
        assert (answer.code, suggested(answer)) == (NOT_FOUND, 0)
        assert world.clock.monotonic() - began < 10


# a consumer ahead of the slave (known-failures.md, row 27)


@virtual
async def test_a_consumer_ahead_of_a_slave_does_not_pull_in_a_tight_loop() -> None:
    async with lagging_slave() as (world, master, slave):
        loop = JavaLoop(world, slave, offset=25)
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(60)
        assert loop.codes == {NOT_FOUND}
        assert loop.offset == 25
        assert loop.pulls <= 5  # in a minute; Apache: 1,500 to 3,000 in a second
        # The master is back: the loop, which knows only the slave, goes on with what is new.
        await master.start()
        await world.copied(master, slave)
        await asyncio.sleep(5)
        assert loop.offset == 25
        pulls = loop.pulls
        assert (await world.send(master, b"new")).code == 0
        await until(lambda: loop.offset == 26, within_s=2)
        assert loop.pulls < pulls + 5
        running.cancel()


@virtual
async def test_a_slave_that_checks_offsets_answers_as_a_master() -> None:
    async with lagging_slave("offsetCheckInSlave=true\n") as (world, _, slave):
        answer = await pull(world, slave, 25, hold_s=15.0)
        assert (answer.code, field_of(answer, "nextBeginOffset")) == (MOVED, 10)


@virtual
async def test_a_pull_without_time_to_wait_is_answered_with_the_offset_that_it_asked_for() -> None:
    async with lagging_slave() as (world, _, slave):
        answer = await pull(world, slave, 25)
        assert (answer.code, field_of(answer, "nextBeginOffset")) == (NOT_FOUND, 25)
        assert field_of(answer, "maxOffset") == 10


def test_who_waits_at_a_slave_for_the_master_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def scene() -> None:
        async with lagging_slave() as (world, _, slave):
            await pull(world, slave, 25, hold_s=1.0)

    scene()
    (line,) = [text for text in caplog.messages if "waits for the master" in text]
    assert "Group CG is at offset 25 of T queue 0, of which this slave has 0 to 10" in line


@virtual
async def test_a_consumer_before_the_first_message_of_a_slave_waits_for_the_master_too() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await send_some(world, master, 30)
        await slave.start()
        await world.copied(master, slave)
        begin_at(slave, 20)
        await kill(world, master)
        await asyncio.sleep(1)
        loop = JavaLoop(world, slave, offset=7)
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(60)
        assert (loop.codes, loop.offset) == ({NOT_FOUND}, 7)
        assert loop.pulls <= 13  # a minute of sweeps, one every five seconds
        await configure(world, slave, "offsetCheckInSlave=true")
        await until(lambda: loop.offset == 30)
        assert MOVED in loop.codes
        running.cancel()


@virtual
async def test_what_arrives_does_not_wake_a_consumer_before_the_first_message() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await send_some(world, master, 30)
        await slave.start()
        await world.copied(master, slave)
        begin_at(slave, 20)
        loop = JavaLoop(world, slave, offset=7)
        running = asyncio.create_task(loop.run())
        await send_some(world, master, 500)
        await world.copied(master, slave)
        await asyncio.sleep(10)
        assert loop.pulls <= 15
        running.cancel()


@virtual
async def test_a_slave_that_crashed_does_not_take_its_masters_offsets_for_void() -> None:
    async with pair() as world:
        master, slave = world.node(MASTER), world.node(SLAVE)
        await master.start()
        await slave.start()
        await send_some(world, master, 10)
        await world.copied(master, slave)
        await asyncio.sleep(10)  # on disk
        await kill(world, slave, Survival.LOST)
        await send_some(world, master, 10)
        await slave.start()
        await world.copied(master, slave)
        # The consumer comes from the master, which gave it offset 15; the slave did not.
        answer = await pull(world, slave, 15, sysFlag=LITE | SUBSCRIPTION)
        assert (answer.code, field_of(answer, "nextBeginOffset")) == (FOUND, 20)
