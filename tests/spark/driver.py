"""A driver that may die: `python -m tests.spark.driver '{"place": …, "format": …, "options": {…}}'`.

Reads the files of `place`/in, one to a micro-batch, and writes their rows until there are no more, or for as
long as it lives. Its JVM's pid is in `place`/jvm.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark.conftest import settings

ROWS_IN_ARROW = "3"  # a task has several batches then


def main() -> None:
    asked = json.loads(sys.argv[1])
    place = Path(asked["place"])
    spark = session(asked.get("master", "local[2]"), place, asked.get("conf", {}))
    (place / "jvm").write_text(str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    query = begin(spark, asked["format"], asked["options"], place, asked.get("ends", True))
    query.awaitTermination()
    spark.stop()


def session(master: str, place: Path, conf: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession
    from tests.spark.faults import Faulty, FaultyDelta

    builder = SparkSession.builder.master(master)
    more = {"spark.sql.execution.arrow.maxRecordsPerBatch": ROWS_IN_ARROW, "spark.driver.memory": "512m"}
    for key, value in (settings(place) | more | conf).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(Faulty)
    spark.dataSource.register(FaultyDelta)
    return spark


def begin(
    spark: Any,
    format: str,
    options: dict[str, str],
    place: Path,
    ends: bool = True,
    checkpoint: str = "checkpoint",
) -> Any:
    """`ends`: when there are no more files; else it waits for some."""
    frame = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 1).json(str(place / "in"))
    trigger: dict[str, Any] = {"availableNow": True} if ends else {"processingTime": "100 milliseconds"}
    writer = frame.repartition(2).writeStream.format(format).trigger(**trigger)
    writer = writer.option("checkpointLocation", str(place / checkpoint)).options(**options)
    return writer.start()


if __name__ == "__main__":
    main()
