"""Jobs that move rows: archive, replay, transform, dedupe."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from turbopump.pipelines.jobs.end import PARTS
from turbopump.pipelines.jobs.ends import TIME
from turbopump.pipelines.jobs.showing import Outcome
from turbopump.pipelines.jobs.spec import BadSpec
from turbopump.pipelines.jobs.work import Work
from turbopump.pipelines.transforms.bodies import avro_body, json_body
from turbopump.pipelines.transforms.dedupe import dedupe
from turbopump.pipelines.transforms.resending import sendable

INPUT = "messages"  # how SQL names the source


def archive(work: Work) -> Outcome:
    """Topics or a store into a table of files."""
    end, parts = work.target(), work.given["partition_by"]
    if end.is_topic:
        raise BadSpec("archive writes delta:DIR or parquet:DIR; `transform` and `replay` write topics")
    wrong = [part for part in parts if part not in PARTS]
    if wrong:
        raise BadSpec(f"partition-by={','.join(wrong)}: wants some of {', '.join(PARTS)}")
    outcome = work.move(lambda rows: rows, parts, includeProperties="true")
    if work.given["compact"] and end.kind == "delta":
        from turbopump.pipelines.lake import compact

        outcome.summary |= compact(end.name)
    return outcome


def replay(work: Work) -> Outcome:
    """Rows of a table or a store into a topic, or to one group alone."""
    if not work.target().is_topic:
        raise BadSpec("replay writes topic:NAME, or group:NAME for one group alone")
    return work.move(lambda rows: limited(sendable(in_order(rows)), work.given["rate"]))


def in_order(rows: DataFrame) -> DataFrame:
    """In which they were stored."""
    return rows.orderBy(TIME) if TIME in rows.columns else rows


def limited(rows: DataFrame, rate: int | None) -> DataFrame:
    """At most so many rows a second, in one task: more tasks would be more than that together."""
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


def transform(work: Work) -> Outcome:
    """Spark SQL between topics and tables."""
    query = work.given["sql"]
    if work.given["sql_file"]:
        query = Path(work.given["sql_file"]).read_text()
    if not query:
        raise BadSpec(f"transform needs --sql or --sql-file: a query over {INPUT}")

    def change(rows: DataFrame) -> DataFrame:
        read_body(rows, work.given).createOrReplaceTempView(INPUT)
        return work.spark.sql(query)

    parts = work.given["partition_by"] if not work.target().is_topic else ()
    return work.move(change, parts, includeProperties="true")


def read_body(rows: DataFrame, given: Any) -> DataFrame:
    """With the columns that the body has, when it was said how to read it."""
    if given["json_body"] and given["avro_body"]:
        raise BadSpec("a body is read as --json-body or as --avro-body, not both")
    if given["json_body"]:
        return json_body(rows, given["json_body"])
    if given["avro_body"]:
        return avro_body(rows, json.loads(Path(given["avro_body"]).read_text()))
    return rows


def drop_repeated(work: Work) -> Outcome:
    """Of messages with one key within a time the first."""
    by, within = work.given["by"], work.given["within"]
    is_sent = work.target().is_topic

    def change(rows: DataFrame) -> DataFrame:
        kept = dedupe(rows, by, within)
        return sendable(kept) if is_sent else kept

    return work.move(change, () if is_sent else work.given["partition_by"], includeProperties="true")
