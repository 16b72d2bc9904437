"""Reading and writing at the ends of a job. What lies between is not known here."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.pipelines.jobs.end import End
from turbopump.pipelines.jobs.spec import BadSpec
from turbopump.pipelines.lake import partitioned

TIME = "storeTimestamp"
Options = Mapping[str, str]


# --- reading ---------------------------------------------------------------------------------------------


def read(spark: SparkSession, end: End, name_server: str, options: Options) -> DataFrame:
    """All that is there now."""
    match end.kind:
        case "log":
            return spark.read.format("rocketmq-log").options(**options).load(end.name)
        case "delta":
            return spark.read.format("rocketmq-delta").options(**options).load(end.name)
        case "parquet":
            return spark.read.options(**options).parquet(end.name)
        case _:
            return spark.read.format("rocketmq").options(**_of_topic(end, name_server, options)).load()


def follow(spark: SparkSession, end: End, name_server: str, options: Options) -> DataFrame:
    """A stream that begins with what is there."""
    if not end.is_topic:
        raise BadSpec(f"{end} is no stream: only topics are")
    given = {"startingOffsets": "earliest", **_of_topic(end, name_server, options)}
    return spark.readStream.format("rocketmq").options(**given).load()


def _of_topic(end: End, name_server: str, options: Options) -> dict[str, str]:
    return {"nameServer": name_server, "subscribe": end.topic, **options}


def within(rows: DataFrame, since: datetime | None, until: datetime | None, where: str | None) -> DataFrame:
    """The rows stored from `since` on and before `until`, of which an SQL condition is true."""
    if since is not None:
        rows = rows.where(F.col(TIME) >= F.lit(since))
    if until is not None:
        rows = rows.where(F.col(TIME) < F.lit(until))
    return rows.where(where) if where else rows


# --- writing ---------------------------------------------------------------------------------------------


def with_parts(rows: DataFrame, parts: tuple[str, ...]) -> DataFrame:
    """With the columns by which a table is parted, where they are not there yet."""
    parted: DataFrame = partitioned(rows, TIME, [part for part in parts if part not in rows.columns])
    return parted


def write(rows: DataFrame, end: End, name_server: str, options: Options, parts: tuple[str, ...]) -> None:
    writer = _format(with_parts(rows, parts).write, end, name_server, options, parts)
    writer.mode("append").save()


def start(
    rows: DataFrame, end: End, name_server: str, options: Options, parts: tuple[str, ...], checkpoint: str
) -> Any:
    """The writer of a stream, to be given a trigger and started."""
    writer = _format(with_parts(rows, parts).writeStream, end, name_server, options, parts)
    return writer.outputMode("append").option("checkpointLocation", checkpoint)


def _format(writer: Any, end: End, name_server: str, options: Options, parts: tuple[str, ...]) -> Any:
    if end.is_topic:
        given = {"nameServer": name_server, "topic": end.topic, **options}
        return writer.format("rocketmq").options(**given)
    given = {"path": end.name, **options}
    if end.kind == "delta":
        if parts:
            given["partitionBy"] = ",".join(parts)
        return writer.format("rocketmq-delta").options(**given)
    return writer.format("parquet").options(**given).partitionBy(*parts)
