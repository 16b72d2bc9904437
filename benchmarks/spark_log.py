"""`python -m benchmarks.spark_log`: compares format `rocketmq-log` with Parquet of the same rows.

Our store writes random bodies, and the same rows are written as uncompressed Parquet, a file per queue. Then
both answer one query in turn: number of rows, length of all bodies, latest time. CPU time of the JVM and of
its Python workers is what to compare, since other work on the machine changes wall time; both are shown, as
the minimum of all rounds. Run it with `--cores 1` and `--cores 2` to see how it scales.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from tests.unit.store.lab import Workers, draft

from turbopump import read_log
from turbopump.pipelines.jobs.session import session
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.store.config import StoreConfig
from turbopump.store.store import Store

QUEUES = 4
TICKS = os.sysconf("SC_CLK_TCK")
CASES = {1024: 400_000, 128: 1_200_000}
COLUMNS = "body,storeTimestamp"


class Cost(NamedTuple):
    """Seconds of one query."""

    wall_s: float
    jvm_s: float
    python_s: float

    @property
    def cpu_s(self) -> float:
        return self.jvm_s + self.python_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_log", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the rows; less than 1 for a rough figure"
    )
    parser.add_argument("--dir", help="where the stores are made; default: a temporary directory")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="spark-log-", dir=options.dir))
    try:
        spark = session("spark_log", f"local[{options.cores}]", {"spark.driver.memory": "2g"})
        for size, rows in CASES.items():
            compare(spark, home, size, int(rows * options.share), options.rounds)
        spark.stop()
    finally:
        shutil.rmtree(home)


def compare(spark: Any, home: Path, size: int, rows: int, rounds: int) -> None:
    store, parquet = home / f"store-{size}", home / f"parquet-{size}"
    write_store(store, size, rows)
    write_parquet(store, parquet)

    def log(**options: str) -> Any:
        return (
            spark.read.format("rocketmq-log").options(topic="T", columns=COLUMNS, **options).load(str(store))
        )

    ways: dict[str, Callable[[], Any]] = {
        "Parquet, uncompressed": lambda: spark.read.parquet(str(parquet)),
        "rocketmq-log by queue": log,
        "by queue, batches of 16384": lambda: log(arrowBatchRows="16384"),
        "rocketmq-log by log": lambda: log(scan="log"),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, frame in ways.items():
            cost = measured(spark, frame)
            if number:  # the first round warms up the compilers
                costs[name].append(cost)
    base = best(costs["Parquet, uncompressed"])
    heads = ("wall s", "JVM s", "Python s", "M rows/s", "of Parquet's speed, by CPU (by wall)")
    print(f"\n{f'{rows:,} rows of {size} B':28} {' '.join(f'{head:>9}' for head in heads)}")
    for name in ways:
        one = best(costs[name])
        rate, by_cpu, by_wall = rows / one.wall_s / 1e6, base.cpu_s / one.cpu_s, base.wall_s / one.wall_s
        figures = (one.wall_s, one.jvm_s, one.python_s, rate, by_cpu)
        print(f"{name:28} {' '.join(f'{figure:9.2f}' for figure in figures)} ({by_wall:.2f})")


def best(costs: list[Cost]) -> Cost:
    return Cost(*(min(column) for column in zip(*costs, strict=True)))


def measured(spark: Any, frame: Callable[[], Any]) -> Cost:
    from pyspark.sql import functions as f

    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    before, begin = cpu_of(jvm), time.perf_counter()
    frame().agg(f.count("*"), f.sum(f.length("body")), f.max("storeTimestamp")).collect()
    wall, after = time.perf_counter() - begin, cpu_of(jvm)
    return Cost(wall, after[0] - before[0], after[1] - before[1])


def cpu_of(jvm: int) -> tuple[float, float]:
    """CPU seconds of the JVM, and of all its descendants, ended ones included."""
    found: dict[int, tuple[int, int, int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parent, own, ended = (
            int(fields[1]),
            int(fields[11]) + int(fields[12]),
            int(fields[13]) + int(fields[14]),
        )
        found[int(name)] = (parent, own, ended)
    below, grew = {jvm}, True
    while grew:
        more = {pid for pid, (parent, _, _) in found.items() if parent in below} - below
        below, grew = below | more, bool(more)
    workers = sum(found[pid][1] + found[pid][2] for pid in below - {jvm} if pid in found) + found[jvm][2]
    return found[jvm][1] / TICKS, workers / TICKS


def write_store(root: Path, size: int, rows: int) -> None:
    config = StoreConfig(root_dir=str(root), index_enabled=False)
    store = Store.open(config, SystemDisk(), SystemClock(), Workers())
    queues = [store.queues.queue("T", number) for number in range(QUEUES)]
    for begin in range(0, rows, 1000):
        noise = os.urandom(size * 1000)
        store.log.append(
            [
                draft(
                    queues[number % QUEUES],
                    noise[(number - begin) * size :][:size],
                    key=f"7F0000010A2B18B4AAC2{number:012X}",
                    tag=f"tag{number % 5}",
                    keys=f"order-{number}",
                )
                for number in range(begin, min(begin + 1000, rows))
            ]
        )
    asyncio.run(store.close())


def write_parquet(store: Path, to: Path) -> None:
    to.mkdir()
    for number in range(QUEUES):
        table = read_log(store, "T", queue=number).read_all()
        pq.write_table(table, to / f"{number}.parquet", compression="none", use_dictionary=False)


if __name__ == "__main__":
    main()
