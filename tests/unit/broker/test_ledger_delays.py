"""Delayed messages of a ledger: they wait from the commit on; never early, once, rolled back ones never."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.delay_kit import SCHEDULE, TICK_S, restarts
from tests.unit.broker.delay_retention_kit import fill
from tests.unit.broker.desk import CONFIG, Desk, in_broker, with_broker
from tests.unit.broker.ledger_requests_kit import DAY_S, a_day_passes, begun, nothing_settles, small
from tests.unit.broker.producers import HALF, OP, all_of
from tests.unit.broker.timers_kit import RULES, TIMED, now_ms, sleep_until
from tests.unit.broker.writers import decide, end, frame, seen, write

from turbopump.broker.config import BrokerConfig
from turbopump.compiled import PURE
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.store import timer_wheel
from turbopump.store.append import Appended, Draft
from turbopump.store.delays import DELIVER_AT
from turbopump.store.message_log import MessageLog
from turbopump.testing.simulated_files import Survival

OK, TOO_WRONG = ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL
WITHOUT_TIMERS = replace(CONFIG, timers=replace(RULES, enabled=False))
LATER_MS = 12_345


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_wheel, "SLOTS", 1_000)


@pytest.fixture(params=["compiled", "pure"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        monkeypatch.setenv(PURE, "1")


def at(time_ms: int) -> dict[str, str]:
    return {"TIMER_DELIVER_MS": str(time_ms)}


def level(number: int) -> dict[str, str]:
    return {"DELAY": str(number)}


async def wrote(desk: Desk, rows: Iterable[tuple[bytes, dict[str, str]]], token: str = "a") -> None:
    """In one frame."""
    body = b"".join(frame([name], **pairs) for name, pairs in rows)
    answer = await write(desk, 0, token, [], body=body)
    assert answer.code == OK, answer.remark


async def committed(desk: Desk, token: str = "a") -> int:
    """When."""
    assert (await decide(desk, 0, token)).code == OK
    assert (await end(desk, 0))["left"] == 0
    return now_ms(desk)


async def times(desk: Desk) -> dict[bytes, int]:
    """Of what can be seen when it was delivered."""
    found = await all_of(desk, "T", 1)
    assert len({one.body for one in found}) == len(found)
    return {one.body: one.store_timestamp for one in found}


# when they come


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.usefixtures("either")
def test_rows_of_one_frame_come_each_at_its_time(flush: str) -> None:
    async def scenario(desk: Desk) -> None:
        await begun(desk)
        due_ms = now_ms(desk) + LATER_MS
        kinds = [{}, level(1), level(2), at(due_ms), {"TIMER_DELAY_SEC": "7"}]
        rows = [(b"%d" % number, kinds[number % 5]) for number in range(300)]
        await wrote(desk, rows)
        await asyncio.sleep(2)
        assert await times(desk) == {}
        done_ms = await committed(desk)
        assert len(await all_of(desk, OP)) == 300
        await asyncio.sleep(20)
        found = await times(desk)
        assert found.keys() == {body for body, _ in rows}
        for number, (body, _) in enumerate(rows):
            wanted = (done_ms, done_ms + 1_000, done_ms + 5_000, due_ms, done_ms + 7_000)[number % 5]
            assert -10 <= found[body] - wanted <= 1000 * TICK_S, number  # the commit took some ms
            assert number % 5 != 3 or found[body] >= due_ms

    with_broker(scenario, **TIMED, flush_disk_type=flush)


@pytest.mark.parametrize(("pairs", "ms"), [(level(2), 5_000), ({"TIMER_DELAY_MS": "5000"}, 5_000)])
@in_broker(**TIMED)
async def test_a_delay_counts_from_the_commit(desk: Desk, pairs: dict[str, str], ms: int) -> None:
    await begun(desk)
    await wrote(desk, [(b"row", pairs)])
    await asyncio.sleep(60)
    before_ms = now_ms(desk)
    await committed(desk)
    await sleep_until(desk, before_ms + ms - 1)
    assert await times(desk) == {}
    await asyncio.sleep(1)
    assert (await times(desk))[b"row"] >= before_ms + ms


@in_broker(**TIMED)
async def test_a_time_that_is_over_at_the_commit_is_at_once(desk: Desk) -> None:
    await begun(desk)
    await wrote(desk, [(b"soon", at(now_ms(desk) + 1_000)), (b"long ago", at(-5)), (b"plain", level(0))])
    await asyncio.sleep(2)
    await committed(desk)
    assert await seen(desk) == [b"soon", b"long ago", b"plain"]


@in_broker(**TIMED, message_delay_levels="1s 5s")
async def test_a_level_beyond_the_last_is_the_last_and_comes_before_a_time(desk: Desk) -> None:
    await begun(desk)
    await wrote(desk, [(b"row", level(99) | at(now_ms(desk) + 1))])
    await committed(desk)
    await asyncio.sleep(4.9)
    assert await seen(desk) == []
    await asyncio.sleep(0.3)
    assert await seen(desk) == [b"row"]


@in_broker(**TIMED)
async def test_a_delayed_message_is_what_a_sent_one_would_be(desk: Desk) -> None:
    await begun(desk)
    due_ms = now_ms(desk) + 3_000
    await wrote(desk, [(b"level", level(1) | {"TAGS": "A"}), (b"timed", at(due_ms) | {"KEYS": "k"})])
    halves = await all_of(desk, HALF)
    await committed(desk)
    waiting = [*await all_of(desk, SCHEDULE, 0), *await all_of(desk, TIMER_TOPIC)]
    assert [one.prepared_transaction_offset for one in waiting] == [one.physical_offset for one in halves]
    await asyncio.sleep(5)
    leveled, timed = await all_of(desk, "T", 1)
    assert (leveled.body, leveled.flag, leveled.tags) == (b"level", 7, "A")
    assert leveled.property_map()["DELAY"] == "1"
    assert (timed.body, timed.flag, timed.keys) == (b"timed", 7, "k")
    for one in (leveled, timed):
        assert not any(name.startswith("TURBOPUMP_TXN") for name in one.property_map())
        assert DELIVER_AT not in one.property_map()


@in_broker(**TIMED)
async def test_what_is_rolled_back_never_comes(desk: Desk) -> None:
    await begun(desk)
    for token in ("lost", "won"):
        body = token.encode()
        times_of = (level(1), at(now_ms(desk) + 2_000), {})
        rows = [(body + b"%d" % number, pairs) for number, pairs in enumerate(times_of)]
        await wrote(desk, rows, token)
    await committed(desk, "won")
    await asyncio.sleep(600)
    assert sorted(await seen(desk)) == [b"won0", b"won1", b"won2"]


# what is refused


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (at(10**16), "timer message illegal"),
        ({"TIMER_DELIVER_MS": "x"}, "timer message illegal"),
        ({"TIMER_DELAY_SEC": "315360001"}, "timer message illegal"),
        ({"DELAY": "x"}, "the delay level must be a number"),
    ],
)
@in_broker(**TIMED)
async def test_what_a_send_would_refuse_is_refused_when_it_comes_and_named(
    desk: Desk, pairs: dict[str, str], words: str
) -> None:
    await begun(desk)
    body = frame([b"good"], DELAY="1") + frame([b"bad"], **pairs)
    answer = await write(desk, 0, "a", [], body=body)
    assert answer.code in (TOO_WRONG, ResponseCode.SYSTEM_ERROR)
    assert (answer.remark or "").startswith("message Ubad: " + words)
    assert await all_of(desk, HALF) == []


@in_broker(**TIMED)
async def test_a_recall_is_no_half_message(desk: Desk) -> None:
    await begun(desk)
    pairs = at(now_ms(desk) + 5_000) | {"TIMER_DEL_UNIQKEY": "abc"}
    answer = await write(desk, 0, "a", [b"x"], pairs=pairs)
    assert (answer.code, answer.remark) == (TOO_WRONG, "a half message carries TIMER_DEL_UNIQKEY")


@in_broker(config=WITHOUT_TIMERS)
async def test_without_timers_a_time_is_refused_and_a_level_is_not(desk: Desk) -> None:
    await begun(desk)
    answer = await write(desk, 0, "a", [b"x"], pairs=at(now_ms(desk) + 5_000))
    assert answer.code == TOO_WRONG
    assert (answer.remark or "").endswith("timerWheelEnable is false")
    await wrote(desk, [(b"row", level(1))])
    await committed(desk)
    await asyncio.sleep(2)
    assert await seen(desk) == [b"row"]


@in_broker(**small(TIMED["config"]))
async def test_the_longest_properties_leave_room_for_the_way(desk: Desk) -> None:
    """Also when the half message was written anew before."""

    await begun(desk)
    pairs = at(now_ms(desk) + 1000 * (DAY_S + 60))
    longest = 32_400
    while (await write(desk, 0, "a", [b"row"], pairs=pairs | {"own": "x" * longest})).code != OK:
        longest -= 1
    assert longest > 32_000
    await fill(desk, 8)
    await a_day_passes(desk)
    await committed(desk)
    assert await seen(desk) == []
    await asyncio.sleep(60)
    (found,) = await all_of(desk, "T", 1)
    assert found.property_map()["own"] == "x" * longest


# restarts, crashes, retention, other rules


@pytest.mark.parametrize("end_of_life", [None, *Survival])
@pytest.mark.usefixtures("either")
def test_each_comes_once_over_restarts_and_crashes(end_of_life: Survival | None) -> None:
    due_ms = 0

    async def written(desk: Desk) -> Survival | None:
        nonlocal due_ms
        await begun(desk)
        due_ms = now_ms(desk) + 60_000
        kinds = [{}, level(4), at(due_ms)]
        await wrote(desk, [(b"%d" % number, kinds[number % 3]) for number in range(150)])
        with nothing_settles():
            assert (await decide(desk, 0, "a")).code == OK
        return end_of_life

    async def settled(desk: Desk) -> Survival | None:
        await asyncio.sleep(3)
        assert len(await seen(desk)) == 50
        return end_of_life

    async def delivered(desk: Desk) -> Survival | None:
        await sleep_until(desk, due_ms + 1)
        return end_of_life

    async def at_last(desk: Desk) -> None:
        await asyncio.sleep(100)
        found = await times(desk)
        assert sorted(found) == sorted(b"%d" % number for number in range(150))
        assert all(found[b"%d" % number] >= due_ms for number in range(2, 150, 3))
        assert await all_of(desk, SCHEDULE, 3) != []

    restarts(written, settled, delivered, at_last, **TIMED, flush_disk_type="SYNC_FLUSH")


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 5])
def test_a_crash_between_the_records_of_a_commit_delivers_nothing_twice(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one append, which has a message and its op record three times, the log has the first ones alone."""

    async def before(desk: Desk) -> Survival:
        await begun(desk)
        await wrote(desk, [(b"level", level(2)), (b"timed", at(now_ms(desk) + 5_000)), (b"plain", {})])
        whole = MessageLog.append

        def torn(log: MessageLog, drafts: list[Draft], together: bool = False) -> list[Appended]:
            assert len(drafts) == 6
            done = whole(log, drafts[:kept])
            return done + done[-1:] * (6 - kept)

        with nothing_settles():
            assert (await decide(desk, 0, "a")).code == OK
            with monkeypatch.context() as patch:
                patch.setattr(MessageLog, "append", torn)
                await end(desk, 0)
        assert len(await all_of(desk, OP)) == kept // 2
        return Survival.KEPT

    async def after(desk: Desk) -> None:
        await asyncio.sleep(1)
        assert len(await all_of(desk, OP)) == 3
        assert await seen(desk) == [b"plain"]
        await asyncio.sleep(100)
        assert sorted(await seen(desk)) == [b"level", b"plain", b"timed"]

    restarts(before, after, **TIMED)


@in_broker(**small(TIMED["config"]))
async def test_half_messages_and_what_waits_of_them_outlive_their_files(desk: Desk) -> None:
    await begun(desk)
    due_ms = now_ms(desk) + 1000 * (2 * DAY_S + 60)
    await wrote(desk, [(b"level", level(18)), (b"timed", at(due_ms))])
    await fill(desk, 8)
    await a_day_passes(desk)
    await committed(desk)
    ends = desk.store.log.end
    await fill(desk, 8)
    await a_day_passes(desk)
    assert desk.store.log.min_offset > ends
    assert await seen(desk) == [b"level"]
    await sleep_until(desk, due_ms - 1)
    assert await seen(desk) == [b"level"]
    await asyncio.sleep(1)
    assert await seen(desk) == [b"level", b"timed"]


def changed(*configs: BrokerConfig) -> dict[str, Any]:
    return {"config": list(configs)}


def test_what_was_taken_keeps_its_time_under_stricter_rules() -> None:
    strict = replace(CONFIG, timers=replace(RULES, max_delay_s=10))
    due_ms = 0

    async def before(desk: Desk) -> None:
        nonlocal due_ms
        await begun(desk)
        due_ms = now_ms(desk) + 3_600_000
        await wrote(desk, [(b"row", at(due_ms))])

    async def after(desk: Desk) -> None:
        assert (await write(desk, 0, "b", [b"x"], pairs=at(due_ms))).code == TOO_WRONG
        await committed(desk)
        await sleep_until(desk, due_ms - 1)
        assert await seen(desk) == []
        await asyncio.sleep(1)
        assert await seen(desk) == [b"row"]

    restarts(before, after, **changed(TIMED["config"], strict))


@pytest.mark.parametrize("are_back", [True, False])
def test_where_timers_are_off_since_it_waits_for_them_or_for_its_time(are_back: bool) -> None:
    due_ms = 0

    async def before(desk: Desk) -> None:
        nonlocal due_ms
        await begun(desk)
        due_ms = now_ms(desk) + 3_600_000
        await wrote(desk, [(b"row", at(due_ms)), (b"plain", {}), (b"level", level(1))])

    async def off(desk: Desk) -> None:
        assert (await decide(desk, 0, "a")).code == OK
        assert (await end(desk, 0)) == {"committed": 2, "rolledBack": 0, "left": 1}
        await asyncio.sleep(100)
        assert await seen(desk) == [b"plain", b"level"]

    async def later(desk: Desk) -> None:
        await sleep_until(desk, due_ms - 1)
        assert await seen(desk) == [b"plain", b"level"]
        await asyncio.sleep(1 if are_back else 31)  # a round
        assert await seen(desk) == [b"plain", b"level", b"row"]
        assert (await end(desk, 0))["left"] == 0

    configs = TIMED["config"], WITHOUT_TIMERS, TIMED["config"] if are_back else WITHOUT_TIMERS
    restarts(before, off, later, **changed(*configs))
