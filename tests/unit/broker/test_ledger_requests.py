"""The ledger at a broker: what is stored, what is answered, and what comes of half messages by themselves."""

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.unit.broker.delay_kit import restarts
from tests.unit.broker.delay_retention_kit import fill
from tests.unit.broker.desk import CONFIG, Desk, in_broker, with_broker
from tests.unit.broker.ledger_requests_kit import (
    FENCED,
    ILLEGAL,
    OK,
    a_day_passes,
    begun,
    nothing_settles,
    small,
)
from tests.unit.broker.producers import EXPIRED, HALF, OP, all_of
from tests.unit.broker.writers import book, decide, end, frame, open_, seen, write

from turbopump.broker.transactions.ledger import expiry, requests, send
from turbopump.broker.transactions.ledger.settlement import TOGETHER
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.ledger import BookSummary, read_summaries
from turbopump.protocol.names import LEDGER_TOPIC
from turbopump.store.message_log import MessageLog
from turbopump.testing.simulated_files import Survival

ROWS = [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_winners_are_seen_once_in_their_order_and_losers_never(flush: str) -> None:
    async def scenario(desk: Desk) -> None:
        await begun(desk)
        answer = await write(desk, 0, "a", ROWS)
        durability = "disk" if flush == "SYNC_FLUSH" else "memory"
        assert answer.ext == {"count": "300", "durability": durability, "replicas": "1"}
        await write(desk, 0, "b", ROWS)
        assert await seen(desk) == []
        await decide(desk, 0, "a")
        counts = [await end(desk, 0), await end(desk, 0)]
        assert counts[1] == {"committed": 0, "rolledBack": 0, "left": 0}
        assert await seen(desk) == ROWS
        assert len(await all_of(desk, OP)) == 600

    with_broker(scenario, flush_disk_type=flush)


@in_broker()
async def test_a_half_message_is_kept_as_others_are_and_stamped(desk: Desk) -> None:
    await begun(desk)
    await write(desk, 3, "a", [b"row"], pairs={"TAGS": "A"})
    (half,) = await all_of(desk, HALF)
    kept = half.property_map()
    assert kept == {
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
        "UNIQ_KEY": "Urow",
        "own": "x",
        "TAGS": "A",
        "TRAN_MSG": "true",
        "PGROUP": "TURBOPUMP_LEDGER",
        "TURBOPUMP_TXN": "query",
        "TURBOPUMP_TXN_BATCH": "3",
        "TURBOPUMP_TXN_RUN": "r1",
        "TURBOPUMP_TXN_TOKEN": "a",
        "TURBOPUMP_TXN_HOME": "broker-a",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    await decide(desk, 3, "a")
    await end(desk, 3)
    (message,) = await all_of(desk, "T", 1)
    gone = {"REAL_TOPIC", "REAL_QID", *(name for name in kept if name.startswith("TURBOPUMP"))}
    assert message.property_map() == {name: kept[name] for name in kept.keys() - gone}
    assert (message.flag, message.prepared_transaction_offset) == (7, half.physical_offset)


@pytest.mark.parametrize("decision", [8, 12])
@in_broker()
async def test_nobody_else_ends_a_half_message_that_a_ledger_decides_about(desk: Desk, decision: int) -> None:
    await begun(desk)
    await write(desk, 3, "a", [b"row"])
    (half,) = await all_of(desk, HALF)
    ext = {
        "producerGroup": "TURBOPUMP_LEDGER",
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.physical_offset),
        "commitOrRollback": str(decision),
        "msgId": "Urow",
    }
    answer = await desk.ask(RequestCode.END_TRANSACTION, ext)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "ledger" in (answer.remark or "")
    await decide(desk, 3, "a")
    await end(desk, 3)
    assert [record.body for record in await all_of(desk, "T", 1)] == [b"row"]


@in_broker()
async def test_what_is_decided_ends_without_being_asked_for(desk: Desk) -> None:
    await begun(desk)
    await write(desk, 0, "a", ROWS)
    await decide(desk, 0, "a")
    await asyncio.sleep(2)
    assert await seen(desk) == ROWS


@in_broker()
async def test_a_zombie_driver_is_fenced(desk: Desk) -> None:
    await begun(desk)
    await write(desk, 0, "old", ROWS[:9])
    assert (await open_(desk, "r2")).code == OK
    assert (await open_(desk, "r1")).code == FENCED
    assert (await write(desk, 0, "old", ROWS[:9])).code == FENCED
    assert (await decide(desk, 0, "old")).code == FENCED
    await asyncio.sleep(1)
    assert (await end(desk, 0))["left"] == 0  # rolled back before anything was decided
    await write(desk, 0, "new", ROWS, run="r2")
    assert (await decide(desk, 0, "new", run="r2")).code == OK
    await end(desk, 0)
    assert await seen(desk) == ROWS


@in_broker()
async def test_late_half_messages_of_a_decided_batch_are_refused_at_home(desk: Desk) -> None:
    await begun(desk)
    await decide(desk, 4, "a")
    for number in (0, 4):
        answer = await write(desk, number, "a", ROWS[:1])
        assert (answer.code, answer.remark) == (ILLEGAL, f"batch {number} of query is decided already")


@in_broker()
async def test_a_book_can_be_read(desk: Desk) -> None:
    answer = await desk.ask(RequestCode.LEDGER_READ, {"id": "query"})
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    await begun(desk)
    await decide(desk, 0, "a", brokers=("broker-a", "broker-b"))
    found = await book(desk, 0, 1)
    assert (found.home, found.run, found.highest, found.owed) == (
        "broker-a", "r1", 0, ["broker-a", "broker-b"],
    )  # fmt: skip
    assert {number: entry.tokens for number, entry in found.decided.items()} == {0: ("a",)}
    await end(desk, 0, settled="true")
    assert (await book(desk)).owed == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"body": b"nonsense"}, ResponseCode.SYSTEM_ERROR),
        ({"pairs": {"REAL_TOPIC": "Absent"}}, ResponseCode.TOPIC_NOT_EXIST),
        ({"pairs": {"REAL_TOPIC": HALF}}, ResponseCode.NO_PERMISSION),
        ({"pairs": {"REAL_TOPIC": LEDGER_TOPIC}}, ResponseCode.NO_PERMISSION),
        ({"pairs": {"REAL_QID": "4"}}, ResponseCode.INVALID_PARAMETER),
        ({"pairs": {"REAL_QID": "-1"}}, ResponseCode.INVALID_PARAMETER),
        ({"pairs": {"UNIQ_KEY": ""}}, ResponseCode.MESSAGE_ILLEGAL),
        ({"pairs": {"TIMER_DELIVER_MS": "9" * 18}}, ResponseCode.MESSAGE_ILLEGAL),
        ({"pairs": {"PGROUP": "mine"}}, ResponseCode.MESSAGE_ILLEGAL),
        ({"pairs": {"TURBOPUMP_TXN_TOKEN": "b"}}, ResponseCode.MESSAGE_ILLEGAL),
        ({"pairs": {"TRAN_MSG": "true"}}, ResponseCode.MESSAGE_ILLEGAL),
        ({"pairs": {"own": "x" * 32_400}}, ResponseCode.MESSAGE_ILLEGAL),
        ({"bodies": [b""]}, ResponseCode.MESSAGE_ILLEGAL),
        ({"bodies": [b"x"] * 4097}, ResponseCode.MESSAGE_ILLEGAL),
        ({"number": -1}, ResponseCode.INVALID_PARAMETER),
        ({"token": ""}, ResponseCode.INVALID_PARAMETER),
        ({"id": "other"}, ILLEGAL),
    ],
)
@in_broker()
async def test_a_frame_is_stored_whole_or_refused(desk: Desk, changes: dict[str, Any], code: int) -> None:
    await begun(desk)
    wrong: dict[str, Any] = {"number": 0, "token": "a", "bodies": [b"good"]} | changes
    if "body" not in wrong:
        pairs = wrong.pop("pairs", {})
        wrong["body"] = frame([b"good"]) + frame(wrong["bodies"], **pairs)
    assert (await write(desk, **wrong)).code == code
    assert await all_of(desk, HALF) == []


@pytest.mark.parametrize("bound", ["MAX_OPEN", "MAX_OPEN_IN_ALL"])
def test_open_half_messages_have_a_bound(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, bound, 5)

    async def scenario(desk: Desk) -> None:
        await begun(desk)
        assert (await write(desk, 0, "a", ROWS[:5])).code == OK
        assert (await write(desk, 0, "a", ROWS[:1])).code == ResponseCode.FLOW_CONTROL

    with_broker(scenario)


@in_broker()
async def test_the_ledgers_topic_is_the_brokers_own(desk: Desk) -> None:
    await begun(desk)
    assert (await desk.send(LEDGER_TOPIC)).code == ResponseCode.NO_PERMISSION
    answer = await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": LEDGER_TOPIC})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    await desk.ask(RequestCode.CLEAN_UNUSED_TOPIC)
    assert len(await all_of(desk, LEDGER_TOPIC)) == 1


@in_broker()
async def test_a_stamp_cannot_be_forged_by_a_producer(desk: Desk) -> None:
    await begun(desk)
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "TURBOPUMP_TXN": "query", "TURBOPUMP_TXN_TOKEN": "a"}
    await desk.send("T", b"half", pairs=pairs)
    (half,) = await all_of(desk, HALF)
    assert not any(name.startswith("TURBOPUMP") for name in half.property_map())


# restarts, crashes, retention


@pytest.mark.parametrize("end_of_life", [None, *Survival])
def test_what_was_decided_is_carried_out_after_a_restart(end_of_life: Survival | None) -> None:
    async def decided(desk: Desk) -> Survival | None:
        await begun(desk)
        await write(desk, 0, "a", ROWS)
        await write(desk, 0, "b", ROWS)
        await write(desk, 1, "c", ROWS)
        with nothing_settles():
            assert (await decide(desk, 0, "a")).code == OK
            await asyncio.sleep(1)
        return end_of_life

    async def later(desk: Desk) -> None:
        await asyncio.sleep(5)
        assert await seen(desk) == ROWS
        assert (await decide(desk, 0, "b")).code == OK
        assert (await book(desk, 0)).decided[0].tokens == ("a",)
        assert (await end(desk, 1))["left"] == 300
        assert (await decide(desk, 1, "c")).code == OK
        await end(desk, 1)
        assert await seen(desk) == ROWS + ROWS

    restarts(decided, later, flush_disk_type="SYNC_FLUSH")


def test_driver_killed_after_the_decision_then_a_day_retention_and_restarts() -> None:
    """One day passes, retention runs, the broker is restarted, the driver is restarted: each row once."""

    async def killed(desk: Desk) -> Survival:
        await begun(desk)
        await write(desk, 0, "first", [b"before"])
        await decide(desk, 0, "first", brokers=("broker-a", "broker-b"))
        await end(desk, 0)
        await write(desk, 1, "won", ROWS)
        await write(desk, 1, "lost", ROWS)
        await write(desk, 2, "undecided", ROWS)
        with nothing_settles():
            await decide(desk, 1, "won")
            ends = desk.store.log.end
            await fill(desk, 8)
            await a_day_passes(desk)
            assert desk.store.log.min_offset > ends
        assert await seen(desk) == []  # and the first row went with its file, a day after it was seen
        return Survival.KEPT

    async def restarted(desk: Desk) -> None:
        await asyncio.sleep(5)
        assert await seen(desk) == ROWS
        found = await book(desk, 0, 1, 2)
        assert {number: entry.tokens for number, entry in found.decided.items()} == {
            0: ("first",),
            1: ("won",),
        }
        assert (await open_(desk, "r2")).code == OK
        assert (await open_(desk, "r1")).code == FENCED
        assert (await decide(desk, 1, "again", run="r2")).code == OK  # the driver repeats its last batch
        assert (await book(desk, 1)).decided[1].tokens == ("won",)
        await end(desk, 1)
        assert await seen(desk) == ROWS
        assert (await write(desk, 2, "new", ROWS, run="r2")).code == OK
        assert (await decide(desk, 2, "new", run="r2")).code == OK
        assert (await end(desk, 2))["left"] == 0
        assert await seen(desk) == ROWS + ROWS

    restarts(killed, restarted, **small())


def test_what_is_not_decided_outlives_its_files_for_as_long_as_it_takes() -> None:
    async def waiting(desk: Desk) -> None:
        await begun(desk)
        await write(desk, 0, "a", ROWS)
        for _ in range(4):
            await fill(desk, 8)
            await a_day_passes(desk)
        assert await all_of(desk, EXPIRED) == []

    async def at_last(desk: Desk) -> None:
        await fill(desk, 8)
        await a_day_passes(desk)
        assert (await decide(desk, 0, "a")).code == OK
        await end(desk, 0)
        assert await seen(desk) == ROWS

    restarts(waiting, at_last, **small())


def test_a_book_that_cannot_be_written_anew_keeps_its_file() -> None:
    async def scenario(desk: Desk) -> None:
        await begun(desk)
        await fill(desk, 8)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MessageLog, "rewrite", refused)
            await a_day_passes(desk)
            assert desk.store.log.min_offset == 0
        await a_day_passes(desk)
        assert desk.store.log.min_offset > 0
        assert (await book(desk)).run == "r1"

    def refused(log: MessageLog, drafts: object) -> None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "no room")

    with_broker(scenario, **small())


def test_of_calls_that_end_a_part_the_last_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_ENDED", 1)
    rows = [b"%d" % number for number in range(TOGETHER + 100)]

    async def scenario(desk: Desk) -> None:
        await begun(desk)
        await write(desk, 0, "a", rows)
        await decide(desk, 0, "a")
        parts = []
        while not parts or parts[-1]["left"]:
            parts.append(await end(desk, 0))
            is_on_disk = desk.store.log.synced == desk.store.log.end
            assert is_on_disk or parts[-1]["left"]
        assert [one["committed"] for one in parts] == [TOGETHER, 100]
        assert await seen(desk) == rows

    with_broker(scenario)


# --- expiry ----------------------------------------------------------------------------------------------


SHORT = dataclasses.replace(
    CONFIG, transactions=dataclasses.replace(CONFIG.transactions, id_retention_hours=60)
)


@pytest.fixture
def hours_are_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "HOUR_MS", 1000)
    monkeypatch.setattr(expiry, "ROUND_S", 1.0)


async def listed(desk: Desk, **fields: Any) -> list[BookSummary]:
    answer = await desk.ask(RequestCode.LEDGER_LIST, fields)
    assert answer.code == OK, answer.remark
    return read_summaries(answer.body)


@pytest.mark.usefixtures("hours_are_seconds")
@in_broker(config=SHORT)
async def test_a_book_that_nobody_uses_expires_and_whoever_comes_back_writes_nothing_twice(
    desk: Desk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await begun(desk)
    await write(desk, 3, "a", ROWS)
    await decide(desk, 3, "a")
    await end(desk, 3, settled="true")
    (one,) = await listed(desk)
    assert (one.id, one.home, one.state, one.highest, one.open_messages) == (
        "query",
        "broker-a",
        "open",
        3,
        0,
    )
    await asyncio.sleep(50)
    assert (await open_(desk)).code == OK  # the same run: that is no use
    await asyncio.sleep(15)
    (one,) = await listed(desk)
    assert (one.state, one.highest, one.run) == ("expired", 3, "")
    assert "query was not used for 60 hours and has expired; batches up to 3 stay decided" in caplog.text
    assert (await write(desk, 4, "b", ROWS)).code == FENCED
    assert (await open_(desk, "r2")).code == OK
    assert "Transactional id query is in use again; it continues after batch 3" in caplog.text
    assert (await book(desk)).highest == 3
    refused = await write(desk, 3, "c", ROWS, run="r2")
    assert (refused.code, refused.remark) == (ILLEGAL, "batch 3 of query is decided already")
    assert (await listed(desk))[0].state == "open"


@pytest.mark.usefixtures("hours_are_seconds")
def test_expiry_and_forgetting_survive_a_restart() -> None:
    async def first(desk: Desk) -> None:
        await begun(desk)
        await decide(desk, 7, "a", brokers=())
        assert (await open_(desk, id="other")).code == OK
        await asyncio.sleep(62)
        assert [one.state for one in await listed(desk)] == ["expired", "expired"]
        assert (await desk.ask(RequestCode.LEDGER_FORGET, {"id": "other"})).code == OK
        assert (
            await desk.ask(RequestCode.LEDGER_FORGET, {"id": "other"})
        ).code == ResponseCode.QUERY_NOT_FOUND

    async def second(desk: Desk) -> None:
        (one,) = await listed(desk)
        assert (one.id, one.state, one.highest) == ("query", "expired", 7)
        assert await listed(desk, after="query") == []

    restarts(first, second, config=SHORT)


@pytest.mark.usefixtures("hours_are_seconds")
@in_broker(config=SHORT)
async def test_a_book_with_open_half_messages_neither_expires_nor_is_forgotten(desk: Desk) -> None:
    await begun(desk)
    await write(desk, 0, "a", ROWS)
    await asyncio.sleep(62)
    (one,) = await listed(desk)
    assert (one.state, one.open_messages) == ("open", len(ROWS))
    answer = await desk.ask(RequestCode.LEDGER_FORGET, {"id": "query"})
    assert answer.code == ILLEGAL
    assert "300 half messages of query are open here" in str(answer.remark)
