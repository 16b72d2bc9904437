"""Writes topics into a lake: Delta tables and Parquet files, partitioned by topic, date and hour.

    messages = spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876")...load()
    lake.to_delta(messages, "/lake/orders").option("checkpointLocation", "/lake/checkpoints/orders").start()
    lake.to_parquet(messages, "/lake/raw")...

Delta commits are made by the package `deltalake`, so Spark needs no jar for it. Both write each row once.
"""

from collections.abc import Sequence
from typing import Any

from turbopump.pipelines.lake.table import AlreadyWritten, OtherTable, compact, offsets, upsert

__all__ = [
    "AlreadyWritten",
    "OtherTable",
    "compact",
    "offsets",
    "partitioned",
    "to_delta",
    "to_parquet",
    "upsert",
]

PARTITIONS = ("topic", "date", "hour")


def partitioned(frame: Any, time: str = "storeTimestamp", parts: Sequence[str] = PARTITIONS) -> Any:
    """Adds the columns `date` and `hour` of the time column, in the session's time zone."""
    from pyspark.sql import functions

    makers = {"date": functions.to_date, "hour": functions.hour}
    return frame.withColumns({part: makers[part](time) for part in parts if part in makers})


def to_delta(frame: Any, path: str, time: str = "storeTimestamp") -> Any:
    """Returns a writer of the rows, with columns `date` and `hour` added, to a Delta table; not started."""
    rows = partitioned(frame, time)
    writer = rows.writeStream if frame.isStreaming else rows.write.mode("append")
    return writer.format("rocketmq-delta").option("path", path)


def to_parquet(frame: Any, path: str, time: str = "storeTimestamp") -> Any:
    """Returns a writer of the rows, with columns `date` and `hour` added, to Parquet files; not started.

    Readers other than Spark may see files of a batch that failed.
    """
    rows = partitioned(frame, time)
    writer = rows.writeStream if frame.isStreaming else rows.write.mode("append")
    columns = [name for name in PARTITIONS if name in rows.columns]
    return writer.format("parquet").option("path", path).partitionBy(*columns)
