"""`turbopump trace`: the path shown from the trace records of clients."""

import contextlib
import json
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from msgspec import structs
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.broker.desk import CONFIG
from tests.unit.client import listening
from tests.unit.client.producing import producing

from turbopump.cli import trace
from turbopump.cli.failures import CommandFailure
from turbopump.cli.trace import TracedRecord, path_of
from turbopump.client.message import Message
from turbopump.client.observe.trace import AFTER, BEFORE, END, PUB, Trace, TraceOutcome

NOW_MS = 1_700_000_000_000
SENT = Trace(
    *(PUB, "ID", "orders", "OrderTopic", NOW_MS, 3),
    tags="paid",
    keys="A-1",
    store_host="b:10911",
    body_size=4,
    offset_message_id="OFF",
)


def delivery(number: int, after_ms: int, outcome: TraceOutcome, group: str = "billing") -> list[TracedRecord]:
    request_id = f"R{number}"
    is_success = outcome is TraceOutcome.SUCCESS
    before = Trace(
        *(BEFORE, "ID", group),
        time_ms=NOW_MS + after_ms,
        request_id=request_id,
        retry_times=number,
    )
    end_ms = NOW_MS + after_ms + 2
    after = Trace(AFTER, "ID", group, None, end_ms, 2, is_success, request_id=request_id, outcome=outcome)
    return [TracedRecord(after, "c2"), TracedRecord(before, "c2")]


def shown(*records: TracedRecord) -> list[str]:
    return [line[INDENT:] if number else line for number, line in enumerate(path_of("ID", records).lines())]


INDENT = len(trace.INDENT)


def test_a_way_has_the_send_the_place_and_every_delivery() -> None:
    failed, done = delivery(0, 7, TraceOutcome.EXCEPTION), delivery(1, 10_007, TraceOutcome.SUCCESS)
    assert shown(*done, *failed, TracedRecord(SENT, "c1")) == [
        "ID topic=OrderTopic tag=paid keys=A-1 bytes=4",
        "sent by orders on c1 in 3 ms",
        "stored at b:10911 as OFF",
        "delivered to billing on c2, failed (EXCEPTION) in 2 ms, 7 ms after the send",
        "delivered to billing on c2, consumed in 2 ms, retry 1, 10007 ms after the send",
    ]


def test_what_nobody_told_is_said_and_not_guessed() -> None:
    (_, before) = delivery(0, 7, TraceOutcome.SUCCESS)
    assert shown(before) == [
        "ID",
        "(no record of its producer)",
        "delivered to billing on c2, not finished",
    ]
    assert shown(TracedRecord(SENT, "c1"))[-1] == "(no record of a consumer)"


def test_a_record_without_time_or_group_takes_those_of_its_beginning() -> None:
    after, before = delivery(0, 7, TraceOutcome.SUCCESS)
    cloud = TracedRecord(structs.replace(after.trace, time_ms=0, group=None), "c2")
    (only,) = path_of("ID", [cloud, before]).deliveries
    assert (only.group, only.began_ms, only.cost_ms) == ("billing", NOW_MS + 7, 2)


def test_the_end_of_a_transaction_is_part_of_the_way() -> None:
    end = Trace(END, "ID", "orders", time_ms=NOW_MS + 5, state="COMMIT_MESSAGE", from_check=True)
    assert "transaction COMMIT_MESSAGE by orders on c1, asked by the broker" in shown(
        TracedRecord(SENT, "c1"), TracedRecord(end, "c1")
    )


def test_a_record_cannot_command_the_terminal() -> None:
    (first, *_) = shown(TracedRecord(structs.replace(SENT, tags="\x1b[2J"), "c1"))
    assert r"tag=\x1b[2J" in first


@contextlib.asynccontextmanager
async def a_town(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    offering = replace(CONFIG, topics=replace(CONFIG.topics, trace_topic=True))
    async with cluster(config=offering) as town:

        @contextlib.asynccontextmanager
        async def administration(flag: str | None) -> AsyncIterator[object]:
            yield town.admin

        monkeypatch.setattr(trace.connect, "administration", administration)
        await town.create_topic("orders", 1)
        yield town


def asked(message_id: str, as_json: bool = False) -> Namespace:
    return Namespace(message_id=message_id, topic="RMQ_SYS_TRACE_TOPIC", json=as_json, namesrv=None)


@virtual
async def test_the_way_of_a_message_through_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_town(monkeypatch) as town:
        reader = listening.Reader()
        async with (
            producing(town, enable_trace=True) as one,
            listening.consumer(town, reader, enable_trace=True),
        ):
            receipt = await one.send(Message("orders", b"paid", keys="A-1"))
            await town.clock.sleep(2)
        assert await trace._run(asked(receipt.message_id, as_json=True)) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["messageId"], found["topic"], found["keys"]) == (
            receipt.message_id,
            "orders",
            ["A-1"],
        )
        assert [one["group"] for one in found["sends"]] == ["makers"]
        assert found["sends"][0]["offsetMsgId"] == receipt.offset_message_id
        assert [(one["group"], one["outcome"]) for one in found["deliveries"]] == [("readers", "SUCCESS")]
        await trace._run(asked(receipt.message_id))
        assert "delivered to readers on 127.0.0.1, consumed" in capsys.readouterr().out


@virtual
async def test_no_trace_is_a_failure_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_town(monkeypatch):
        for topic in ("RMQ_SYS_TRACE_TOPIC", "nowhere"):
            with pytest.raises(CommandFailure, match="no trace of ID") as caught:
                await trace._run(Namespace(message_id="ID", topic=topic, json=False, namesrv=None))
            assert caught.value.status == 1
