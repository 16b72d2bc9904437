"""What a consumer is told: statuses, next offsets, waiting and waking."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.desk import CONFIG, Desk, in_broker, records

from turbopump.broker.consume.pull import MAX_PARKED_PER_CONNECTION
from turbopump.broker.consume.pull_checks import tag_filter
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.hashing import java_hash

SUSPEND_AND_SUBSCRIPTION = 6


async def three_messages(desk: Desk, **changes: Any) -> None:
    for number in range(3):
        answer = await desk.send("T", b"%d" % number, **changes)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


def offsets_of(answer: Any) -> tuple[int, int, int]:
    ext = answer.ext or {}
    return int(ext["nextBeginOffset"]), int(ext["minOffset"]), int(ext["maxOffset"])


@pytest.mark.parametrize(
    ("offset", "code", "remark", "next_offset"),
    [
        (0, ResponseCode.SUCCESS, "FOUND", 3),
        (2, ResponseCode.SUCCESS, "FOUND", 3),
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
@in_broker()
async def test_the_answer_says_where_to_go_on(
    desk: Desk, offset: int, code: int, remark: str, next_offset: int
) -> None:
    await three_messages(desk)
    answer = await desk.pull("T", offset)
    assert (answer.code, answer.remark) == (code, remark)
    assert offsets_of(answer) == (next_offset, 0, 3)
    assert answer.ext is not None
    assert answer.ext["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21), (-1, 21)])
@in_broker()
async def test_an_empty_queue_moves_everyone_to_its_start(desk: Desk, offset: int, code: int) -> None:
    await three_messages(desk)
    answer = await desk.pull("T", offset, queue_id=3)
    assert (answer.code, answer.remark) == (code, "NO_MESSAGE_IN_QUEUE")
    assert offsets_of(answer) == (0, 0, 0)


@in_broker()
async def test_records_arrive_as_they_were_sent(desk: Desk) -> None:
    await three_messages(desk, pairs={"TAGS": "A", "KEYS": "k1 k2"})
    found = records(await desk.pull("T", 0))
    assert [record.body for record in found] == [b"0", b"1", b"2"]
    assert [record.queue_offset for record in found] == [0, 1, 2]
    assert found[0].tags == "A"
    assert found[0].keys == "k1 k2"


@in_broker()
async def test_a_tag_that_nobody_sent_moves_the_consumer_past_everything(desk: Desk) -> None:
    await three_messages(desk, pairs={"TAGS": "A"})
    answer = await desk.pull("T", 0, subscription="B")
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert offsets_of(answer)[0] == 3
    assert (await desk.pull("T", 0, subscription="B || A")).code == ResponseCode.SUCCESS


@in_broker()
async def test_a_pull_that_waits_is_answered_when_its_message_arrives(desk: Desk) -> None:
    await three_messages(desk)
    waiting = asyncio.create_task(desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION))
    await asyncio.sleep(1)
    assert not waiting.done()
    await desk.send("T", b"news")
    answer = await waiting
    assert [record.body for record in records(answer)] == [b"news"]


@in_broker()
async def test_a_pull_that_waits_in_vain_is_answered_when_its_time_is_over(desk: Desk) -> None:
    await three_messages(desk)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION, suspendTimeoutMillis=7_000)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert loop.time() - began == pytest.approx(7, abs=0.01)


@in_broker()
async def test_a_parked_pull_costs_one_timer_however_long_it_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three_messages(desk)
    callbacks: list[str] = []
    run_handle = asyncio.Handle._run  # type: ignore[attr-defined]

    def note(handle: Any) -> None:
        callbacks.append(getattr(handle._callback, "__qualname__", ""))
        run_handle(handle)

    monkeypatch.setattr(asyncio.Handle, "_run", note)
    answer = await desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION, suspendTimeoutMillis=30_000)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert len([name for name in callbacks if name.startswith("PullHandler.")]) == 1


@in_broker()
async def test_a_message_that_the_filter_refuses_lets_the_pull_go_on_after_five_seconds(desk: Desk) -> None:
    await three_messages(desk)
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiting = asyncio.create_task(desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION, subscription="B"))
    await asyncio.sleep(1)
    await desk.send("T", b"other", pairs={"TAGS": "A"})
    answer = await waiting
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert offsets_of(answer)[0] == 4
    assert loop.time() - began == pytest.approx(5, abs=0.01)


@in_broker(config=replace(CONFIG, polling=replace(CONFIG.polling, long_polling=False)))
async def test_without_long_polling_a_pull_waits_a_second(desk: Desk) -> None:
    await three_messages(desk)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION)
    assert loop.time() - began == pytest.approx(1, abs=0.01)


@in_broker(config=replace(CONFIG, polling=replace(CONFIG.polling, max_parked=1)))
async def test_a_connection_that_is_closed_leaves_the_place_of_its_parked_pull_at_once(desk: Desk) -> None:
    await three_messages(desk)
    first = asyncio.create_task(desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION))
    await asyncio.sleep(0.1)
    (await desk.client.connect(desk.address)).abort()
    with pytest.raises(OSError):
        await first
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION)
    assert loop.time() - began == pytest.approx(15, abs=0.01)


@in_broker(config=replace(CONFIG, polling=replace(CONFIG.polling, max_parked=1)))
async def test_when_too_many_wait_the_next_is_answered_at_once(desk: Desk) -> None:
    await three_messages(desk)
    first = asyncio.create_task(desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION))
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    second = await desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION)
    assert second.code == ResponseCode.PULL_NOT_FOUND
    assert asyncio.get_running_loop().time() - began < 0.1
    first.cancel()


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "nope"}, 17, "topic[nope] not exist, apply first please! \nSee "),
        ({"queueId": 9}, 29, "queueId[9] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/"),
        ({"queueId": -1}, 29, "queueId[-1] is illegal"),
        ({"sysFlag": 0}, 24, "the consumer's group info not exist\nSee "),
        ({"expressionType": "SQL92"}, 1, "The broker does not support consumer to filter message by SQL92"),
    ],
)
@in_broker()
async def test_a_refused_pull_says_why(desk: Desk, changes: dict[str, Any], code: int, remark: str) -> None:
    await three_messages(desk)
    answer = await desk.pull(changes.pop("topic", "T"), 0, **changes)
    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    assert answer.ext == {}


@in_broker(config=replace(CONFIG, topics=replace(CONFIG.topics, permission=2)))
async def test_a_broker_without_read_permission_refuses_with_the_kind(desk: Desk) -> None:
    answer = await desk.pull("T", 0)
    assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "1"})


@in_broker()
async def test_a_lite_pull_is_a_pull_and_the_fast_port_has_neither(desk: Desk) -> None:
    await three_messages(desk)
    assert (await desk.pull("T", 0, code=RequestCode.LITE_PULL_MESSAGE)).code == ResponseCode.SUCCESS
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        answer = await desk.ask(code, {}, port=desk.broker.port - 2)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


@in_broker()
async def test_the_offset_that_comes_with_a_pull_is_committed(desk: Desk) -> None:
    await three_messages(desk)
    await desk.pull("T", 3, sysFlag=5, commitOffset=2)
    asked = {"consumerGroup": "readers", "topic": "T", "queueId": 0}
    answer = await desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
    assert answer.ext == {"offset": "2"}


def test_no_filter_for_a_star_or_nothing() -> None:
    assert tag_filter("*") is None
    assert tag_filter("") is None
    assert tag_filter(" || ") is None


def test_a_filter_knows_its_tags_by_hash() -> None:
    accepts = tag_filter("A || 标签")
    assert accepts is not None
    assert accepts(java_hash("A"))
    assert accepts(java_hash("标签"))
    assert not accepts(java_hash("B"))
    assert not accepts(0)


@in_broker()
async def test_one_client_cannot_take_all_the_places_to_wait(desk: Desk) -> None:
    await three_messages(desk)
    pulls = [
        asyncio.create_task(desk.pull("T", 3, sysFlag=SUSPEND_AND_SUBSCRIPTION, suspendTimeoutMillis=1 << 60))
        for _ in range(MAX_PARKED_PER_CONNECTION + 10)
    ]
    await asyncio.sleep(1)
    assert sum(task.done() for task in pulls) == 10
    await desk.send("T", b"news")
    answers = await asyncio.gather(*pulls)
    assert sum(answer.code == ResponseCode.SUCCESS for answer in answers) == MAX_PARKED_PER_CONNECTION
