"""Reads and writes DataFrames at the endpoints of a job."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.client.blocking.admin import Admin
from turbopump.client.errors import TopicUnknown
from turbopump.pipelines.credentials import credentials_among, signing_options
from turbopump.pipelines.jobs.endpoint import JobEndpoint
from turbopump.pipelines.jobs.spec import BadSpec, TypedTime
from turbopump.pipelines.lake import partitioned
from turbopump.pipelines.schema import schema_of
from turbopump.protocol.errors import TopicNotFound

TIME = "storeTimestamp"
Options = Mapping[str, str]
OURS = {"log": "rocketmq-log", "topic": "rocketmq", "dlq": "rocketmq"}
"""Kinds of sources that take times and columns as options of their format."""


# --- reading ---------------------------------------------------------------------------------------------


def read(spark: SparkSession, end: JobEndpoint, name_server: str, options: Options) -> DataFrame:
    """Returns a batch DataFrame of all that the source has now."""
    match end.kind:
        case "log":
            return spark.read.format("rocketmq-log").options(**options).load(end.name)
        case "delta":
            return spark.read.format("rocketmq-delta").options(**options).load(end.name)
        case "parquet":
            return spark.read.options(**options).parquet(end.name)
        case _:
            return spark.read.format("rocketmq").options(**_of_topic(end, name_server, options)).load()


def follow(spark: SparkSession, end: JobEndpoint, name_server: str, options: Options) -> DataFrame:
    """Returns a streaming DataFrame of a topic, from its earliest message unless options say otherwise.

    Raises BadSpec if the source is not a topic.
    """
    if not end.is_topic:
        raise BadSpec(f"a stream must read a topic, got {end}")
    given = _of_topic(end, name_server, options)
    if not any(name.lower().startswith("starting") for name in given):
        given["startingOffsets"] = "earliest"
    return spark.readStream.format("rocketmq").options(**given).load()


def _of_topic(end: JobEndpoint, name_server: str, options: Options) -> dict[str, str]:
    return {"nameServer": name_server, "subscribe": end.topic, **options}


def is_there(name_server: str, topic: str, options: Options) -> bool:
    """Tells whether a topic has a route; a dead-letter topic gets one with the first dead letter.

    Of the source's options those with credentials are used.
    """
    with Admin(name_server, **signing_options(credentials_among(options))) as admin:
        try:
            admin.topics.route(topic)
        except (TopicUnknown, TopicNotFound):
            return False
    return True


def no_rows(spark: SparkSession, options: Options) -> DataFrame:
    """Returns an empty DataFrame with the columns that a topic read with these options would have."""
    lower = {name.lower(): value for name, value in options.items()}
    columns = [name.strip() for name in lower.get("columns", "").split(",") if name.strip()]
    schema = schema_of(columns, has_properties=lower.get("includeproperties") == "true")
    return spark.createDataFrame([], schema.ddl)


def positions(end: JobEndpoint, since: TypedTime | None, until: TypedTime | None) -> dict[str, str]:
    """Returns the options by which a topic or store is read between these times; none for tables."""
    if end.kind not in OURS:
        return {}
    found = {}
    if since is not None:
        found["startingTimestamp"] = str(since.ms)
        if end.is_topic:  # a queue without such a message begins with the next one
            found["startingOffsetsByTimestampStrategy"] = "latest"
    if until is not None:
        found["endingTimestamp"] = str(until.ms)
    return found


def within(end: JobEndpoint, rows: DataFrame, since: TypedTime | None, until: TypedTime | None) -> DataFrame:
    """Returns a table's rows stored in [since, until); rows of topics and stores, already bound, as given."""
    if end.kind in OURS:
        return rows
    if since is not None:
        rows = rows.where(F.col(TIME) >= F.lit(_datetime(since)))
    if until is not None:
        rows = rows.where(F.col(TIME) < F.lit(_datetime(until)))
    return rows


def _datetime(time: TypedTime) -> datetime:
    return datetime.fromtimestamp(time.ms / 1000, UTC)


# --- writing ---------------------------------------------------------------------------------------------


def with_parts(rows: DataFrame, parts: tuple[str, ...]) -> DataFrame:
    """Adds the partition columns `date` and `hour` if `parts` names them and the rows lack them."""
    parted: DataFrame = partitioned(rows, TIME, [part for part in parts if part not in rows.columns])
    return parted


def write(
    rows: DataFrame, end: JobEndpoint, name_server: str, options: Options, parts: tuple[str, ...]
) -> None:
    """Appends the rows of a batch to the target."""
    writer = _format(with_parts(rows, parts).write, end, name_server, options, parts)
    writer.mode("append").save()


def start(
    rows: DataFrame,
    end: JobEndpoint,
    name_server: str,
    options: Options,
    parts: tuple[str, ...],
    checkpoint: str,
) -> Any:
    """Returns the writer of a stream, not started: the caller sets its trigger and starts it."""
    writer = _format(with_parts(rows, parts).writeStream, end, name_server, options, parts)
    return writer.outputMode("append").option("checkpointLocation", checkpoint)


def _format(writer: Any, end: JobEndpoint, name_server: str, options: Options, parts: tuple[str, ...]) -> Any:
    if end.is_topic:
        given = {"nameServer": name_server, "topic": end.topic, **options}
        return writer.format("rocketmq").options(**given)
    given = {"path": end.name, **options}
    if end.kind == "delta":
        if parts:
            given["partitionBy"] = ",".join(parts)
        return writer.format("rocketmq-delta").options(**given)
    return writer.format("parquet").options(**given).partitionBy(*parts)
