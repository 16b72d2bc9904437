"""Transforms over rows made by hand: each is a function of rows, whoever read them."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import pytest

from turbopump.client.observe.trace import Trace, TraceMessageKind, encode
from turbopump.pipelines.jobs.transfer import limited
from turbopump.pipelines.schema import schema_of
from turbopump.pipelines.transforms.bodies import ERROR, BadAvroSchema, avro_body, json_body
from turbopump.pipelines.transforms.dead_letters import failures, to_resend, with_origin
from turbopump.pipelines.transforms.dedupe import MAX_TIMES, dedupe, kept, passed
from turbopump.pipelines.transforms.statistics import one_by_key, rates, skew, stats
from turbopump.pipelines.transforms.traces import deliveries, latencies, traces

BEGIN = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ALL = [*schema_of(has_properties=True).names, "offsetMsgId"]
DDL = schema_of(ALL).ddl


def message(number: int, **columns: Any) -> dict[str, Any]:
    given = {
        "topic": "Orders",
        "brokerName": "a",
        "queueId": number % 2,
        "queueOffset": number,
        "msgId": f"id{number}",
        "body": b"x" * 10,
        "storeTimestamp": BEGIN + timedelta(seconds=number),
        "reconsumeTimes": 0,
        "properties": {},
        "offsetMsgId": f"at{number}",
    }
    return {name: columns.get(name, given.get(name)) for name in ALL}


@pytest.fixture
def frame(spark: Any) -> Any:
    return lambda rows: spark.createDataFrame(rows, DDL)


def test_of_messages_with_a_key_the_first_in_each_window_is_kept(frame: Any) -> None:
    keys = ["a", "b", "a", None, "a", None, "b"]
    seconds = [0, 1, 30, 31, 95, 96, 400]
    rows = [
        message(number, keys=key, storeTimestamp=BEGIN + timedelta(seconds=second))
        for number, (key, second) in enumerate(zip(keys, seconds, strict=True))
    ]
    found = dedupe(frame(rows), within="1 minute").orderBy("queueOffset").collect()
    assert [row.queueOffset for row in found] == [0, 1, 3, 4, 5, 6]


def test_a_stream_passes_on_unique_messages_of_a_queue_that_lags(
    frame: Any, spark: Any, tmp_path: Any
) -> None:
    """One queue is an hour ahead; the other comes in later micro-batches, with other keys and repeats."""
    ahead = [message(n, queueId=0, keys=f"a{n}", storeTimestamp=BEGIN + HOUR) for n in range(5)]
    behind = [message(n, queueId=1, keys=f"b{n}", storeTimestamp=BEGIN) for n in range(5)]
    repeats = [message(9, queueId=1, keys="a0", storeTimestamp=BEGIN + HOUR + timedelta(seconds=30))]
    earlier = [message(10, queueId=1, keys="a1", storeTimestamp=BEGIN, properties={"p": "1"}, tags="x")]
    without = [message(n, queueId=1, storeTimestamp=BEGIN) for n in (11, 12)]
    steps = (ahead, behind, repeats + earlier, without)
    for number, rows in enumerate(steps):
        frame(rows).coalesce(1).write.parquet(str(tmp_path / "in" / str(number)))
    stream = (
        spark.readStream.schema(DDL)
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(str(tmp_path / "in"))
    )
    query = (
        dedupe(stream, within="1 minute")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    found = spark.read.schema(DDL).parquet(str(tmp_path / "out")).collect()
    passed_on = sorted(tuple(row) for row in found)
    sent = [row for rows in steps for row in rows if row["queueOffset"] != 9]
    assert passed_on == sorted(tuple(row) for row in frame(sent).collect())


@pytest.mark.parametrize(
    ("times", "known", "found"),
    [
        ([0, 60, 61], [], ([0, 2], [0, 61])),
        ([100, 30, 45], [90], ([1], [30, 90])),
        ([200], [90], ([0], [90, 200])),
        ([95], [90], ([], [90])),
    ],
)
def test_a_repeat_is_what_was_stored_near_one_that_was_passed_on(times: Any, known: Any, found: Any) -> None:
    within = 60 if not known else 20
    assert passed(times, known, within) == found
    assert len(passed([n * 100 for n in range(MAX_TIMES + 9)], [], 1)[1]) == MAX_TIMES


def test_a_window_begins_with_what_was_kept_and_not_with_what_was_dropped() -> None:
    assert list(kept([0, 40, 80, 120, 161], 60)) == [0, 2, 4]


def test_fields_of_json_bodies_are_columns_and_what_is_no_json_is_told(frame: Any) -> None:
    rows = [message(0, body=b'{"id": 7, "who": "A"}'), message(1, body=b"{oops")]
    found = json_body(frame(rows), "id long, who string").orderBy("queueOffset").collect()
    assert [(row.id, row.who, row[ERROR]) for row in found] == [(7, "A", None), (None, None, "{oops")]


def test_fields_of_avro_bodies_are_columns_and_what_is_no_avro_is_told(frame: Any) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "who", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "lines", "type": {"type": "array", "items": "int"}},
        ],
    }
    rows = [
        message(0, body=avro(schema, {"id": 7, "who": None, "at": BEGIN, "lines": [1, 2]})),
        message(1, body=b"\xff"),
        message(2, body=avro(schema, {"id": 8, "who": "B", "at": BEGIN, "lines": []}) + b"rest"),
    ]
    found = avro_body(frame(rows), json.dumps(schema)).orderBy("queueOffset").collect()
    assert (found[0].id, found[0].who, found[0].lines, found[0][ERROR]) == (7, None, [1, 2], None)
    assert found[0].at == BEGIN.replace(tzinfo=None)
    assert found[1].id is None
    assert found[1][ERROR]
    assert found[2][ERROR] == "4 bytes after the record"


def avro(schema: Any, record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def test_an_avro_schema_that_has_no_columns_is_refused(frame: Any) -> None:
    with pytest.raises(BadAvroSchema, match="must be a record"):
        avro_body(frame([message(0)]), '"string"')
    two = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]}
    with pytest.raises(BadAvroSchema, match="null and one type"):
        avro_body(frame([message(0)]), two)


def test_a_field_that_would_hide_a_column_is_refused(frame: Any) -> None:
    with pytest.raises(ValueError, match="fields topic, which messages have"):
        json_body(frame([message(0)]), "topic string")


def test_messages_are_counted_by_group_with_their_share_and_skew(frame: Any) -> None:
    rows = [message(number, tags="a" if number < 3 else "b", body=b"x" * number) for number in range(4)]
    counted = stats(frame(rows), ["tags"])
    assert [(row.tags, row.messages, row.bytes, row.share) for row in counted.collect()] == [
        ("a", 3, 3, 0.75),
        ("b", 1, 3, 0.25),
    ]
    assert skew(counted).collect()[0].skew == 1.5
    over_time = rates(frame(rows), "2 seconds").collect()
    assert [(row.start.second, row.messages) for row in over_time] == [(0, 2), (2, 2)]


def test_a_message_counts_for_each_of_its_keys(frame: Any) -> None:
    rows = [message(0, keys="a b"), message(1, keys="a"), message(2)]
    counted = stats(one_by_key(frame(rows)), ["key"]).collect()
    assert {row.key: row.messages for row in counted} == {"a": 2, "b": 1, None: 1}


def test_dead_letters_say_where_they_came_from_and_go_back_without_their_way(frame: Any) -> None:
    pairs = {"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "first", "DELAY": "3", "own": "1", "TAGS": "t"}
    rows = [message(n, topic="%DLQ%billing", tags="t", properties=pairs, reconsumeTimes=16) for n in range(2)]
    dead = with_origin(frame([*rows, message(9)]))
    assert [tuple(row)[:4] for row in failures(dead).collect()] == [("billing", "Orders", "t", 2)]
    to_group, to_topic = to_resend(dead).collect()[0], to_resend(dead, to_topic=True).collect()[0]
    assert to_group.topic == "%RETRY%billing"
    assert to_group.properties == {
        "own": "1",
        "RETRY_TOPIC": "Orders",
        "DLQ_RESENT_FROM": "at0",
    }
    assert (to_topic.topic, to_topic.tags) == ("Orders", "t")
    assert "RETRY_TOPIC" not in to_topic.properties


def test_traces_tell_how_long_a_message_took(frame: Any) -> None:
    sent = Trace(
        "Pub",
        "m1",
        "makers",
        "Orders",
        1000,
        5,
        kind=TraceMessageKind.NORMAL,
        store_host="h",
        offset_message_id="o",
    )
    before = Trace("SubBefore", "m1", "readers", None, 1105, request_id="r1")
    after = Trace("SubAfter", "m1", "readers", None, 1125, 20, request_id="r1")
    bodies = ["".join(map(encode, [sent])), "".join(map(encode, [before, after])), "rubbish"]
    rows = frame([message(n, body=body.encode()) for n, body in enumerate(bodies)])
    found = deliveries(traces(rows)).collect()
    assert [(row.topic, row.consumerGroup, row.sendMs, row.waitMs, row.consumeMs) for row in found] == [
        ("Orders", "readers", 5, 100, 20)
    ]
    spread = latencies(deliveries(traces(rows))).collect()[0]
    assert (spread.deliveries, spread.failed, spread.waitMsP99) == (1, 0, 100)


def test_a_rate_is_kept_without_losing_a_row(frame: Any) -> None:
    rows = [message(number) for number in range(25)]
    assert limited(frame(rows).select("body"), 20).count() == 25


@pytest.mark.parametrize(
    ("old", "new"), [("letters", with_origin), ("failures", failures), ("again", to_resend)]
)
def test_the_former_names_of_dead_letters_work_with_a_warning(old: str, new: Any) -> None:
    from turbopump.pipelines.transforms import letters

    with pytest.warns(DeprecationWarning, match=f"dead_letters.{new.__name__}"):
        assert getattr(letters, old) is new
    with pytest.raises(AttributeError, match="no attribute 'none'"):
        getattr(letters, "none")  # noqa: B009
