"""Files of the log go, timers that wait in them do not; and the files of the timer log follow."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.delay_kit import arrived, bodies, restarts
from tests.unit.broker.delay_retention_kit import delete_files, fill
from tests.unit.broker.desk import CONFIG, Desk, in_broker
from tests.unit.broker.timers_kit import RULES, now_ms, recall, sent

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.store import timer_wheel
from turbopump.store.segment import file_name
from turbopump.store.timer_log import UNIT_SIZE
from turbopump.testing.simulated_files import Survival

SMALL: dict[str, Any] = {
    "config": replace(CONFIG, timers=replace(RULES, roll_window_slots=900, log_file_size=200)),
    "commit_log_file_size": 16_384,
}


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_wheel, "SLOTS", 2_000)


@in_broker(**SMALL)
async def test_what_waits_is_put_again_and_keeps_its_time(desk: Desk) -> None:
    due = [now_ms(desk) + 600_123 + number for number in range(5)]
    for number, due_ms in enumerate(due):
        await sent(desk, b"%d" % number, TIMER_DELIVER_MS=str(due_ms), TAGS="A")
    handle = await sent(desk, b"no", TIMER_DELIVER_MS=str(due[0]))
    assert (await recall(desk, handle)).code == ResponseCode.SUCCESS
    await fill(desk)
    assert await delete_files(desk, 16_384) >= 16_384
    await asyncio.sleep(1)
    queue = desk.store.queues.queue(TIMER_TOPIC, 0)
    assert (queue.min_offset, queue.max_offset) == (7, 14)
    await asyncio.sleep(650)
    found = await arrived(desk)
    assert [record.body for record in found] == [b"0", b"1", b"2", b"3", b"4"]
    for record, due_ms in zip(found, due, strict=True):
        assert 0 <= record.store_timestamp - due_ms <= 1
        assert record.property_map()["TAGS"] == "A"


@pytest.mark.parametrize("end", [None, Survival.KEPT, Survival.LOST, Survival.RANDOM])
@pytest.mark.parametrize("deletes", [True, False])
def test_nothing_is_lost_or_doubled_when_it_ends_in_the_middle(end: Survival | None, deletes: bool) -> None:
    """Put again, and then the file was deleted or not: which copy counts is told by the log."""

    async def before(desk: Desk) -> Survival | None:
        for number in range(5):
            await sent(desk, b"%d" % number, TIMER_DELAY_MS=str(30_000 + number))
        await fill(desk)
        store = desk.store
        if not deletes:
            store.commit_log.delete_first = lambda: None  # type: ignore[method-assign]
        desk.disk.used_ratio = 0.88
        await store.retention.round()
        desk.disk.used_ratio = 0.5
        assert store.queues.queue(TIMER_TOPIC, 0).next_offset >= 10
        return end

    async def after(desk: Desk) -> None:
        await asyncio.sleep(60)
        assert sorted(await bodies(desk)) == [b"0", b"1", b"2", b"3", b"4"]

    restarts(before, after, after, **SMALL)


@in_broker(**SMALL)
async def test_files_of_the_timer_log_go_when_their_messages_are_gone(desk: Desk) -> None:
    for number in range(40):
        await sent(desk, b"%d" % number, TIMER_DELAY_MS="500")
    await asyncio.sleep(3)
    before = [entry.name for entry in desk.disk.entries("/store/timerlog")]
    await fill(desk, files=3)
    await delete_files(desk, 32_768)
    await sent(desk, b"new", TIMER_DELAY_MS="500")
    await asyncio.sleep(3)
    after = [entry.name for entry in desk.disk.entries("/store/timerlog")]
    assert len(before) > 10
    assert len(after) <= 2
    assert desk.store.queues.queue("T", 0).max_offset == 41


@in_broker(**SMALL)
async def test_timers_behind_a_damaged_unit_are_counted_in_one_warning(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        await sent(desk, b"%d" % number, TIMER_DELAY_MS="600000")
    await asyncio.sleep(2)
    assert len(desk.disk.entries("/store/timerlog")) == 2  # three units in a file
    desk.disk.open_plain(f"/store/timerlog/{file_name(0)}").write_at(2 * UNIT_SIZE, bytes(UNIT_SIZE))
    await fill(desk)
    assert await delete_files(desk, 16_384) >= 16_384
    await delete_files(desk, 32_768)
    lines = [line for line in caplog.messages if "timer log is damaged" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"The timer log is damaged at {2 * UNIT_SIZE}: up to 3 timers")


@in_broker(**SMALL)
async def test_a_timer_log_without_damage_is_not_warned_of(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(6):
        await sent(desk, b"%d" % number, TIMER_DELAY_MS="600000")
    await fill(desk)
    assert await delete_files(desk, 16_384) >= 16_384
    assert "damaged" not in caplog.text
