"""The broker as a whole: what survives a stop, what a crash, what it says of itself."""

import asyncio

from tests.kit import virtual
from tests.unit.broker.desk import Desk, running

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock
from turbopump.testing.simulated_files import Survival

READERS = {"consumerGroup": "readers", "topic": "T", "queueId": 0}


async def committed(desk: Desk) -> str | None:
    answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, READERS | {"setZeroIfNotFound": "false"})
    return (answer.ext or {}).get("offset")


@virtual
async def test_topics_messages_and_offsets_survive_a_stop() -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk) as desk:
        await desk.send("T", b"kept")
        await desk.pull("T", 1, sysFlag=5, commitOffset=1)
    assert not disk.exists("/store/abort")
    async with running(disk=disk) as desk:
        assert (await desk.pull("T", 0)).remark == "FOUND"
        assert await committed(desk) == "1"


@virtual
async def test_offsets_are_on_disk_within_five_seconds() -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk, flush_disk_type="SYNC_FLUSH") as desk:
        await desk.send("T")
        await desk.pull("T", 1, sysFlag=5, commitOffset=1)
        await asyncio.sleep(6)
        await desk.send("T")
        await desk.pull("T", 2, sysFlag=5, commitOffset=2)
        await asyncio.sleep(6)
        after_crash = disk.crash(Survival.LOST)
    async with running(disk=after_crash) as desk:
        assert await committed(desk) == "2"


@virtual
async def test_an_offset_beyond_the_end_of_a_shortened_log_is_brought_back_to_it() -> None:
    """A consumer that stays beyond the end would skip what is written there next."""

    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk) as desk:
        await desk.send("T")
        await asyncio.sleep(20)  # flushed
        await desk.send("T")
        await desk.pull("T", 2, sysFlag=5, commitOffset=2)
        after_crash = disk.crash(Survival.LOST)
    after_crash.make_dirs("/store/config")
    after_crash.write("/store/config/consumerOffset.json", b'{"offsetTable":{"T@readers":{0:2}}}')
    async with running(disk=after_crash) as desk:
        assert await committed(desk) == "1"


@virtual
async def test_those_who_wait_are_answered_when_the_broker_stops() -> None:
    async with running() as desk:
        await desk.send("T")
        waiting = asyncio.create_task(desk.pull("T", 1, sysFlag=6))
        await asyncio.sleep(0.1)
        await desk.broker.stop()
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND


@virtual
async def test_the_broker_says_what_its_acknowledgement_means() -> None:
    async with running(flush_disk_type="SYNC_FLUSH") as desk:
        assert desk.broker.acknowledgement == "the message is synced to disk"
        assert desk.broker.trouble is None
    async with running() as desk:
        assert "operating system's memory" in desk.broker.acknowledgement


@virtual
async def test_a_topic_made_by_a_send_is_there_after_a_kill_at_once() -> None:
    """topics.json is written after the answer; a killed process may not have come to it."""

    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk) as desk:
        for number in range(20):
            answer = await desk.send(f"New{number}", b"kept", queue_id=2)
            assert answer.code == ResponseCode.SUCCESS
        killed = disk.crash(Survival.KEPT)
        for name in ("topics.json", "topics.json.bak", "topics.json.tmp"):
            if killed.exists(f"/store/config/{name}"):
                killed.remove(f"/store/config/{name}")
    async with running(disk=killed) as desk:
        for number in range(20):
            assert (await desk.pull(f"New{number}", 0, queue_id=2)).remark == "FOUND"
        assert (await desk.pull("Nope", 0)).code == ResponseCode.TOPIC_NOT_EXIST


@virtual
async def test_a_deleted_topic_stays_deleted_after_a_kill_at_once() -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk) as desk:
        await desk.send("Gone", b"old")
        await desk.send("Stays", b"old")
        await asyncio.sleep(11)  # a checkpoint
        await desk.send("Gone", b"newer")
        deleted = await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})
        assert deleted.code == ResponseCode.SUCCESS
        killed = disk.crash(Survival.KEPT)
    async with running(disk=killed) as desk:
        assert (await desk.pull("Gone", 0)).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await desk.pull("Stays", 0)).remark == "FOUND"
        answer = await desk.send("Gone", b"again")
        assert (answer.ext or {})["queueOffset"] == "0"


@virtual
async def test_a_batch_that_waits_for_its_sync_is_answered_before_the_broker_stops() -> None:
    async with running(flush_disk_type="SYNC_FLUSH") as desk:
        await desk.send("T")
        desk.workers.stall(1.5)
        pairs = {"UNIQ_KEY": "k", "TRACE_ON": "x"}  # needs rewriting: the general path
        sends = [
            asyncio.create_task(desk.send("T", b"plain")),
            asyncio.create_task(desk.send("T", b"rewritten", pairs=pairs)),
        ]
        await asyncio.sleep(0.1)
        await desk.broker.stop()
        for send in sends:
            assert (await send).code == ResponseCode.SUCCESS
