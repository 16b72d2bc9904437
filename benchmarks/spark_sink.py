"""Rows from Spark into a topic, at least once and exactly once: rows a second, on two cores with all else.

`python -m benchmarks.spark_sink [--rows N] [--size N]` where PySpark is installed (`make test-spark`): our
broker in a process of its own, `local[2]`, constant bodies from `spark.range`, as the figure of the Kafka
connector of Spark that we compare with was measured. The first run of each kind warms up.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from typing import Any

from turbopump.client.admin import Admin
from turbopump.protocol.bodies import TopicConfig

from . import generator, report, servers
from .__main__ import keep
from .servers import Running

TOPIC, QUEUES, CORES = "SparkSink", 4, 2
KINDS = ("at-least-once", "exactly-once")


def main() -> None:
    options = arguments().parse_args()
    generator.build()
    server, _ = servers.start(servers.OURS, generator.CACHE / "spark-sink")
    try:
        asyncio.run(create(server))
        rows = [measured(session(), server, kind, options) for kind in KINDS]
    finally:
        server.kill()
    keep("spark_sink", {"machine": report.machine(), "rows": rows}, markdown(rows, options))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_sink", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3)
    return parser


async def create(server: Running) -> None:
    async with Admin(server.place.namesrv) as admin:
        topic = TopicConfig(topicName=TOPIC, readQueueNums=QUEUES, writeQueueNums=QUEUES)
        await admin.topics.create(server.address, topic)


def session() -> Any:
    from pyspark.sql import SparkSession

    from turbopump import pipelines

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    pipelines.register(spark)
    return spark


def measured(spark: Any, server: Running, delivery: str, options: argparse.Namespace) -> dict[str, Any]:
    write(spark, server, delivery, options.rows // 10, options.size)
    speeds = []
    for _ in range(options.rounds):
        began = time.monotonic()
        write(spark, server, delivery, options.rows, options.size)
        speeds.append(options.rows / (time.monotonic() - began))
    return {"delivery": delivery, "speeds": speeds, "median": statistics.median(speeds)}


def write(spark: Any, server: Running, delivery: str, count: int, size: int) -> None:
    rows = spark.range(0, count, 1, CORES).selectExpr(f"REPEAT('x', {size}) AS body")
    writer = rows.write.format("rocketmq").mode("append").option("nameServer", server.place.namesrv)
    writer.option("topic", TOPIC).option("delivery", delivery).option("sendTimeoutMs", "120000").save()


def markdown(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    lines = [[row["delivery"], f"{row['median']:,.0f}", spread(row["speeds"])] for row in rows]
    said = f"{options.rows:,} rows of {options.size} bytes, local[{CORES}], broker on the same cores.\n\n"
    return said + report.table(["delivery", "rows/s", "lowest to highest"], lines) + "\n"


def spread(speeds: list[float]) -> str:
    return f"{min(speeds):,.0f} to {max(speeds):,.0f}"


if __name__ == "__main__":
    main()
