"""Transactions at the broker: what is stored, who is asked, and that each ends once."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.delay_kit import restarts
from tests.unit.broker.desk import CONFIG, Desk, in_broker, with_broker
from tests.unit.broker.producers import (
    COMMIT,
    EXPIRED,
    HALF,
    OP,
    ROLLBACK,
    UNKNOWN,
    Member,
    all_of,
    bodies,
    end,
    prepare,
)

from turbopump.broker.config import BrokerConfig, SendConfig, TransactionRules
from turbopump.broker.transactions.checks import TransactionChecks
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.sysflag import transaction_type
from turbopump.store.message_log import MessageLog
from turbopump.testing.simulated_files import Survival

OK, REFUSED, FAILED = 0, ResponseCode.ILLEGAL_OPERATION, ResponseCode.SYSTEM_ERROR
KEY = "ID-half"


def rules(**changes: Any) -> BrokerConfig:
    return replace(CONFIG, transactions=TransactionRules(**changes))


@in_broker()
async def test_a_half_message_is_kept_where_consumers_do_not_look(desk: Desk) -> None:
    await prepare(desk, pairs={"TAGS": "A", "own": "x"}, queue_id=2, h=7)
    assert await bodies(desk, queue_id=2) == []
    (half,) = await all_of(desk, HALF)
    assert half.property_map() == {
        "TRAN_MSG": "true",
        "PGROUP": "PG",
        "UNIQ_KEY": KEY,
        "WAIT": "true",
        "TAGS": "A",
        "own": "x",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
        "__transactionId__": KEY,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert (half.body, half.flag, half.queue_id, transaction_type(half.sys_flag)) == (b"half", 7, 0, 0)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_committed_message_is_there_as_it_was_sent(flush: str) -> None:
    async def scenario(desk: Desk) -> None:
        place = await prepare(desk, pairs={"TAGS": "A", "KEYS": "k", "own": "x"}, queue_id=2, h=7)
        assert (await end(desk, place, COMMIT)).code == OK
        assert await bodies(desk, queue_id=2) == [b"half"]
        (half,) = await all_of(desk, HALF)
        (message,) = await all_of(desk, "T", 2)
        kept = half.property_map()
        assert message.property_map() == {
            name: kept[name] for name in kept if name not in ("REAL_TOPIC", "REAL_QID")
        }
        assert (message.sys_flag, message.prepared_transaction_offset) == (8, place[0])
        assert (message.flag, message.born_timestamp) == (7, half.born_timestamp)
        entry = desk.store.queues.queue("T", 2).entry(0)
        assert entry is not None
        assert entry[2] == java_hash("A")

    with_broker(scenario, flush_disk_type=flush)


@in_broker()
async def test_a_message_that_was_rolled_back_is_never_seen(desk: Desk) -> None:
    member = Member()
    await member.join(desk)
    place = await prepare(desk)
    answer = await end(desk, place, ROLLBACK)
    assert (answer.code, answer.remark) == (OK, "not set any response code")  # Apache's words
    await asyncio.sleep(100)
    assert await bodies(desk) == []
    assert member.questions == []


@in_broker()
async def test_an_op_record_is_what_apache_reads_and_says_what_was_decided(desk: Desk) -> None:
    first, second = await prepare(desk, b"a"), await prepare(desk, b"b")
    await end(desk, second, ROLLBACK)
    await end(desk, first, COMMIT)
    ops = await all_of(desk, OP)
    assert [(op.body, op.queue_id, op.sys_flag) for op in ops] == [(b"1", 0, 0), (b"0", 0, 0)]
    assert [op.property_map() for op in ops] == [
        {"TAGS": "d", "WAIT": "true", "TURBOPUMP_DECISION": "rollback", "KEYS": "half-1"},
        {"TAGS": "d", "WAIT": "true", "TURBOPUMP_DECISION": "commit", "KEYS": "half-0"},
    ]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producerGroup": "Other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 5}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 5}, "Find prepared transaction message failed"),
        ({"producerGroup": "Other", "tranStateTableOffset": 5}, "The producer group wrong"),
        ({"commitOrRollback": 5}, "commitOrRollback field wrong: 5"),
    ],
)
@in_broker()
async def test_an_end_that_names_no_half_message_of_the_group_is_refused(
    desk: Desk, changes: dict[str, Any], remark: str
) -> None:
    place = await prepare(desk)
    answer = await end(desk, place, COMMIT, **changes)
    assert (answer.code, answer.remark) == (FAILED, remark)
    assert await bodies(desk) == []


@in_broker()
async def test_an_end_cannot_name_a_message_that_is_no_half_message(desk: Desk) -> None:
    place = await prepare(desk)
    await end(desk, place, COMMIT)
    (message,) = await all_of(desk, "T")
    answer = await end(desk, (message.physical_offset, message.queue_offset), COMMIT)
    assert answer.code == FAILED
    assert await bodies(desk) == [b"half"]


@in_broker()
async def test_who_does_not_know_yet_gets_no_answer_and_is_asked_later(desk: Desk) -> None:
    member = Member(lambda half: COMMIT)
    await member.join(desk)
    place = await prepare(desk)
    with pytest.raises(TimeoutError):
        await desk.ask(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": "PG",
                "tranStateTableOffset": place[1],
                "commitLogOffset": place[0],
                "commitOrRollback": UNKNOWN,
                "msgId": "ID",
            },
            timeout_s=1,
        )
    await asyncio.sleep(40)
    assert await bodies(desk) == [b"half"]
    assert len(member.questions) == 1


# The first decision counts


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("forgotten", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "code", "seen"),
    [
        (COMMIT, COMMIT, OK, [b"half"]),
        (ROLLBACK, ROLLBACK, OK, []),
        (COMMIT, ROLLBACK, REFUSED, [b"half"]),
        (ROLLBACK, COMMIT, REFUSED, []),
    ],
)
def test_8158_no_message_is_committed_twice_or_after_a_rollback(
    first: int, second: int, code: int, seen: list[bytes], index: bool, forgotten: bool, flush: str
) -> None:
    async def one(desk: Desk) -> None:
        place = await prepare(desk)
        await prepare(desk, b"another")
        assert (await end(desk, place, first)).code == OK
        if not forgotten:
            await again(desk, place)

    async def again(desk: Desk, place: tuple[int, int]) -> None:
        answer = await end(desk, place, second)
        assert answer.code == code, answer.remark
        if code == REFUSED:
            assert answer.remark == (
                f"the transaction has ended before, by {'commit' if first == COMMIT else 'rollback'}"
            )
        assert await bodies(desk) == seen
        assert len(await all_of(desk, OP)) == 1

    async def after_a_restart(desk: Desk) -> None:
        await again(desk, (0, 0))

    restarts(one, *([after_a_restart] if forgotten else []), flush_disk_type=flush, index_enabled=index)


@in_broker(flush_disk_type="SYNC_FLUSH")
async def test_two_ends_at_once_store_one_message(desk: Desk) -> None:
    place = await prepare(desk)
    answers = await asyncio.gather(*(end(desk, place, COMMIT) for _ in range(5)))
    assert [answer.code for answer in answers] == [OK] * 5
    assert await bodies(desk) == [b"half"]


@in_broker()
async def test_an_end_past_the_time_that_the_message_asked_for_is_refused(desk: Desk) -> None:
    place = await prepare(desk, pairs={"CHECK_IMMUNITY_TIME_IN_SECONDS": "8"})
    await asyncio.sleep(8.5)
    assert (await end(desk, place, COMMIT)).code == REFUSED
    assert await bodies(desk) == []
    assert (await end(desk, place, COMMIT, fromTransactionCheck="true")).code == OK
    assert await bodies(desk) == [b"half"]


# Who is asked


@in_broker()
async def test_a_producer_is_asked_about_what_it_has_not_ended(desk: Desk) -> None:
    member = Member(lambda half: COMMIT)
    await member.join(desk)
    place = await prepare(desk, queue_id=3, pairs={"own": "x"}, h=7)
    await asyncio.sleep(45)
    assert await bodies(desk, queue_id=3) == [b"half"]
    (question,), (shown,) = member.questions, member.shown
    first, copy = await all_of(desk, HALF)
    assert (question.commitLogOffset, question.tranStateTableOffset) == (copy.physical_offset, 1)
    assert (question.msgId, question.transactionId, question.topic) == (KEY, KEY, HALF)
    assert question.bname == "broker-a"
    assert question.offsetMsgId == f"7F00000100002A9F{copy.physical_offset:016X}"
    assert (shown.topic, shown.queue_id, shown.queue_offset, shown.sys_flag) == ("T", 3, 1, 0)
    assert (shown.body, shown.flag) == (b"half", 7)
    added = {"TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    assert copy.property_map() == first.property_map() | added
    assert shown.property_map() == copy.property_map() | {"WAIT": "false"}
    (message,) = await all_of(desk, "T", 3)
    assert message.prepared_transaction_offset == copy.physical_offset != place[0]


@in_broker()
async def test_nobody_is_asked_before_the_time_is_up(desk: Desk) -> None:
    member = Member()
    await member.join(desk)
    await asyncio.sleep(9)
    await prepare(desk)
    await asyncio.sleep(1.5)  # a round at 10 s
    assert member.questions == []
    await asyncio.sleep(30)
    assert len(member.questions) == 1


@in_broker()
async def test_a_message_may_ask_for_more_time(desk: Desk) -> None:
    member = Member(lambda half: COMMIT)
    await member.join(desk)
    await prepare(desk, pairs={"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"})
    await asyncio.sleep(99)
    assert member.questions == []
    assert len(await all_of(desk, HALF)) == 1
    await asyncio.sleep(60)
    assert await bodies(desk) == [b"half"]


@in_broker()
async def test_544_a_message_whose_time_is_up_in_the_millisecond_of_a_round_is_asked_about_later(
    desk: Desk,
) -> None:
    member = Member(lambda half: COMMIT)
    await member.join(desk)
    clock = desk.disk.clock
    begun_ms = clock.now_ms()
    await prepare(desk, g=begun_ms + 4000)  # the round at 10 s finds it at its very time
    await asyncio.sleep(100)
    assert await bodies(desk) == [b"half"]


@in_broker()
async def test_a_producer_whose_clock_is_ahead_is_asked_all_the_same(desk: Desk) -> None:
    member = Member(lambda half: COMMIT)
    await member.join(desk)
    await prepare(desk, g=desk.disk.clock.now_ms() + 10**9)
    await asyncio.sleep(45)
    assert await bodies(desk) == [b"half"]


@in_broker()
async def test_members_of_the_group_are_asked_in_turn_and_none_of_another(desk: Desk) -> None:
    members = [Member(), Member()]
    for number, member in enumerate(members):
        await member.join(desk, f"client-{number}")
    other = Member()
    await other.join(desk, "stranger", group="Others")
    for number in range(4):
        await prepare(desk, b"%d" % number)
    await asyncio.sleep(35)
    assert [len(member.questions) for member in members] == [2, 2]
    assert other.questions == []


@in_broker()
async def test_when_a_producer_is_gone_another_of_the_group_is_asked(desk: Desk) -> None:
    first, second = Member(), Member(lambda half: COMMIT)
    client = await first.join(desk, "first")
    await prepare(desk)
    await client.close()
    await second.join(desk, "second")
    await asyncio.sleep(45)
    assert first.questions == []
    assert await bodies(desk) == [b"half"]


@in_broker()
async def test_without_a_producer_nothing_is_written_and_nothing_expires_until_one_comes(desk: Desk) -> None:
    await prepare(desk)
    await asyncio.sleep(3600)
    assert len(await all_of(desk, HALF)) == 1
    member = Member(lambda half: COMMIT)
    await member.join(desk)
    await asyncio.sleep(45)
    assert [half.property_map()["TRANSACTION_CHECK_TIMES"] for half in member.shown] == ["1"]
    assert await bodies(desk) == [b"half"]


@in_broker()
async def test_questions_stop_when_the_decision_comes(desk: Desk) -> None:
    member = Member()
    await member.join(desk)
    place = await prepare(desk)
    await asyncio.sleep(45)
    assert len(member.questions) > 0
    asked = len(member.questions)
    assert (await end(desk, place, COMMIT)).code == OK  # it names the first record, not the copy
    await asyncio.sleep(300)
    assert len(member.questions) == asked
    assert await bodies(desk) == [b"half"]
    assert (await end(desk, place, ROLLBACK)).code == REFUSED


def test_a_decision_that_comes_during_a_round_is_the_end_of_the_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turbopump.broker.transactions.checks.HALVES_PER_TURN", 1)

    async def scenario(desk: Desk) -> None:
        """Whoever is asked about the first transaction rolls the last one back."""
        places = [await prepare(desk, b"%d" % number) for number in range(200)]

        class Meddling(Member):
            def _asked(self, request: Any) -> None:
                super()._asked(request)
                if len(self.questions) == 1:
                    self.meddling = asyncio.create_task(end(desk, places[-1], ROLLBACK))

        member = Meddling()
        await member.join(desk)
        await asyncio.sleep(100)
        assert len(member.questions) > 199
        assert b"199" not in {half.body for half in member.shown}

    with_broker(scenario)


# Expired ones


def test_a_transaction_that_was_asked_about_too_often_expires_and_can_be_resumed() -> None:
    async def scenario(desk: Desk) -> None:
        member = Member()
        await member.join(desk)
        place = await prepare(desk)
        await asyncio.sleep(300)
        assert len(member.questions) == 3
        (expired,) = await all_of(desk, EXPIRED)
        assert (expired.body, expired.property_map()["REAL_TOPIC"]) == (b"half", "T")
        name = f"7F00000100002A9F{expired.physical_offset:016X}"
        fields = {"topic": EXPIRED, "msgId": name}
        answer = await desk.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)
        assert (answer.code, answer.remark) == (OK, None)
        again = await desk.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)
        assert again.code == REFUSED
        await asyncio.sleep(35)
        assert len(member.questions) == 4
        assert (await end(desk, place, COMMIT)).code == OK
        assert await bodies(desk) == [b"half"]
        assert (await desk.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)).code == REFUSED

    with_broker(scenario, config=rules(check_most=3))


def test_a_transaction_that_is_given_up_is_an_error_line_with_topic_id_and_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "turbopump")

    async def scenario(desk: Desk) -> None:
        await Member().join(desk)
        await prepare(desk)
        await asyncio.sleep(200)
        assert len(await all_of(desk, EXPIRED)) == 1

    with_broker(scenario, config=rules(check_most=2))
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    words = line.getMessage()
    assert words.startswith(
        "Transaction given up after 2 checks, its message is not delivered: topic T, message id ID-half, "
        "producer group PG"
    )
    assert "turbopump transactions resume" in words


def test_the_topic_of_expired_transactions_is_not_called_one_of_a_consumer_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "turbopump")

    async def scenario(desk: Desk) -> None:
        await Member().join(desk)
        await prepare(desk)
        await asyncio.sleep(200)

    with_broker(scenario, config=rules(check_most=2))
    (line,) = [text for text in caplog.messages if EXPIRED in text and "Created topic" in text]
    assert line == f"Created topic {EXPIRED}, 1 queues, for transactions that were given up"


@pytest.mark.parametrize(("decision", "seen"), [(COMMIT, [b"half"]), (ROLLBACK, [])])
def test_a_late_decision_about_an_expired_transaction_counts_once(decision: int, seen: list[bytes]) -> None:
    async def scenario(desk: Desk) -> None:
        await Member().join(desk)
        place = await prepare(desk)
        await asyncio.sleep(200)
        assert len(await all_of(desk, EXPIRED)) == 1
        for _ in range(2):
            assert (await end(desk, place, decision)).code == OK
            assert await bodies(desk) == seen
        assert (await end(desk, place, COMMIT + ROLLBACK - decision)).code == REFUSED

    with_broker(scenario, config=rules(check_most=2))


@in_broker(file_reserved_hours=1)
async def test_a_transaction_older_than_the_log_is_kept_expires(desk: Desk) -> None:
    await prepare(desk)
    await asyncio.sleep(3600 + 60)
    assert len(await all_of(desk, EXPIRED)) == 1


@in_broker()
async def test_a_message_that_is_not_there_cannot_be_resumed(desk: Desk) -> None:
    answer = await desk.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "7F00000100002A9F" + "0" * 16})
    assert answer.code == FAILED


# Nothing stops at one


def test_9500_what_is_wrong_with_one_transaction_stops_neither_others_nor_the_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = TransactionChecks._check

    def check(self: TransactionChecks, half: Any) -> None:
        if half.root == 0:
            raise RuntimeError("a fault")
        plain(self, half)

    monkeypatch.setattr(TransactionChecks, "_check", check)

    async def scenario(desk: Desk) -> None:
        await Member(lambda half: COMMIT).join(desk)
        for number in range(3):
            await prepare(desk, b"%d" % number)
        await asyncio.sleep(45)
        assert sorted(await bodies(desk)) == [b"1", b"2"]
        assert (await progress(desk)) == (0, 0)

    with_broker(scenario)


def test_a_half_message_that_cannot_be_read_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MessageLog.look_up

    async def scenario(desk: Desk) -> None:
        broken, _ = await prepare(desk, b"broken")
        await prepare(desk, b"whole")
        monkeypatch.setattr(
            MessageLog, "look_up", lambda self, offset: None if offset == broken else plain(self, offset)
        )
        await Member(lambda half: COMMIT).join(desk)
        await asyncio.sleep(45)
        assert await bodies(desk) == [b"whole"]
        assert (await progress(desk))[0] == 3

    with_broker(scenario)


@in_broker()
async def test_1568_a_full_disk_holds_questions_up_and_loses_nothing(desk: Desk) -> None:
    await Member(lambda half: COMMIT).join(desk)
    await prepare(desk)
    desk.disk.used_ratio = 0.95
    await asyncio.sleep(120)
    assert await bodies(desk) == []
    desk.disk.used_ratio = 0.5
    await asyncio.sleep(60)
    assert await bodies(desk) == [b"half"]


async def progress(desk: Desk) -> tuple[int, int]:
    """What is saved for both queues."""
    fields = {"consumerGroup": "CID_RMQ_SYS_TRANS", "queueId": 0}
    answers = [
        await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields | {"topic": topic}) for topic in (HALF, OP)
    ]
    half, op = (int((answer.ext or {})["offset"]) for answer in answers)
    return half, op


@in_broker()
async def test_progress_is_before_the_first_that_is_open(desk: Desk) -> None:
    places = [await prepare(desk, b"%d" % number) for number in range(4)]
    for number in (1, 0, 3):
        await end(desk, places[number], COMMIT)
    await asyncio.sleep(6)
    assert (await progress(desk)) == (2, 0)  # all op records came after that one
    await end(desk, places[2], ROLLBACK)
    await asyncio.sleep(6)
    assert (await progress(desk)) == (4, 4)


# Stops and crashes


@pytest.mark.parametrize("survival", [None, Survival.KEPT, Survival.LOST])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_was_open_is_open_after_a_restart(survival: Survival | None, flush: str) -> None:
    async def before(desk: Desk) -> Survival | None:
        for number in range(5):
            place = await prepare(desk, b"%d" % number)
            if number % 2:
                await end(desk, place, COMMIT)
        await asyncio.sleep(20)
        return survival

    async def after(desk: Desk) -> None:
        assert sorted(await bodies(desk)) == [b"1", b"3"]
        await Member(lambda half: COMMIT if half.body != b"2" else ROLLBACK).join(desk)
        await asyncio.sleep(60)
        assert sorted(await bodies(desk)) == [b"0", b"1", b"3", b"4"]

    restarts(before, after, flush_disk_type=flush)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_commit_without_its_op_record_is_found_after_a_crash(
    index: bool, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is the first message of the log, at offset 0, which is what all others have as origin."""

    async def before(desk: Desk) -> Survival:
        if not is_first:
            await desk.send("Plain")
        place = await prepare(desk)
        plain = MessageLog.append
        with monkeypatch.context() as patch:
            patch.setattr(
                MessageLog, "append", lambda self, drafts, together=False: _without_ops(plain, self, drafts)
            )
            await end(desk, place, COMMIT)
        assert await bodies(desk) == [b"half"]
        return Survival.KEPT

    async def after(desk: Desk) -> None:
        (op,) = await all_of(desk, OP)
        assert op.property_map()["TURBOPUMP_DECISION"] == "commit"
        member = Member(lambda half: COMMIT)
        await member.join(desk)
        (half,) = await all_of(desk, HALF)
        place = half.physical_offset, half.queue_offset
        assert (await end(desk, place, COMMIT)).code == OK
        assert (await end(desk, place, ROLLBACK)).code == REFUSED
        await asyncio.sleep(60)
        assert member.questions == []
        assert await bodies(desk) == [b"half"]

    restarts(before, after, index_enabled=index)


def _without_ops(append: Any, log: MessageLog, drafts: Any) -> Any:
    kept = append(log, [draft for draft in drafts if draft.queue.topic != OP])
    return [*kept, kept[-1]]


@pytest.mark.parametrize("most", [2, 15])
def test_a_copy_without_the_op_record_of_the_old_one_is_found_after_a_crash(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewed copy, and one that has expired."""

    async def before(desk: Desk) -> Survival:
        await desk.send("Plain")
        await Member().join(desk)
        await prepare(desk)
        await asyncio.sleep(65)  # a round of checks is due at 70
        plain = MessageLog.append
        with monkeypatch.context() as patch:
            patch.setattr(
                MessageLog, "append", lambda self, drafts, together=False: _without_ops(plain, self, drafts)
            )
            await asyncio.sleep(5.5)  # before the next checkpoint
        return Survival.KEPT

    async def after(desk: Desk) -> None:
        decisions = [op.property_map()["TURBOPUMP_DECISION"] for op in await all_of(desk, OP)]
        assert decisions[-1] == ("expired" if most == 2 else "renewed")
        halves = await all_of(desk, HALF)
        for half in halves:
            assert (await end(desk, (half.physical_offset, half.queue_offset), COMMIT)).code == OK
        assert await bodies(desk) == [b"half"]

    restarts(before, after, config=rules(check_most=most))


# Files of the log that go


@in_broker(commit_log_file_size=8192)
async def test_an_open_transaction_survives_the_file_it_was_in(desk: Desk) -> None:
    place = await prepare(desk)
    for _ in range(30):
        await desk.send("Plain", bytes(1000))
    await asyncio.sleep(70)
    desk.disk.used_ratio = 0.88
    await asyncio.sleep(20)
    desk.disk.used_ratio = 0.5
    assert place[0] < desk.store.log.min_offset
    member = Member(lambda half: COMMIT)
    await member.join(desk)
    await asyncio.sleep(45)
    assert await bodies(desk) == [b"half"]
    assert member.shown[0].property_map()["TRAN_PREPARED_QUEUE_OFFSET"] == "0"


def test_a_transaction_far_behind_is_moved_without_being_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbopump.broker.transactions.checks.FAR_BEHIND_BYTES", 5000)

    async def scenario(desk: Desk) -> None:
        await prepare(desk)
        for _ in range(6):
            await desk.send("Plain", bytes(1000))
        await asyncio.sleep(45)
        first, copy = await all_of(desk, HALF)
        assert copy.property_map()["TRANSACTION_CHECK_TIMES"] == "0"
        assert (await progress(desk)) == (1, 0)
        place = first.physical_offset, first.queue_offset
        assert (await end(desk, place, COMMIT)).code == OK
        assert await bodies(desk) == [b"half"]

    with_broker(scenario)


# Kinds of messages


@in_broker()
async def test_a_delay_level_counts_from_the_commit(desk: Desk) -> None:
    place = await prepare(desk, pairs={"DELAY": "2"}, queue_id=1)
    await asyncio.sleep(20)
    assert (await end(desk, place, COMMIT)).code == OK
    await asyncio.sleep(4.9)
    assert await bodies(desk, queue_id=1) == []
    await asyncio.sleep(0.3)
    assert await bodies(desk, queue_id=1) == [b"half"]


@in_broker()
async def test_a_time_of_its_own_counts_from_the_commit(desk: Desk) -> None:
    place = await prepare(desk, pairs={"TIMER_DELAY_SEC": "5"}, queue_id=1)
    await asyncio.sleep(20)
    assert (await end(desk, place, COMMIT)).code == OK
    await asyncio.sleep(4.9)
    assert await bodies(desk, queue_id=1) == []
    await asyncio.sleep(0.2)
    assert await bodies(desk, queue_id=1) == [b"half"]


@in_broker()
async def test_a_time_that_cannot_be_is_refused_before_anything_waits_for_its_end(desk: Desk) -> None:
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "TIMER_DELAY_SEC": "x"}
    assert (await desk.send("T", pairs=pairs)).code == ResponseCode.MESSAGE_ILLEGAL


def test_a_broker_may_reject_transactions() -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.send("T", pairs={"TRAN_MSG": "true", "PGROUP": "PG"})
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the broker[127.0.0.1] sending transaction message is forbidden"

    with_broker(scenario, config=replace(CONFIG, sending=SendConfig(reject_transactions=True)))


@in_broker()
async def test_a_sender_cannot_say_that_its_message_is_a_copy(desk: Desk) -> None:
    await prepare(desk, b"first")
    forged = {"TRAN_PREPARED_QUEUE_OFFSET": "0", "TRANSACTION_CHECK_TIMES": "15"}
    place = await prepare(desk, b"second", pairs=forged)
    assert (await end(desk, place, ROLLBACK)).code == OK
    await Member(lambda half: COMMIT).join(desk)
    await asyncio.sleep(45)
    assert await bodies(desk) == [b"first"]


@in_broker()
async def test_properties_leave_room_for_what_a_renewed_copy_says(desk: Desk) -> None:
    member = Member(lambda half: COMMIT)
    await member.join(desk)
    taken = refused = 0
    for size in range(32_000, 32_700, 20):
        pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "own": "x" * size}
        answer = await desk.send("T", b"%d" % size, pairs=pairs, g=desk.disk.clock.now_ms())
        taken += answer.code == OK
        refused += answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert 0 < taken < taken + refused == 35
    await asyncio.sleep(45)
    assert len(await bodies(desk)) == taken


@in_broker()
async def test_a_topic_with_fewer_queues_gets_what_was_meant_for_the_others(desk: Desk) -> None:
    place = await prepare(desk, queue_id=3)
    fields = {"topic": "T", "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
    fewer = fields | {"readQueueNums": 2, "writeQueueNums": 2, "order": "false"}
    assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fewer)).code == OK
    assert (await end(desk, place, COMMIT)).code == OK
    assert await bodies(desk, queue_id=1) == [b"half"]
