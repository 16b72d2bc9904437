"""Known ways to lose data in a replicated pair, by their rows in the list of known failures."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.kit import virtual
from tests.unit.replication.kit import BrokerDesk, Node, Pair, pair

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.headers.offsets import UpdateConsumerOffsetRequest
from turbopump.replication.slave import SlaveState
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.simulated_files import Survival

OK, ALONE = ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE
MASTER, SYNC = "brokerRole=ASYNC_MASTER\n", "brokerRole=SYNC_MASTER\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"


async def started(world: Pair, master_conf: str = MASTER, slave_conf: str = SLAVE) -> tuple[Node, Node]:
    master, slave = world.node(master_conf), world.node(slave_conf)
    await master.start()
    await slave.start()
    await world.until(lambda: slave.slave.state is SlaveState.FOLLOWING)
    return master, slave


async def bodies(world: Pair, node: Node) -> list[bytes]:
    found: list[bytes] = []
    while more := await world.pull(node, offset=len(found)):
        found += more
    return found


@pytest.mark.parametrize("survival", list(Survival))
@virtual
async def test_row_4_a_slave_that_crashes_behind_its_log_is_whole_when_it_is_promoted(
    survival: Survival,
) -> None:
    """apache/rocketmq#467, #405: what was not in the queues of a slave at its crash was skipped."""
    async with pair() as world:
        master, slave = await started(world)
        for number in range(50):
            await world.send(master, b"%02d" % number)
        await world.copied(master, slave)
        await master.kill()
        await slave.kill(survival)
        await slave.start(MASTER)
        assert await world.call(slave, RequestCode.GET_BROKER_RUNTIME_INFO)
        found = await bodies(world, slave)
        assert found == [b"%02d" % number for number in range(len(found))]
        assert len(found) == 50 or survival is not Survival.KEPT
        await world.send(slave, b"new")
        assert await bodies(world, slave) == [*found, b"new"]


@pytest.mark.parametrize("survival", [Survival.LOST, Survival.RANDOM, Survival.KEPT])
@virtual
async def test_row_8_a_tail_that_was_cut_from_an_old_master_never_comes_back(survival: Survival) -> None:
    """apache/rocketmq#10666: a truncation in memory only; after a crash the old tail was valid again."""
    async with pair() as world:
        master, slave = await started(world)
        await world.send(master, b"both")
        await world.copied(master, slave)
        common = slave.store.replica.end
        world.network.cut(master.ip, slave.ip)
        for number in range(5):
            await world.send(master, b"old %d" % number)
        await master.kill()
        await slave.kill()
        await slave.start(MASTER)
        world.network.join(master.ip, slave.ip)
        await world.send(slave, b"new")
        await master.start(SLAVE)
        await world.until(lambda: master.slave.state is SlaveState.STOPPED)
        await master.store.log.cut(common)
        await master.kill(survival)  # before anything was copied over it
        await master.start(SLAVE)
        await world.until(lambda: master.slave.state is SlaveState.FOLLOWING)
        await world.copied(slave, master)
        assert master.log == slave.log
        await master.kill(survival)
        await master.start(SLAVE)
        await world.copied(slave, master)
        assert await bodies(world, master) == [b"both", b"new"]


@virtual
async def test_row_9_offsets_beyond_the_log_of_a_promoted_slave_come_back_to_its_end() -> None:
    """apache/rocketmq#4771: offsets beyond a shortened log made consumers skip what was stored next."""
    async with pair() as world:
        master, slave = await started(world)
        for number in range(5):
            await world.send(master, b"%d" % number)
        await world.copied(master, slave)
        header = UpdateConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0, commitOffset=9)
        assert (await world.call(master, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == OK
        await asyncio.sleep(6)
        await master.kill()
        await slave.stop()
        await slave.start(MASTER)
        answer = await slave_offset(world, slave)
        assert answer == 5
        await world.send(slave, b"next")
        assert await world.pull(slave, offset=answer) == [b"next"]


async def slave_offset(world: Pair, node: Node) -> int:
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0"}
    command = Command(int(RequestCode.QUERY_CONSUMER_OFFSET), ext=ext)
    answer = await world.tool.call(node.address, command, 10.0)
    return int((answer.ext or {})["offset"])


@virtual
async def test_row_15_a_broker_that_returns_as_a_slave_does_not_take_the_masters_place_in_the_route() -> None:
    """apache/rocketmq#1464: a node that rejoined registered as id 0 before it knew its role."""
    async with pair() as world:
        master, slave = await started(world)
        await world.send(master, b"both")
        await world.copied(master, slave)
        await master.kill()
        await slave.kill()
        await slave.start(MASTER)
        seen: list[str] = []

        async def watch() -> None:
            while True:
                seen.append((await route(world)).get("0", ""))
                await asyncio.sleep(0.01)

        watching = asyncio.ensure_future(watch())
        await master.start(SLAVE)
        await world.until(lambda: master.slave.state is SlaveState.FOLLOWING)
        await asyncio.sleep(40)
        watching.cancel()
        assert {address for address in seen if address} == {slave.address}
        assert (await route(world))["1"] == master.address


async def route(world: Pair) -> dict[str, str]:
    """Returns the addresses of the broker by its ids."""
    command = Command(int(RequestCode.GET_ROUTEINFO_BY_TOPIC), ext={"topic": "T"})
    answer = await world.tool.call("10.0.0.9:9876", command, 5.0)
    found = re.search(rb'"brokerAddrs":\{([^}]*)\}', answer.body)
    pairs = re.findall(rb'"?(\d+)"?:"([^"]+)"', found.group(1)) if found else []
    return {number.decode(): address.decode() for number, address in pairs}


@virtual
async def test_row_20_fast_failovers_never_leave_two_pasts() -> None:
    """KIP-101, KIP-279: after fast changes of the leader, logs differed and nothing noticed."""
    async with pair() as world:
        first, second = await started(world)
        for number in range(6):
            await world.send(first, b"common %d" % number)
            await world.copied(first, second)
            world.network.cut(first.ip, second.ip)
            await world.send(first, b"tail %d" % number)
            await first.kill()
            await second.kill()
            await second.start(MASTER)
            world.network.join(first.ip, second.ip)
            await world.send(second, b"after %d" % number)
            mine = bytes(first.disk.read("/store/commitlog/00000000000000000000"))
            await first.start(SLAVE)
            await world.until(lambda: first.slave.state is SlaveState.STOPPED)  # noqa: B023
            assert bytes(first.disk.read("/store/commitlog/00000000000000000000")) == mine
            await first.kill()
            first.disk = SimulatedDisk(world.chance, world.clock)  # an operator empties it
            await first.start(SLAVE)
            await world.until(lambda: first.slave.state is SlaveState.FOLLOWING)  # noqa: B023
            await world.copied(second, first)
            assert first.log == second.log
            first, second = second, first


@virtual
async def test_row_23_a_slave_that_is_ahead_of_a_master_without_its_disk_acknowledges_nothing() -> None:
    """Apache 4.9.7 and 5.5.0: the report of a slave that is ahead counted as a copy of everything."""
    async with pair() as world:
        master, slave = await started(world, SYNC)
        for number in range(30):
            assert (await world.send(master, b"%02d" % number)).code == OK
        kept = slave.log
        await master.kill()
        master.disk = SimulatedDisk(world.chance, world.clock)
        await master.start(SYNC)
        await world.until(lambda: slave.slave.state is SlaveState.STOPPED)
        for number in range(60):  # it grows past the end of the slave, too
            answer = await world.send(master, b"other past %02d" % number)
            assert (answer.code, (answer.ext or {})["replicas"]) == (ALONE, "1")
            await asyncio.sleep(1)
        assert master.store.log.end > slave.store.replica.end
        assert slave.slave.state is SlaveState.STOPPED
        assert slave.log == kept


@virtual
async def test_row_24_a_sync_master_with_the_defaults_of_5x_does_not_answer_ok_alone() -> None:
    """Apache 5.x: inSyncReplicas=1, and SYNC_MASTER answers OK without any slave."""
    async with pair() as world:
        master = world.node(f"{SYNC}inSyncReplicas=1\n")
        await master.start()
        answer = await world.send(master, b"alone")
        assert (answer.code, (answer.ext or {})["replicas"]) == (ALONE, "1")
        slave = world.node(SLAVE)
        await slave.start()
        await world.until(lambda: slave.slave.state is SlaveState.FOLLOWING)
        answer = await world.send(master, b"both")
        assert (answer.code, (answer.ext or {})["replicas"]) == (OK, "2")


@virtual
async def test_row_25_a_topic_and_offsets_survive_the_death_of_the_master_two_seconds_later() -> None:
    """DLedger: followers copied topics and offsets every ten seconds; a topic created before was unknown."""
    async with pair() as world:
        conf = "autoCreateTopicEnable=false\n"
        master, slave = await started(world, MASTER + conf, SLAVE + conf)
        desk = BrokerDesk(world, master)
        ext = {
            "topic": "T", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == OK
        for number in range(5):
            assert (await world.send(master, b"%d" % number)).code == OK
        delayed = await desk.send("T", b"late", queue_id=1, pairs={"DELAY": "1"})
        assert delayed.code == OK
        for offset in (2, 3):  # the second one is in the master's file 5 s after the first
            header = UpdateConsumerOffsetRequest(
                consumerGroup="CG", topic="T", queueId=0, commitOffset=offset
            )
            assert (await world.call(master, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == OK
            await asyncio.sleep(1)
        await master.kill()
        await slave.stop()
        await slave.start(MASTER + conf)
        assert (await world.send(slave, b"5")).code == OK
        assert await bodies(world, slave) == [b"%d" % number for number in range(6)]
        assert await slave_offset(world, slave) == 3
        await asyncio.sleep(30)
        assert await world.pull(slave, queue_id=1) == [b"late"], "delivered once"


@virtual
async def test_row_26_the_offsets_for_slaves_have_quoted_keys() -> None:
    """Apache 5.5.0: a slave cannot read bare numbers as keys, and never got consumer offsets."""
    async with pair() as world:
        master, _ = await started(world)
        await world.send(master, b"x")
        header = UpdateConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0, commitOffset=1)
        await world.call(master, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        await world.pull(master)
        answer = await world.call(master, RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert answer.code == OK
        assert b'"T@CG":{"0":1}' in answer.body.replace(b" ", b"").replace(b"\n", b"")
        assert not re.search(rb"[{,]\s*-?\d+\s*:", answer.body), "a key without quotes"


@virtual
async def test_row_27_a_consumer_ahead_of_the_slave_does_not_pull_in_a_tight_loop() -> None:
    """Apache: code 20 with the same offset at once, and 1,500 to 3,000 pulls a second."""
    async with pair() as world:
        master, slave = await started(world)
        for number in range(5):
            await world.send(master, b"%d" % number)
        await world.copied(master, slave)
        await master.kill()
        pulls, until = 0, world.clock.monotonic() + 60
        while world.clock.monotonic() < until:
            ext = {
                "consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "9", "maxMsgNums": "32",
                "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*",
                "subVersion": "0",
            }  # fmt: skip
            command = Command(int(RequestCode.PULL_MESSAGE), ext=ext)
            answer = await world.tool.call(slave.address, command, 30.0)
            pulls += 1
            assert pulls < 20, (
                f"{pulls} pulls within {60 - until + world.clock.monotonic():.1f} s: {answer.code}"
            )
        assert pulls >= 2
