"""Jobs that transfer rows: archive, replay, transform, dedupe."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from turbopump.pipelines.jobs import checks
from turbopump.pipelines.jobs.counts import MALFORMED
from turbopump.pipelines.jobs.display import JobResult
from turbopump.pipelines.jobs.job_run import JobRun
from turbopump.pipelines.transforms.bodies import ERROR, avro_body, json_body
from turbopump.pipelines.transforms.dedupe import dedupe
from turbopump.pipelines.transforms.resend import in_queue_order, sendable


def archive(run: JobRun) -> JobResult:
    """Runs the job `archive`: writes topics or a store into a table."""
    end = run.target()
    outcome = run.move(lambda rows: rows, run.given["partition_by"], includeProperties="true")
    if run.given["compact"] and end.kind == "delta" and not run.given["explain"]:
        from turbopump.pipelines.lake import compact

        outcome.summary |= compact(end.name)
    return outcome


def replay(run: JobRun) -> JobResult:
    """Runs the job `replay`: sends stored rows to a topic or to one group, each queue in its order."""
    rate = run.given["rate"]
    return run.move(
        lambda rows: limited(sendable(in_queue_order(rows, rate is not None)), rate), includeProperties="true"
    )


def limited(rows: DataFrame, rate: int | None) -> DataFrame:
    """Returns rows that pass at most `rate` per second, in a single task; unchanged if `rate` is None.

    Several tasks together would exceed the limit.
    """
    if rate is None:
        return rows

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin, passed = time.monotonic(), 0
        for batch in batches:
            for start in range(0, batch.num_rows, rate):
                part = batch.slice(start, rate)
                time.sleep(max(0.0, begin + passed / rate - time.monotonic()))
                passed += part.num_rows
                yield part

    return rows.coalesce(1).mapInArrow(slowly, rows.schema)


def transform(run: JobRun) -> JobResult:
    """Runs the job `transform`: applies Spark SQL to messages between topics and tables."""
    query = checks.texts_of(run.given)["sql"]
    run.is_malformed_allowed = ERROR.lower() in query.lower()  # then the query decides about them

    def change(rows: DataFrame) -> DataFrame:
        messages = read_body(rows, run.given)
        if ERROR in messages.columns:
            messages = run.count(messages, MALFORMED, f"{ERROR} IS NOT NULL")
        messages.createOrReplaceTempView(checks.INPUT)
        return run.spark.sql(query)

    parts = run.given["partition_by"] if not run.target().is_topic else ()
    return run.move(change, parts, includeProperties="true")


def read_body(rows: DataFrame, given: Any) -> DataFrame:
    """Adds the columns parsed from a JSON or Avro body if a flag gives its schema; else returns `rows`."""
    if given["json_body"]:
        return json_body(rows, given["json_body"])
    if given["avro_body"]:
        return avro_body(rows, json.loads(checks.texts_of(given)["avro_body"]))
    return rows


def drop_repeated(run: JobRun) -> JobResult:
    """Runs the job `dedupe`: of messages with the same key within a time, keeps the first."""
    by, within, remember = run.given["by"], run.given["within"], run.given["remember"]
    run.is_deduplication = True
    is_sent = run.target().is_topic

    def change(rows: DataFrame) -> DataFrame:
        kept = dedupe(rows, by, within, remember=remember)
        return sendable(kept) if is_sent else kept

    return run.move(change, () if is_sent else run.given["partition_by"], includeProperties="true")
