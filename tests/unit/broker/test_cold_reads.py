"""Pulls of messages that are not in memory: they wait for the disk, and nobody else does."""

import asyncio

from tests.kit import virtual
from tests.unit.broker.desk import Desk, records, running

from turbopump.protocol.codes import RequestCode
from turbopump.runtime.chance import Chance
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock


def store_of(desk: Desk) -> Store:
    store = desk.broker._store
    assert store is not None
    return store


async def old_messages(count: int = 20) -> SimulatedDisk:
    """The disk of a broker that was stopped, none of it in memory."""
    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk) as desk:
        for number in range(count):
            await desk.send("T", b"%d" % number)
    found = ["/store/consumequeue/T/0/", "/store/commitlog/"]
    disk.cold = {f"{path}{entry.name}" for path in found for entry in disk.entries(path)}
    assert len(disk.cold) >= 2
    return disk


@virtual
async def test_a_pull_of_old_messages_waits_for_the_disk_and_sends_do_not() -> None:
    async with running(disk=await old_messages()) as desk:
        desk.workers.stall_reads(2.0)
        clock = desk.disk.clock
        began = clock.monotonic()
        pulled = asyncio.create_task(desk.pull("T", 5))
        for _ in range(10):
            assert (await desk.send("T")).code == 0
        assert clock.monotonic() - began < 0.1
        assert (await desk.pull("T", 25)).code == 0  # new messages are in memory
        assert clock.monotonic() - began < 0.1
        answer = await pulled
        assert 2 < clock.monotonic() - began < 2.1
        assert [int(one.body) for one in records(answer)[:15]] == list(range(5, 20))
        began = clock.monotonic()
        assert records(await desk.pull("T", 5)) != []
        assert clock.monotonic() - began < 0.1  # it is in memory now


@virtual
async def test_entries_of_the_queue_come_from_the_disk_too() -> None:
    async with running(disk=await old_messages()) as desk:
        await desk.pull("T", 19)
        desk.disk.cold |= {file.path for file in store_of(desk).queues.files._open.values()}
        assert any("consumequeue" in path for path in desk.disk.cold)
        assert any("commitlog" in path for path in desk.disk.cold) is False
        desk.workers.stall_reads(1.0)
        began = desk.disk.clock.monotonic()
        assert len(records(await desk.pull("T", 0))) == 20
        assert 1 < desk.disk.clock.monotonic() - began < 1.1


@virtual
async def test_it_is_counted_how_long_a_group_waited() -> None:
    async with running(disk=await old_messages()) as desk:
        desk.workers.stall_reads(1.0)
        await desk.pull("T", 0)
        await asyncio.sleep(10)
        key = {"statsName": "GROUP_GET_LATENCY", "statsKey": "0@T@readers"}
        answer = await desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, key)
        assert b'"sum":100' in answer.body  # a second, and a few milliseconds


@virtual
async def test_a_file_that_is_deleted_meanwhile_is_found_to_be_gone() -> None:
    async with running(disk=await old_messages(2000)) as desk:
        store = store_of(desk)
        while len(store.commit_log.files.starts) < 2:
            await desk.send("T", b"x" * 100_000)
        desk.workers.stall_reads(1.0)
        pulled = asyncio.create_task(desk.pull("T", 0))
        await asyncio.sleep(0.1)
        store.flusher._sync_blocking()
        store.commit_log.delete_first()
        await store.upkeep.follow_log()
        answer = await pulled
        assert (answer.code, answer.remark) == (21, "OFFSET_TOO_SMALL")


@virtual
async def test_who_leaves_does_not_get_an_answer_and_harms_nobody() -> None:
    async with running(disk=await old_messages()) as desk:
        desk.workers.stall_reads(1.0)
        connection = await desk.client.connect(f"127.0.0.1:{desk.broker.port}")
        pulled = asyncio.create_task(desk.pull("T", 0))
        await asyncio.sleep(0.1)
        connection.abort()
        assert isinstance((await asyncio.gather(pulled, return_exceptions=True))[0], OSError)
        await asyncio.sleep(5)
        assert records(await desk.pull("T", 0)) != []


@virtual
async def test_a_broker_that_stops_answers_them_first() -> None:
    async with running(disk=await old_messages()) as desk:
        desk.workers.stall_reads(1.0)
        pulled = asyncio.create_task(desk.pull("T", 0))
        await asyncio.sleep(0.1)
        await desk.broker.stop()
        assert records(await pulled) != []
