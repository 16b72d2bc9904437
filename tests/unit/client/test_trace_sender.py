"""Message trace: what producers and consumers tell the trace topic, and that nobody notices it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.broker.desk import CONFIG
from tests.unit.client import listening, pulling
from tests.unit.client.producing import producing, stored

from turbopump.client.group.consume_status import RetryLater
from turbopump.client.message import Message, MessageExt, MessageQueue
from turbopump.client.observe import trace_sender
from turbopump.client.observe.trace import (
    AFTER,
    BEFORE,
    END,
    PUB,
    Trace,
    TraceMessageKind,
    TraceOutcome,
    decode,
)
from turbopump.client.observe.trace_sender import trace_messages
from turbopump.client.produce.transaction import Decision
from turbopump.client.settings import AccessChannel
from turbopump.protocol.names import TRACE_TOPIC
from turbopump.testing.loop import run_virtual

OFFERING = replace(CONFIG, topics=replace(CONFIG.topics, trace_topic=True))
ORDER = Message("orders", b"paid", tags="paid", keys=["A-1", "A-2"])


async def traces(town: MemoryCluster, topic: str = TRACE_TOPIC) -> list[Trace]:
    return [record for message in await stored(town, topic) for record in decode(message.text)]


async def town_with_orders(queues: int = 1) -> AsyncIterator[MemoryCluster]:
    async with cluster(config=OFFERING) as town:
        await town.create_topic("orders", queues)
        yield town


def scene(play: Any) -> None:
    async def run() -> None:
        async for town in town_with_orders():
            await play(town)

    run_virtual(run())


def test_each_message_that_is_sent_leaves_a_record() -> None:
    async def play(town: MemoryCluster) -> None:
        async with producing(town, enable_trace=True) as one:
            receipt = await one.send(ORDER)
            later = await one.send(Message("orders", b"x", delay_level=2))
        first, second = await traces(town)
        assert (first.type, first.message_id, first.topic, first.group) == (
            PUB,
            receipt.message_id,
            "orders",
            "makers",
        )
        assert (first.tags, first.keys, first.body_size) == ("paid", "A-1 A-2", 4)
        assert (first.store_host, first.region) == ("127.0.0.1:10911", "DefaultRegion")
        assert (first.offset_message_id, first.is_success) == (receipt.offset_message_id, True)
        assert (second.message_id, second.kind, second.tags) == (
            later.message_id,
            TraceMessageKind.DELAY,
            None,
        )
        (message,) = await stored(town, TRACE_TOPIC)
        assert set(message.keys) == {receipt.message_id, later.message_id, "A-1", "A-2"}

    scene(play)


def test_each_message_of_a_batch_has_its_own_record() -> None:
    async def play(town: MemoryCluster) -> None:
        async with producing(town, enable_trace=True) as one:
            receipts = await one.send_batch([ORDER, Message("orders", b"more")])
        found = await traces(town)
        assert [one.message_id for one in found] == [one.message_id for one in receipts]
        assert [one.offset_message_id for one in found] == [one.offset_message_id for one in receipts]
        assert [one.keys for one in found] == ["A-1 A-2", None]

    scene(play)


def test_sends_that_failed_and_oneway_sends_leave_none() -> None:
    async def play(town: MemoryCluster) -> None:
        async with producing(town, enable_trace=True) as one:
            await one.send_oneway(ORDER)
            with pytest.raises(Exception, match="queue"):
                await one.send(ORDER, queue=MessageQueue("orders", "broker-a", 9))
        assert await traces(town) == []

    scene(play)


def test_a_delivery_leaves_a_record_before_and_one_after() -> None:
    async def play(town: MemoryCluster) -> None:
        sent = await town.send("orders", b"a", keys="k")
        reader = listening.Reader()
        async with listening.consumer(town, reader, enable_trace=True):
            await town.clock.sleep(2)
        before, after = await traces(town)
        assert (before.type, before.message_id, before.group) == (BEFORE, sent.message_id, "readers")
        assert (before.retry_times, before.keys, before.region) == (0, "k", "DefaultRegion")
        assert (after.type, after.message_id, after.group) == (AFTER, sent.message_id, "readers")
        assert (after.outcome, after.is_success) == (TraceOutcome.SUCCESS, True)
        assert before.request_id == after.request_id is not None

    scene(play)


def test_deliveries_of_a_batch_are_traced_though_its_messages_have_no_region() -> None:
    async def play(town: MemoryCluster) -> None:
        reader = listening.Reader()
        async with producing(town) as one, listening.consumer(town, reader, enable_trace=True):
            receipts = await one.send_batch([ORDER, ORDER])
            await town.clock.sleep(2)
        assert not any("MSG_REGION" in message.properties for message in reader.got)
        found = await traces(town)
        assert {record.message_id for record in found} == {one.message_id for one in receipts}
        assert {record.region for record in found if record.type == BEFORE} == {"DefaultRegion"}

    scene(play)


async def later(message: MessageExt) -> None:
    raise RetryLater


async def broken(message: MessageExt) -> None:
    raise ValueError("no")


async def slow(message: MessageExt) -> None:
    await asyncio.sleep(0.2)


def in_a_thread(message: MessageExt) -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("handler", "outcome", "is_success"),
    [
        (later, TraceOutcome.FAILED, False),
        (broken, TraceOutcome.EXCEPTION, False),
        (slow, TraceOutcome.TIME_OUT, True),
        (in_a_thread, TraceOutcome.EXCEPTION, False),
    ],
)
def test_a_record_says_how_a_delivery_ended(handler: Any, outcome: TraceOutcome, is_success: bool) -> None:
    async def play(town: MemoryCluster) -> None:
        await town.send("orders", b"a")
        one = listening.plain(town, enable_trace=True, consume_timeout=0.15)
        one.subscribe("orders", handler)
        async with one:
            await town.clock.sleep(2)
        ends = [record for record in await traces(town) if record.type == AFTER]
        assert (ends[0].outcome, ends[0].is_success) == (outcome, is_success)

    scene(play)


def test_what_a_pull_consumer_gives_out_is_traced() -> None:
    async def play(town: MemoryCluster) -> None:
        sent = await town.send("orders", b"a")
        async with pulling.consumer(town, enable_trace=True) as reader:
            assert len(await pulling.all_of(reader)) == 1
        assert [(one.type, one.message_id) for one in await traces(town)] == [
            (BEFORE, sent.message_id),
            (AFTER, sent.message_id),
        ]

    scene(play)


@virtual
async def test_a_broker_that_wants_no_traces_gets_none() -> None:
    silent = replace(OFFERING, sending=replace(CONFIG.sending, trace_on=False))
    async with cluster(config=silent) as town:
        await town.create_topic("orders", 1)
        reader = listening.Reader()
        async with (
            producing(town, enable_trace=True) as one,
            listening.consumer(town, reader, enable_trace=True),
        ):
            await one.send(ORDER)
            await town.clock.sleep(2)
        assert reader.bodies == [b"paid"]
        assert await traces(town) == []


def test_traces_are_not_traced() -> None:
    async def play(town: MemoryCluster) -> None:
        async with producing(town, enable_trace=True, trace_topic="seen") as one:
            await one.send(ORDER)
            await one.send(Message("seen", b"by hand"))
        assert [record.topic for record in await traces(town, "seen")] == ["orders"]

    scene(play)


def test_a_cloud_has_a_trace_topic_for_each_region() -> None:
    async def play(town: MemoryCluster) -> None:
        async with producing(town, enable_trace=True, access_channel="cloud") as one:
            await one.send(ORDER)
        assert len(await traces(town, "rmq_sys_TRACE_DATA_DefaultRegion")) == 1

    scene(play)


def test_names_in_traces_are_those_of_the_user() -> None:
    async def play(town: MemoryCluster) -> None:
        reader = listening.Reader()
        given = {"namespace": "shop", "enable_trace": True}
        async with producing(town, **given) as one, listening.consumer(town, reader, **given):
            await one.send(ORDER)
            await town.clock.sleep(2)
        found = await traces(town)
        assert {(record.type, record.group, record.topic) for record in found} == {
            (PUB, "makers", "orders"),
            (BEFORE, "readers", None),
            (AFTER, "readers", None),
        }

    scene(play)


def test_few_records_wait_for_more_and_many_do_not() -> None:
    async def play(town: MemoryCluster) -> None:
        async with producing(town, enable_trace=True, trace_msg_batch_num=3) as one:
            await one.send(ORDER)
            await town.clock.sleep(trace_sender.FLUSH_S / 2)
            assert await traces(town) == []
            await town.clock.sleep(trace_sender.FLUSH_S)
            assert len(await traces(town)) == 1
            for _ in range(7):
                await one.send(ORDER)
            await town.clock.sleep(trace_sender.FLUSH_S / 2)
            assert [len(decode(message.text)) for message in await stored(town, TRACE_TOPIC)] == [1, 3, 3]
        assert len(await traces(town)) == 8

    scene(play)


def test_more_than_may_wait_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace_sender, "MAX_WAITING_RECORDS", 5)

    async def play(town: MemoryCluster) -> None:
        async with producing(town, enable_trace=True) as one:
            receipts = await asyncio.gather(*(one.send(ORDER) for _ in range(9)))
            assert len(receipts) == 9
        assert len(await traces(town)) == 5

    scene(play)
    assert "4 trace records" in caplog.text


def test_a_trace_topic_that_cannot_be_reached_is_not_noticed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        closed = replace(CONFIG, topics=replace(CONFIG.topics, auto_create=False))
        async with cluster(config=closed) as town:
            await town.create_topic("orders", 1)
            began_s = town.clock.monotonic()
            async with producing(town, enable_trace=True) as one:
                for _ in range(3):
                    await one.send(ORDER)
                    await town.clock.sleep(1)
            assert town.clock.monotonic() - began_s < 3 + trace_sender.CLOSE_S + 1
            assert len(await stored(town, "orders")) == 3

    run_virtual(run())
    assert caplog.text.count("Cannot send traces") == 1
    assert "3 trace records" in caplog.text


def test_records_of_one_topic_and_region_travel_together_and_split_by_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace_sender, "MAX_CHARACTERS", 120)
    records = [Trace(BEFORE, f"ID{n}", "g", "TA"[n % 2], keys="k", region="EU") for n in range(8)]
    found = list(trace_messages(records, is_cloud=True))
    assert {parcel.region for parcel in found} == {"EU"}
    assert sorted(one.message_id for parcel in found for one in decode(parcel.text)) == [
        f"ID{n}" for n in range(8)
    ]
    assert all(len(parcel.text) <= 120 for parcel in found)
    assert {len({int(key[2:]) % 2 for key in parcel.keys if key != "k"}) for parcel in found} == {1}
    monkeypatch.setattr(trace_sender, "MAX_KEY_CHARACTERS", 9)
    assert [len(parcel.keys) for parcel in trace_messages(records[:1] * 2 + records[2:3], False)] == [2, 2]


def test_the_end_of_a_transaction_leaves_a_record() -> None:
    async def play(town: MemoryCluster) -> None:
        async with producing(town, enable_trace=True) as one, one.transaction(ORDER) as transaction:
            pass
        half, end = sorted(await traces(town), key=lambda record: record.type, reverse=True)
        assert (half.type, half.kind, half.message_id) == (
            PUB,
            TraceMessageKind.HALF,
            transaction.receipt.message_id,
        )
        assert (end.type, end.message_id, end.transaction_id) == (END, half.message_id, half.message_id)
        assert (end.state, end.from_check, end.keys) == ("COMMIT_MESSAGE", False, "A-1 A-2")
        assert (end.store_host, end.group, end.topic) == ("127.0.0.1:10911", "makers", "orders")

    scene(play)


def test_a_transaction_that_a_broker_had_to_ask_about_leaves_a_record_that_says_so() -> None:
    async def play(town: MemoryCluster) -> None:
        given: dict[str, Any] = {"check": lambda message: Decision.ROLLBACK, "enable_trace": True}
        async with producing(town, **given) as one:
            transaction = one.transaction(ORDER, check_after=1)
            await transaction.begin()
            for _ in range(200):  # the check is a `def` and runs in a thread
                await town.clock.sleep(1)
                if len(await traces(town)) > 1:
                    break
        (end,) = [record for record in await traces(town) if record.type == END]
        assert (end.message_id, end.state) == (transaction.receipt.message_id, "ROLLBACK_MESSAGE")
        assert (end.from_check, end.store_host, end.tags) == (True, "127.0.0.1:10911", "paid")

    scene(play)


def test_the_channel_is_a_choice_by_its_word() -> None:
    from turbopump.client.settings import ProducerSettings, made

    assert made(ProducerSettings, {"access_channel": "CLOUD"}).access_channel is AccessChannel.CLOUD
