"""Timed messages: in their millisecond, once, wherever the broker is stopped or killed."""

import asyncio
from dataclasses import replace

import pytest
from tests.kit import virtual
from tests.unit.broker.delay_kit import arrived, bodies, restarts
from tests.unit.broker.desk import CONFIG, Desk, in_broker, records, running, with_broker
from tests.unit.broker.timers_kit import RULES, TIMED, now_ms, recall, send, sent, sleep_until

from turbopump.protocol import batch
from turbopump.protocol.bodies import KVTable, TimerMetrics
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.handles import RecallHandle, read_handle
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.runtime.chance import Chance
from turbopump.store import timer_check, timer_wheel
from turbopump.store.delays import DELIVER_AT
from turbopump.store.timer_log import TimerLog
from turbopump.store.tools import run, verify
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.simulated_files import Survival

DAY_S = 86_400
ILLEGAL = (
    "timer message illegal, the delay time should not be bigger than the max delay 315360000000ms; or if set "
    "del msg, the delay time should be bigger than the current time"
)


WINDOW_S = 200


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel of a real broker has 1,209,600 slots: 39 MB, three times on the simulated disk."""
    monkeypatch.setattr(timer_wheel, "SLOTS", 1_000)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("delay_ms", [1, 7, 999, 1000, 1001, 12_345, 1_000 * WINDOW_S, 3_000_000])
def test_a_message_comes_in_its_millisecond(delay_ms: int, flush: str) -> None:
    async def scenario(desk: Desk) -> None:
        due_ms = now_ms(desk) + delay_ms + 50
        await sent(desk, TIMER_DELIVER_MS=str(due_ms))
        await sleep_until(desk, due_ms - 1)
        assert await arrived(desk) == []
        await asyncio.sleep(1)
        (record,) = await arrived(desk)
        assert 0 <= record.store_timestamp - due_ms <= 1

    with_broker(scenario, **TIMED, flush_disk_type=flush)


@pytest.mark.parametrize(
    ("pairs", "ms"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 3_000),
        ({"TIMER_DELAY_MS": "2500"}, 2_500),
        ({"TIMER_DELAY_MS": "+2500"}, 2_500),
        ({"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "x", "TIMER_DELIVER_MS": "y"}, 3_000),
        ({"TIMER_DELAY_SEC": "3", "DELAY": "0"}, 3_000),
        ({"TIMER_DELAY_SEC": "3", "DELAY": "1"}, 1_000),
    ],
)
@in_broker(**TIMED)
async def test_which_wish_counts(desk: Desk, pairs: dict[str, str], ms: int) -> None:
    asked_ms = now_ms(desk)
    assert (await send(desk, **pairs)).code == ResponseCode.SUCCESS
    await asyncio.sleep(5)
    (record,) = await arrived(desk)
    assert ms <= record.store_timestamp - asked_ms <= ms + 101


@pytest.mark.parametrize(
    "pairs",
    [
        {"TIMER_DELAY_SEC": "-5"},
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_SEC": ""},
        {"TIMER_DELIVER_MS": "0"},
        {"TIMER_OUT_MS": "99999999999999", "TIMER_DELAY_SEC": "7"},
        {"TIMER_DEL_UNIQKEY": "abc"},
    ],
)
@in_broker(**TIMED)
async def test_what_is_not_in_the_future_comes_at_once(desk: Desk, pairs: dict[str, str]) -> None:
    answer = await send(desk, **pairs)
    assert answer.code == ResponseCode.SUCCESS
    assert "recallHandle" not in (answer.ext or {})
    assert await bodies(desk) == [b"later"]


@pytest.mark.parametrize(
    "pairs",
    [
        {"TIMER_DELAY_SEC": "x"},
        {"TIMER_DELAY_MS": "1.5"},
        {"TIMER_DELAY_MS": "99999999999999999999"},
        {"TIMER_DELAY_SEC": "315360001"},
        {"TIMER_DELAY_SEC": "9223372036854775807"},
        {"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "abc"},
    ],
)
@in_broker(**TIMED)
async def test_what_cannot_be_is_refused_in_the_words_of_apache(desk: Desk, pairs: dict[str, str]) -> None:
    answer = await send(desk, **pairs)
    assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)


@in_broker(config=replace(CONFIG, timers=replace(RULES, enabled=False)))
async def test_without_the_wheel_they_are_refused(desk: Desk) -> None:
    answer = await send(desk, TIMER_DELAY_SEC="5")
    assert (answer.code, answer.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "accurate timer message is not enabled, timerWheelEnable is false",
    )


@in_broker(**TIMED)
async def test_a_batch_with_a_time_is_refused(desk: Desk) -> None:
    for outer, inner in (("TIMER_DELAY_SEC\x015\x02", b""), ("", b"TIMER_DELAY_SEC\x015\x02")):
        packed = batch.join([(0, b"x", inner)])
        answer = await desk.send("T", packed, code=RequestCode.SEND_BATCH_MESSAGE, m="true", i=outer)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "a time of its own" in (answer.remark or "")


@in_broker(**TIMED)
async def test_properties_that_leave_no_room_for_the_way_are_refused(desk: Desk) -> None:
    answer = await send(desk, TIMER_DELAY_SEC="5", long="x" * 32_500)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@in_broker(**TIMED)
async def test_the_message_is_as_it_was_sent_and_has_what_apache_adds(desk: Desk) -> None:
    asked_ms = now_ms(desk)
    await sent(desk, TIMER_DELAY_SEC="5", TAGS="A", KEYS="k1 k2", own="x")
    (waits,) = records(await desk.pull(TIMER_TOPIC, 0))
    assert waits.property_map()[DELIVER_AT] == str(asked_ms + 5000)
    out_ms = (asked_ms + 4999) // 1000 * 1000
    await asyncio.sleep(6)
    (record,) = await arrived(desk)
    found = record.property_map()
    assert found["TIMER_DEQUEUE_MS"] == str(record.store_timestamp)
    assert found["TIMER_ENQUEUE_MS"] == str(asked_ms // 1000 * 1000)
    assert (found["TIMER_OUT_MS"], found["REAL_TOPIC"], found["REAL_QID"]) == (str(out_ms), "T", "0")
    assert (found["TAGS"], found["KEYS"], found["own"], found["TIMER_DELAY_SEC"]) == (
        "A",
        "k1 k2",
        "x",
        "5",
    )
    assert DELIVER_AT not in found
    assert record.prepared_transaction_offset == ~waits.physical_offset


@in_broker(**TIMED)
async def test_what_is_due_beyond_the_window_is_rolled_and_keeps_its_time(desk: Desk) -> None:
    due_ms = now_ms(desk) + 543_210
    await sent(desk, TIMER_DELIVER_MS=str(due_ms))
    await asyncio.sleep(550)
    (record,) = await arrived(desk)
    assert 0 <= record.store_timestamp - due_ms <= 1
    rolls = [r.property_map().get("TIMER_ROLL_TIMES") for r in await arrived(desk, TIMER_TOPIC)]
    assert rolls == [None, "1", "2"]


@in_broker(**TIMED)
async def test_many_with_all_kinds_of_times_come_each_in_its_own(desk: Desk) -> None:
    due: dict[bytes, int] = {}
    for number in range(400):
        body, delay_ms = b"%d" % number, 20 + number * number * 31 % 20_000
        due[body] = now_ms(desk) + delay_ms
        await sent(desk, body, TIMER_DELIVER_MS=str(due[body]))
        await asyncio.sleep(0.003)
    await asyncio.sleep(25)
    found = await arrived(desk)
    assert sorted(record.body for record in found) == sorted(due)
    assert all(0 <= record.store_timestamp - due[record.body] <= 2 for record in found)


@in_broker(**TIMED)
async def test_recalled_it_never_comes(desk: Desk) -> None:
    due_ms = now_ms(desk) + 5_000
    handle = await sent(desk, b"no", TIMER_DELIVER_MS=str(due_ms))
    await sent(desk, b"yes", TIMER_DELIVER_MS=str(due_ms))
    assert read_handle(handle) == RecallHandle("T", "broker-a", str(due_ms), "KEY" + "no".rjust(29, "0"))
    answer = await recall(desk, handle)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
    assert (answer.ext or {})["msgId"] == "KEY" + "no".rjust(29, "0")
    await asyncio.sleep(10)
    assert await bodies(desk) == [b"yes"]


@pytest.mark.parametrize(("topic", "seen"), [("T", []), ("U", [b"mine"])])
def test_a_recall_ends_a_timer_of_its_own_topic_only(topic: str, seen: list[bytes]) -> None:
    @in_broker(**TIMED)
    async def scenario(desk: Desk) -> None:
        due = str(now_ms(desk) + 5_000)
        await sent(desk, b"mine", TIMER_DELIVER_MS=due)
        key = "KEY" + "mine".rjust(29, "0")
        pairs = {"UNIQ_KEY": "A" * 32, "TIMER_DEL_UNIQKEY": key, "TIMER_DELIVER_MS": due}
        assert (await desk.send(topic, b"x", pairs=pairs)).code == ResponseCode.SUCCESS
        await asyncio.sleep(10)
        assert await bodies(desk) == seen

    scenario()


@pytest.mark.parametrize("before_ms", [1, 300, 300_000])
@in_broker(**TIMED)
async def test_it_can_be_recalled_up_to_the_last_millisecond(desk: Desk, before_ms: int) -> None:
    due_ms = now_ms(desk) + 600_123
    handle = await sent(desk, b"no", TIMER_DELIVER_MS=str(due_ms))
    await sleep_until(desk, due_ms - before_ms)
    assert (await recall(desk, handle)).code == ResponseCode.SUCCESS
    await asyncio.sleep(before_ms / 1000 + 10)
    assert await bodies(desk) == []
    answer = await recall(desk, handle)
    assert (answer.code, answer.remark) == (
        ResponseCode.ILLEGAL_OPERATION,
        "recall failed, timestamp invalid",
    )


@in_broker(**TIMED)
async def test_a_recall_that_cannot_be_is_answered_as_by_apache(desk: Desk) -> None:
    await desk.send("T")
    good = RecallHandle("T", "broker-a", str(now_ms(desk) + 60_000), "K")
    illegal, missing = ResponseCode.ILLEGAL_OPERATION, ResponseCode.TOPIC_NOT_EXIST
    for handle, topic, code, remark in (
        ("zzz", "T", illegal, "recall handle is invalid"),
        ("***", "T", illegal, "recall handle is invalid"),
        ("", "T", illegal, "recall handle is invalid"),
        (replace(good, topic="Other").pack(), "T", illegal, "recall failed, topic not match"),
        (replace(good, broker="b").pack(), "T", illegal, "recall failed, broker service not available"),
        (replace(good, due_ms="x").pack(), "T", illegal, "recall failed, timestamp invalid"),
        (replace(good, due_ms="7").pack(), "T", illegal, "recall failed, timestamp invalid"),
        (replace(good, due_ms="9" * 18).pack(), "T", illegal, "recall failed, timestamp invalid"),
        (
            replace(good, unique_key="\0" * 512).pack(),
            "T",
            illegal,
            "recall handle is invalid: too many NULs",
        ),
        (good.pack(), "None", missing, "recall failed, the topic[None] not exist"),
    ):
        answer = await recall(desk, handle, topic)
        assert (answer.code, answer.remark) == (code, remark)
    assert (await recall(desk, good.pack())).code == ResponseCode.SUCCESS


@in_broker(config=replace(CONFIG, timers=replace(RULES, recall=False)))
async def test_recalls_can_be_forbidden(desk: Desk) -> None:
    answer = await recall(desk, await sent(desk, TIMER_DELAY_SEC="5"))
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "recall failed, operation is forbidden",
    )


ENDS = [None, Survival.KEPT, Survival.LOST, Survival.RANDOM, Survival.PREFIX]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("pause_s", [0.0, 7.0, 400.0, 4_000.0])
def test_each_comes_once_over_restarts_and_crashes(end: Survival | None, pause_s: float) -> None:
    """Some were delivered before the end, one a moment ago; some are overdue after it; some are rolled."""
    delays_s = {b"%d" % number: number * 0.8 + 0.1 for number in range(20)} | {b"far": 500.0, b"no": 9.0}
    due: dict[bytes, int] = {}

    async def before(desk: Desk) -> Survival | None:
        for body, delay_s in delays_s.items():
            due[body] = now_ms(desk) + int(1000 * delay_s)
            handle = await sent(desk, body, TIMER_DELIVER_MS=str(due[body]))
        assert (await recall(desk, handle)).code == ResponseCode.SUCCESS
        await asyncio.sleep(4.2)
        assert len(await bodies(desk)) > 3
        await desk.store.flusher.wait_durable(desk.store.log.end)
        return end

    async def between(desk: Desk) -> Survival | None:
        await asyncio.sleep(2.3)
        await desk.store.flusher.wait_durable(desk.store.log.end)
        return end

    async def after(desk: Desk) -> None:
        await asyncio.sleep(600)
        found = await arrived(desk)
        assert sorted(record.body for record in found) == sorted(set(due) - {b"no"})
        assert all(record.store_timestamp >= due[record.body] for record in found)

    restarts(before, between, between, after, after, **TIMED, pause_s=pause_s)


def test_a_start_after_a_long_time_off_loses_nothing() -> None:
    """Slots of now would be slots of then: the wheel has turned more than once."""

    async def before(desk: Desk) -> None:
        for number in range(50):
            await sent(desk, b"%d" % number, TIMER_DELAY_SEC=str(1 + 3 * number))

    async def after(desk: Desk) -> None:
        for number in range(50, 100):
            await sent(desk, b"%d" % number, TIMER_DELAY_SEC=str(1 + 3 * (number - 50)))
        await asyncio.sleep(200)
        assert sorted(map(int, await bodies(desk))) == list(range(100))

    restarts(before, after, **TIMED, pause_s=2_500.0)


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "config/timercheck"])
@pytest.mark.parametrize("end", [None, Survival.KEPT])
def test_a_file_that_is_lost_is_made_anew(lost: str, end: Survival | None) -> None:
    async def before(desk: Desk) -> Survival | None:
        for number in range(100):
            await sent(desk, b"%d" % number, TIMER_DELAY_MS=str(100 + 100 * number))
        await sent(desk, b"100", TIMER_DELAY_SEC="700")
        await asyncio.sleep(250)
        return end

    async def without(desk: Desk) -> None:
        await asyncio.sleep(1_000)
        assert sorted(map(int, await bodies(desk))) == list(range(101))

    async def story() -> None:
        disk = SimulatedDisk(Chance(1), VirtualClock())
        async with running(disk=disk, **TIMED) as desk:
            ended = await before(desk)
            if ended is not None:
                disk = disk.crash(ended)
        disk.remove_tree(f"/store/{lost}")
        for name in (".bak", ".tmp"):
            disk.remove_tree(f"/store/{lost}{name}")
        async with running(disk=disk, **TIMED) as desk:
            await without(desk)

    run_virtual(story())


@pytest.mark.parametrize("lost", [slice(0, 512), slice(1024, 1536)])
@virtual
async def test_nothing_comes_again_though_a_sector_of_the_notes_was_lost(lost: slice) -> None:
    """A file that was being written in a power cut: what is left of it must not pass for one of Apache's."""
    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk, **TIMED) as desk:
        for number in range(5):
            await sent(desk, b"%d" % number, TIMER_DELAY_MS=str(1000 + number))
        await asyncio.sleep(5)
        assert len(await bodies(desk)) == 5
        disk = disk.crash(Survival.KEPT)
    torn = bytearray(disk.read("/store/config/timercheck"))
    torn[lost] = bytes(512)
    for name in ("timercheck", "timercheck.bak", "timercheck.tmp"):
        disk.remove_tree(f"/store/config/{name}")
    disk.write("/store/config/timercheck.tmp", bytes(torn), sync=True)
    async with running(disk=disk, **TIMED) as desk:
        await asyncio.sleep(5)
        assert len(await bodies(desk)) == 5


@pytest.mark.parametrize("end", [None, Survival.KEPT])
@pytest.mark.parametrize("late_ms", [10, 500, 990])
@virtual
async def test_a_broker_that_knows_slots_alone_finds_no_unit_that_was_fired(
    end: Survival | None, late_ms: int
) -> None:
    """Apache's: it goes on at the time in timercheck and fires whatever is in slots from there on."""

    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk, **TIMED) as desk:
        second = now_ms(desk) // 1000 * 1000 + 3_000
        due = {b"a": second + 1, b"b": second + late_ms, b"later": second + 6_000}
        for body, due_ms in due.items():
            await sent(desk, body, TIMER_DELIVER_MS=str(due_ms))
        await sleep_until(desk, second + late_ms + 2_100)
        assert await bodies(desk) == [b"a", b"b"]
        if end is not None:
            disk = disk.crash(end)
    read_ms = timer_check.decode(disk.read("/store/config/timercheck")).read_ms
    units = [unit for _, unit in TimerLog("/store/timerlog", RULES.log_file_size, disk).scan()]
    assert [u.exact_ms for u in units if u.slot_ms >= read_ms and not u.recalls] == [due[b"later"]]


@pytest.mark.parametrize("end", [None, Survival.KEPT, Survival.LOST])
@virtual
async def test_our_files_of_timers_are_found_good(end: Survival | None) -> None:
    disk = SimulatedDisk(Chance(1), VirtualClock())
    async with running(disk=disk, **TIMED) as desk:
        for number in range(100):
            handle = await sent(desk, b"%d" % number, TIMER_DELAY_MS=str(100 + 177 * number))
        assert (await recall(desk, handle)).code == ResponseCode.SUCCESS
        await sent(desk, b"far", TIMER_DELAY_SEC="700")
        await asyncio.sleep(9.3)
        if end is not None:
            disk = disk.crash(end)
    assert run(verify("/store", disk)).problems == []


@in_broker(**TIMED)
async def test_tools_see_how_many_wait_and_up_to_when_all_is_done(desk: Desk) -> None:
    for seconds in (1, 20, 500):
        await sent(desk, TIMER_DELAY_SEC=str(seconds))
    await asyncio.sleep(5)
    table = KVTable.decode((await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    assert (table["timerCongestNum"], table["timerOffsetBehind"], table["timerReadBehind"]) == (
        "2",
        "0",
        "0",
    )
    counts = TimerMetrics.decode((await desk.ask(RequestCode.GET_TIMER_METRICS)).body).timingCount
    assert {topic: one.count for topic, one in counts.items()} == {"T": 2}
    check = timer_check.decode((await desk.ask(RequestCode.GET_TIMER_CHECK_POINT)).body)
    assert check.queue_offset == 3
    assert now_ms(desk) - 60_000 <= check.read_ms <= now_ms(desk)
