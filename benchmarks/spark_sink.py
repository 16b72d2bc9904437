"""Rows from Spark into a topic, at least once and exactly once: rows a second, on two cores with all else.

`python -m benchmarks.spark_sink [--rows N] [--size N]` where PySpark is installed (`make test-spark`): our
broker in a process of its own, `local[2]`, constant bodies from `spark.range`, as the figure of the Kafka
connector of Spark that we compare with was measured. The first run of each kind warms up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from turbopump.client.admin import Admin
from turbopump.protocol.bodies import TopicConfig

from . import generator, report, servers
from .__main__ import keep
from .push import TICK
from .servers import Running

TOPIC, QUEUES, CORES = "SparkSink", 4, 2
KINDS = ("at-least-once", "exactly-once")
PROCESSES = ("JVM", "Python workers", "broker", "driver")
HEAD = (
    "delivery",
    "rows/s",
    "lowest to highest",
    "CPU us per row, all",
)


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
    spent: Counter[str] = Counter()
    for _ in range(options.rounds):
        began, before = time.monotonic(), cpu(server)
        write(spark, server, delivery, options.rows, options.size)
        speeds.append(options.rows / (time.monotonic() - began))
        spent += Counter(cpu(server)) - Counter(before)
    us = {name: seconds / options.rows / options.rounds * 1e6 for name, seconds in spent.items()}
    return {"delivery": delivery, "speeds": speeds, "median": statistics.median(speeds), "cpu_us": us}


def cpu(server: Running) -> dict[str, float]:
    """Seconds of user and system so far, by kind of process: a worker's are those of its daemon too."""
    parents, seconds, kinds = {}, {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (place / "stat").read_text().rpartition(")")
            fields = rest.split()
            pid = int(place.name)
            parents[pid], kinds[pid] = int(fields[1]), "JVM" if name.endswith("(java") else "Python workers"
            seconds[pid] = sum(map(int, fields[11:15])) / TICK
    spent: Counter[str] = Counter()
    for pid in parents:
        if pid == server.pids[0]:
            spent["broker"] += seconds[pid]
        elif os.getpid() in ancestors(pid, parents) and server.pids[0] not in ancestors(pid, parents):
            spent[kinds[pid]] += seconds[pid]
    spent["driver"] = time.process_time()
    return dict(spent)


def ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while (pid := parents.get(pid, 0)) > 1:
        found.append(pid)
    return found


def write(spark: Any, server: Running, delivery: str, count: int, size: int) -> None:
    rows = spark.range(0, count, 1, CORES).selectExpr(f"REPEAT('x', {size}) AS body")
    writer = rows.write.format("rocketmq").mode("append").option("nameServer", server.place.namesrv)
    writer.option("topic", TOPIC).option("delivery", delivery).option("sendTimeoutMs", "120000").save()


def markdown(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    lines = [
        [
            row["delivery"],
            f"{row['median']:,.0f}",
            spread(row["speeds"]),
            f"{sum(row['cpu_us'].values()):.1f}",
        ]
        + [f"{row['cpu_us'].get(name, 0.0):.1f}" for name in PROCESSES]
        for row in rows
    ]
    said = f"{options.rows:,} rows of {options.size} bytes, local[{CORES}], broker on the same cores.\n\n"
    return said + report.table([*HEAD, *PROCESSES], lines) + "\n"


def spread(speeds: list[float]) -> str:
    return f"{min(speeds):,.0f} to {max(speeds):,.0f}"


if __name__ == "__main__":
    main()
