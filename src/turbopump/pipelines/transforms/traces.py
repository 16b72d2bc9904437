"""Reads the messages in which clients trace sends and deliveries into rows, with how long each took."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.client.observe.trace import AFTER, BEFORE, PUB, Trace, decode

FIELDS = (
    ("type", "string", pa.string()),
    ("message_id", "string", pa.string()),
    ("group", "string", pa.string()),
    ("topic", "string", pa.string()),
    ("time_ms", "bigint", pa.int64()),
    ("cost_ms", "bigint", pa.int64()),
    ("is_success", "boolean", pa.bool_()),
    ("request_id", "string", pa.string()),
    ("retry_times", "int", pa.int32()),
)
DDL = ", ".join(f"`{name}` {sql}" for name, sql, _ in FIELDS)
UNREADABLE = "unreadable"
"""Type of the row that stands for a message without a readable record."""
ARROW = pa.schema([pa.field(name, kind) for name, _, kind in FIELDS])


def traces(messages: DataFrame) -> DataFrame:
    """Returns a row per trace record in messages of a trace topic; an UNREADABLE one if there is none."""
    return messages.select("body").mapInArrow(_records, DDL)


def _records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [trace for body in batch.column("body").to_pylist() for trace in _read(body)]
        yield as_rows(found)


def _read(body: bytes | None) -> list[Trace]:
    text = (body or b"").decode("utf-8", "replace")
    return decode(text) or [Trace(UNREADABLE, "", None, None, 0)]


def as_rows(found: list[Trace]) -> pa.RecordBatch:
    columns = [pa.array([getattr(trace, name) for trace in found], kind) for name, _, kind in FIELDS]
    return pa.record_batch(columns, schema=ARROW)


def deliveries(records: DataFrame) -> DataFrame:
    """Returns a row per message and delivery with its times in ms, from rows of `traces`.

    `sendMs` lasts until the broker had the message, `waitMs` from there until a consumer began, `consumeMs`
    until it was done. `waitMs` compares the clocks of two machines.
    """
    sent = records.where(F.col("type") == PUB).select(
        F.col("message_id").alias("msgId"),
        "topic",
        F.col("group").alias("producerGroup"),
        F.col("cost_ms").alias("sendMs"),
        F.timestamp_millis("time_ms").alias("sentAt"),
        (F.col("time_ms") + F.col("cost_ms")).alias("__stored"),
        F.col("is_success").alias("isSent"),
    )
    begun = records.where(F.col("type") == BEFORE).select(
        F.col("message_id").alias("msgId"),
        "request_id",
        F.col("group").alias("consumerGroup"),
        F.col("time_ms").alias("__begun"),
        F.col("retry_times").alias("tries"),
    )
    done = records.where(F.col("type") == AFTER).select(
        F.col("message_id").alias("msgId"),
        "request_id",
        F.col("cost_ms").alias("consumeMs"),
        F.col("is_success").alias("isConsumed"),
    )
    return (
        sent.join(begun.join(done, ["msgId", "request_id"], "left"), "msgId", "left")
        .withColumn("waitMs", F.col("__begun") - F.col("__stored"))
        .drop("__stored", "__begun", "request_id")
    )


def latencies(deliveries: DataFrame) -> DataFrame:
    """Summarizes rows of `deliveries` by topic and consumer group: failures, and percentiles of each part."""
    parts = [
        F.percentile_approx(part, share).alias(f"{part}P{round(share * 100)}")
        for part in ("sendMs", "waitMs", "consumeMs")
        for share in (0.5, 0.99)
    ]
    failed = F.count_if(~F.coalesce(F.col("isConsumed"), F.lit(True)) | ~F.col("isSent"))
    return (
        deliveries.groupBy("topic", "consumerGroup")
        .agg(F.count(F.lit(1)).alias("deliveries"), failed.alias("failed"), *parts)
        .orderBy("topic", "consumerGroup")
    )
