"""Compares rows from Spark into a topic, at least once and exactly once, with Spark's own Kafka sink.

`python -m benchmarks.spark_sink [--rows N]`: our broker and Kafka, each in its own process and used in turns,
one session of `local[2]`, constant bodies from `spark.range`, all on the same two cores.
`benchmarks/kafka.py` builds the environment: a Python with the release of Spark for which Kafka's connector
is made. The first run of each kind warms up; the kinds take turns, so that other work on the machine affects
all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbopump.client.admin import Admin
from turbopump.pipelines.jobs.session import session
from turbopump.protocol.bodies import TopicConfig

from . import generator, kafka, report, servers
from .__main__ import write_results
from .push import TICK
from .servers import Running

TOPIC, QUEUES, CORES = "SparkSink", 4, 2
AT_LEAST_ONCE, EXACTLY_ONCE, KAFKA = "rocketmq, at-least-once", "rocketmq, exactly-once", "kafka"
KINDS = (KAFKA, AT_LEAST_ONCE, EXACTLY_ONCE)
PROCESSES = ("JVM", "Python workers", "broker", "driver")
HEAD = ("bytes", "sink", "rows/s", "lowest to highest", "of Kafka's", "CPU us per row", *PROCESSES)


def main() -> None:
    options = arguments().parse_args()
    kafka.in_our_environment()
    generator.build()
    spark = session("spark_sink", f"local[{CORES}]", kafka.settings())
    rows = [row for size in options.sizes for row in of_size(spark, size, options)]
    write_results("spark_sink", {"machine": report.machine(), "rows": rows}, markdown(rows, options))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_sink", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 128], help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def of_size(spark: Any, size: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures bodies of one size. Stores start empty, since a large log would be written back meanwhile."""
    home = generator.CACHE / "spark-sink"
    theirs = kafka.start(home / "kafka")
    ours, _ = servers.start(servers.OURS, home / "ours")
    BROKERS.update((ours.pids[0], theirs.process.pid))
    try:
        kafka.create(theirs.address, TOPIC, QUEUES)
        asyncio.run(create(ours))
        sinks = {
            AT_LEAST_ONCE: Sink("rocketmq", ours.pids[0], options_of(ours, "at-least-once")),
            EXACTLY_ONCE: Sink("rocketmq", ours.pids[0], options_of(ours, "exactly-once")),
            KAFKA: Sink(
                "kafka", theirs.process.pid, {"kafka.bootstrap.servers": theirs.address, "topic": TOPIC}
            ),
        }
        return measured(spark, sinks, size, options)
    finally:
        ours.kill()
        theirs.process.kill()
        shutil.rmtree(home, ignore_errors=True)


BROKERS: set[int] = set()


@dataclass(frozen=True)
class Sink:
    """A sink of Spark, and the process id of the broker behind it."""

    format: str
    broker: int
    options: dict[str, str]


def options_of(server: Running, delivery: str) -> dict[str, str]:
    return {
        "nameServer": server.place.namesrv,
        "topic": TOPIC,
        "delivery": delivery,
        "sendTimeoutMs": "120000",
    }


async def create(server: Running) -> None:
    async with Admin(server.place.namesrv) as admin:
        topic = TopicConfig(topicName=TOPIC, readQueueNums=QUEUES, writeQueueNums=QUEUES)
        await admin.topics.create(server.address, topic)


def measured(
    spark: Any, sinks: dict[str, Sink], size: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    speeds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    spent: dict[str, dict[str, float]] = {kind: dict.fromkeys(PROCESSES, 0.0) for kind in KINDS}
    for kind in KINDS:
        write(spark, sinks[kind], options.rows // 4, size)
    for _ in range(options.rounds):
        for kind in KINDS:
            broker = sinks[kind].broker
            began, before = time.monotonic(), cpu(broker)
            write(spark, sinks[kind], options.rows, size)
            speeds[kind].append(options.rows / (time.monotonic() - began))
            after = cpu(broker)
            for name in PROCESSES:
                spent[kind][name] += after[name] - before[name]
    base = statistics.median(speeds[KAFKA])
    return [row(kind, size, speeds[kind], base, spent[kind], options) for kind in KINDS]


def row(
    kind: str,
    size: int,
    speeds: list[float],
    base: float,
    spent: dict[str, float],
    options: argparse.Namespace,
) -> dict[str, Any]:
    median = statistics.median(speeds)
    us = {name: seconds / options.rows / options.rounds * 1e6 for name, seconds in spent.items()}
    return {
        "size": size,
        "sink": kind,
        "speeds": speeds,
        "median": median,
        "ratio": median / base,
        "cpu_us": us,
    }


def cpu(broker: int) -> dict[str, float]:
    """CPU seconds so far, by kind of process. Those of ended processes count as Python workers'."""
    parents, seconds, ended, kinds = {}, {}, {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (place / "stat").read_text().rpartition(")")
            fields = rest.split()
            pid = int(place.name)
            parents[pid], kinds[pid] = int(fields[1]), "JVM" if name.endswith("(java") else "Python workers"
            seconds[pid], ended[pid] = (sum(map(int, fields[at : at + 2])) / TICK for at in (11, 13))
    spent = {"driver": time.process_time(), "broker": seconds[broker], "JVM": 0.0, "Python workers": 0.0}
    for pid in parents:
        above = ancestors(pid, parents)
        if os.getpid() in above and pid not in BROKERS and BROKERS.isdisjoint(above):
            spent[kinds[pid]] += seconds[pid]
            spent["Python workers"] += ended[pid]
    return spent


def ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while (pid := parents.get(pid, 0)) > 1:
        found.append(pid)
    return found


def write(spark: Any, sink: Sink, count: int, size: int) -> None:
    body = "body" if sink.format == "rocketmq" else "value"
    rows = spark.range(0, count, 1, CORES).selectExpr(f"REPEAT('x', {size}) AS {body}")
    rows.write.format(sink.format).mode("append").options(**sink.options).save()


def markdown(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    lines = [
        [
            str(row["size"]),
            row["sink"],
            f"{row['median']:,.0f}",
            f"{min(row['speeds']):,.0f} to {max(row['speeds']):,.0f}",
            f"{row['ratio']:.2f}x",
            f"{sum(row['cpu_us'].values()):.1f}",
            *(f"{row['cpu_us'].get(name, 0.0):.1f}" for name in PROCESSES),
        ]
        for row in rows
    ]
    where = f"local[{CORES}], PySpark {kafka.SPARK}, brokers on the same {CORES} cores"
    return f"{options.rows:,} rows, {where}.\n\n" + report.table([*HEAD], lines) + "\n"


if __name__ == "__main__":
    main()
