"""Files of the log go, messages that wait in them do not."""

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.broker.delay_kit import SCHEDULE, TICK_S, arrived, bodies, restarts, saved, send
from tests.unit.broker.delay_retention_kit import delete_files, fill
from tests.unit.broker.desk import Desk, in_broker, with_broker

from turbopump.broker.delay.levels import BATCH, LOST_LINES_PER_MINUTE, REWRITE_PAUSE_S
from turbopump.protocol.codes import ResponseCode
from turbopump.store.delays import DELIVER_AT
from turbopump.testing.simulated_files import Survival

SMALL_FILE = 16_384
SMALL: dict[str, Any] = {"commit_log_file_size": SMALL_FILE, "message_delay_levels": "1s 30s 10m"}


@in_broker(**SMALL)
async def test_what_waits_is_written_anew_and_keeps_its_time(desk: Desk) -> None:
    for number in range(5):
        await send(desk, b"%d" % number, level=3, TAGS="A")
    due = [record.store_timestamp + 600_000 for record in await arrived(desk, SCHEDULE, 2)]
    await fill(desk)
    assert await delete_files(desk, 16_384) >= 16_384
    await asyncio.sleep(1)
    queue = desk.store.queues.queue(SCHEDULE, 2)
    assert (queue.min_offset, queue.max_offset) == (5, 10)
    assert [(queue.entry(offset) or ())[2] for offset in range(5, 10)] == due
    await asyncio.sleep((due[0] - desk.disk.clock.now_ms()) / 1000 - 0.02)
    assert await bodies(desk) == []
    await asyncio.sleep(0.02 + TICK_S)
    found = await arrived(desk)
    assert [record.body for record in found] == [b"0", b"1", b"2", b"3", b"4"]
    for record, due_ms in zip(found, due, strict=True):
        assert 0 <= record.store_timestamp - due_ms <= 1000 * TICK_S
        assert DELIVER_AT not in record.property_map()
        assert record.property_map()["DELAY"] == "3"


@pytest.mark.parametrize("end", [None, Survival.KEPT, Survival.LOST, Survival.RANDOM])
@pytest.mark.parametrize("deletes", [True, False])
def test_nothing_is_lost_or_doubled_when_it_ends_in_the_middle(end: Survival | None, deletes: bool) -> None:
    """Written anew, and then the file was deleted or not: which copy counts is told by the log."""

    async def before(desk: Desk) -> Survival | None:
        for number in range(5):
            await send(desk, b"%d" % number, level=2)
        await fill(desk)
        store = desk.store
        if not deletes:
            store.commit_log.delete_first = lambda: None  # type: ignore[method-assign]
        desk.disk.used_ratio = 0.88
        await store.retention.round()
        desk.disk.used_ratio = 0.5
        assert store.queues.queue(SCHEDULE, 1).next_offset >= 10
        return end

    async def after(desk: Desk) -> None:
        await asyncio.sleep(60)
        assert sorted(await bodies(desk)) == [b"0", b"1", b"2", b"3", b"4"]

    restarts(before, after, after, **SMALL)


def test_queues_made_anew_know_the_time_of_what_was_written_anew() -> None:
    async def before(desk: Desk) -> Survival:
        await send(desk, b"old", level=3)
        await asyncio.sleep(100)
        await fill(desk)
        assert await delete_files(desk, 16_384) >= 16_384
        killed = desk.disk.crash(Survival.KEPT)
        killed.remove_tree("/store/consumequeue")
        desk.disk._names = killed._names
        return Survival.KEPT

    async def after(desk: Desk) -> None:
        await asyncio.sleep(480)
        assert await bodies(desk) == []
        await asyncio.sleep(30)
        assert await bodies(desk) == [b"old"]

    restarts(before, after, **SMALL)


@in_broker(**SMALL)
async def test_a_message_is_written_anew_as_often_as_needed(desk: Desk) -> None:
    await send(desk, b"old", level=3, KEYS="k")
    for _ in range(4):
        await fill(desk)
        end = desk.store.log.end - desk.store.log.end % 16_384
        assert await delete_files(desk, end) == end
    (waiting,) = [record for record in await waiting_now(desk) if record.body == b"old"]
    assert waiting.property_map()["KEYS"] == "k"
    assert waiting.properties.count(DELIVER_AT.encode()) == 1
    await asyncio.sleep(600)
    assert await bodies(desk) == [b"old"]


def test_what_cannot_be_read_is_named_and_hides_nothing_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "turbopump.broker.delay.levels")

    async def scenario(desk: Desk) -> None:
        for number in range(BATCH + 2):
            await send(desk, b"%d" % number, level=3)
        waiting = await arrived(desk, SCHEDULE, 2)
        lost = {record.physical_offset for record in waiting[:BATCH]}
        await fill(desk)
        look_up = desk.store.log.look_up
        desk.store.log.look_up = lambda at: None if at in lost else look_up(at)  # type: ignore[method-assign]
        end = waiting[-1].physical_offset // SMALL_FILE * SMALL_FILE + SMALL_FILE
        assert await delete_files(desk, end) >= end
        said = [record.getMessage() for record in caplog.records]
        assert sum("it cannot be read (" in line for line in said) == LOST_LINES_PER_MINUTE
        written = [int(line.split()[-2]) for line in said if "Rewrote delayed messages" in line]
        assert sum(written) == sum(record.size for record in waiting[BATCH:])
        await asyncio.sleep(600)
        assert await bodies(desk) == [b"%d" % number for number in range(BATCH, BATCH + 2)]

    with_broker(scenario, **SMALL)


@in_broker(commit_log_file_size=65_536, message_delay_levels="1s 30s 10m")
async def test_a_message_whose_properties_are_full_is_written_anew_too(desk: Desk) -> None:
    await send(desk, b"old", level=3, P="x" * 32_500)  # and what the broker adds
    (waiting,) = await waiting_now(desk)
    room = 32_767 - len(waiting.properties)
    await send(desk, b"full", level=3, P="x" * (32_500 + room))
    await fill(desk, 16)
    assert await delete_files(desk, 3 * 65_536) >= 3 * 65_536
    await asyncio.sleep(600)
    assert await bodies(desk) == [b"old", b"full"]


@in_broker(**SMALL)
async def test_a_sender_does_not_give_himself_a_time(desk: Desk) -> None:
    await send(desk, b"old", level=3, **{DELIVER_AT: "1", f"MY_{DELIVER_AT}": "2"})
    (waiting,) = await waiting_now(desk)
    assert DELIVER_AT not in waiting.property_map()
    due_ms = waiting.store_timestamp + 600_000
    await fill(desk)
    assert await delete_files(desk, 16_384) >= 16_384
    (waiting,) = await waiting_now(desk)
    assert waiting.property_map()[DELIVER_AT] == str(due_ms)


async def waiting_now(desk: Desk) -> list[Any]:
    queue = desk.store.queues.queue(SCHEDULE, 2)
    found = [
        desk.store.log.look_up((queue.entry(offset) or ())[0])
        for offset in range(queue.min_offset, queue.max_offset)
    ]
    return [record for record in found if record is not None]


@in_broker(**SMALL)
async def test_a_full_disk_does_not_keep_it_from_being_written_anew(desk: Desk) -> None:
    """Otherwise the disk would stay full: nothing is written because no file goes, and none can go."""

    await send(desk, b"old", level=3)
    await fill(desk)
    desk.disk.used_ratio = 0.95
    await desk.store.retention.round(may_delete=False)
    assert (await desk.send("Plain")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert await desk.store.retention.round() > 0
    assert desk.store.log.min_offset >= 16_384
    assert (await desk.send("Plain")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    desk.disk.used_ratio = 0.5
    await asyncio.sleep(610)
    assert await bodies(desk) == [b"old"]


@in_broker(**SMALL)
async def test_the_file_stays_when_what_waits_in_it_cannot_be_written_anew(desk: Desk) -> None:
    await send(desk, b"old", level=3)
    await fill(desk)
    desk.disk.used_ratio = 0.88
    desk.disk.sync_failure = 1.0
    assert await desk.store.retention.round() == 0
    desk.disk.sync_failure = 0.0
    await asyncio.sleep(2)
    assert await desk.store.retention.round() > 0
    desk.disk.used_ratio = 0.5
    await asyncio.sleep(610)
    assert await bodies(desk) == [b"old"]


@in_broker(**SMALL, clean_interval_ms=10_000_000)
async def test_a_disk_full_of_waiting_messages_is_not_written_round_and_round(desk: Desk) -> None:
    while desk.store.log.end < 10 * 16_384:
        await send(desk, b"x" * 1000, level=3)
    await asyncio.sleep(1)
    desk.disk.used_ratio = 0.88
    end = desk.store.log.end
    assert await desk.store.retention.round() == 1
    assert await desk.store.retention.round() == 0
    assert desk.store.log.end - end < 2 * 16_384
    await asyncio.sleep(REWRITE_PAUSE_S)
    assert await desk.store.retention.round() == 1


@in_broker(**SMALL)
async def test_what_is_delivered_needs_no_file(desk: Desk) -> None:
    await send(desk, b"0")
    await asyncio.sleep(2)
    await fill(desk)
    await asyncio.sleep(10)
    end = desk.store.log.end
    assert await delete_files(desk, 16_384) >= 16_384
    assert desk.store.log.end == end
    await asyncio.sleep(10)
    assert saved(desk)["offsetTable"]["1"] == 1
