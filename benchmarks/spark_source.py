"""`python -m benchmarks.spark_source`: compares format `rocketmq` with Spark's own Kafka source.

One session of PySpark 4.2.0 on two cores, with both brokers on the same machine (`benchmarks/kafka.py` builds
the environment); four queues or partitions with the same random bodies; one query, `sum(length(body))`. It
runs as a batch, and as a stream with Trigger.AvailableNow in four micro-batches. Rows per second of a stream
are those that Spark reports (rows of all triggers over the time of all triggers); the time of the whole query
is shown separately, because starting one takes a second whatever it reads. The variants take turns, and the
first rounds warm up and are not counted. Wall time changes with other work on the machine, so CPU time per
row is shown too, by process: the JVM, its Python workers, the broker. Last come triggers that find nothing,
or 100 rows: the minimum cost of a micro-batch. Run it with `--cores 1` and `--cores 2` to see how it scales.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from turbopump import Message, Producer
from turbopump.client.admin import Admin
from turbopump.client.message import MessageQueue
from turbopump.pipelines.jobs.session import session
from turbopump.protocol.bodies import TopicConfig

from . import kafka, report
from .__main__ import write_results
from .clients import systems
from .spark_log import TICKS, cpu_of

CASES = {1024: 400_000, 128: 1_200_000}
MAX_BATCH_BYTES = 512 * 1024  # of bodies in a send
MICRO_BATCHES = 4
WARM_UPS = 3  # rounds that warm up the compilers and are not counted
FEW, TRIGGERS = 100, 30
WAIT_S = 300
OURS, KAFKA = "rocketmq", "kafka"
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.log.level": "FATAL",
    "spark.sql.streaming.noDataProgressEventInterval": "0",
}


class Cost(NamedTuple):
    """Seconds of one query, by process."""

    wall_s: float
    jvm_s: float
    python_s: float
    broker_s: float
    query_s: float
    """From start to end; `wall_s` of a stream is the time of its triggers."""


class Found(NamedTuple):
    """Result of a query: bytes of bodies, and the time that Spark reports for it."""

    size: int
    took_s: float | None = None


class Variant(NamedTuple):
    """A variant of the query: format, options, column of the bodies, process id of the broker."""

    format: str
    options: dict[str, str]
    body: str
    broker: int


def main() -> None:
    kafka.in_our_environment()
    options = arguments().parse_args()
    home = Path(tempfile.mkdtemp(prefix="spark-source-", dir=options.dir))
    ours, theirs = systems.start(systems.OURS, home / "ours"), kafka.start(home / "kafka")
    machine = report.machine()
    load = f"load {machine['load_average_at_start']:.1f} at the start"
    sections = [f"`local[{options.cores}]`, PySpark {kafka.SPARK}, brokers on the same 2 cores, {load}."]
    try:
        spark = session("spark_source", f"local[{options.cores}]", {**SETTINGS, **kafka.settings()})
        for size in options.size or CASES:
            rows = int(CASES[size] * options.share)
            fill(ours, theirs, size, rows)
            sections += compare(spark, ways(ours, theirs, f"T{size}"), size, rows, options.rounds, home)
            if not options.no_triggers:
                sections.append(triggers(spark, ways(ours, theirs, f"T{size}"), size, home))
        spark.stop()
        text = "\n".join(sections) + "\n"
        if options.size or options.share != 1.0:  # too rough to be written to results/
            print(text)
        else:
            write_results(f"spark_source_{options.cores}", {"machine": machine, "told": sections}, text)
    finally:
        ours.process.kill()
        theirs.process.kill()
        shutil.rmtree(home)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_source", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--size", type=int, action="append", choices=CASES, help="bytes of a body; default: both"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the rows; less than 1 for a rough figure"
    )
    parser.add_argument("--no-triggers", action="store_true", help="leave out the cost of a micro-batch")
    parser.add_argument("--dir", help="where the stores are made; default: a temporary directory")
    return parser


def ways(ours: systems.System, theirs: systems.System, topic: str) -> dict[str, Variant]:
    def rocketmq(**more: str) -> Variant:
        given = {"nameServer": ours.address, "subscribe": topic, "startingOffsets": "earliest", **more}
        return Variant(OURS, given, "body", ours.process.pid)

    given = {"kafka.bootstrap.servers": theirs.address, "subscribe": topic, "startingOffsets": "earliest"}
    return {
        "kafka": Variant(KAFKA, given, "value", theirs.process.pid),
        "rocketmq, columns=body": rocketmq(columns="body"),
        "rocketmq, all columns": rocketmq(),
    }


# --- queries ------------------------------------------------------------------------------------


def compare(spark: Any, ways: dict[str, Variant], size: int, rows: int, rounds: int, home: Path) -> list[str]:
    kinds: dict[str, Callable[[Variant], Found]] = {
        "batch": lambda way: batch(spark, way),
        "stream": lambda way: stream(spark, way, rows, home / "checkpoint"),
    }
    costs: dict[tuple[str, str], list[Cost]] = {(kind, name): [] for kind in kinds for name in ways}
    for number in range(WARM_UPS + rounds):
        for kind, name in costs:
            cost = measured(spark, ways[name].broker, partial(kinds[kind], ways[name]), rows * size)
            if number >= WARM_UPS:
                costs[kind, name].append(cost)
    return [
        f"\n{kind}, {rows:,} rows of {size} B\n\n{table({n: costs[kind, n] for n in ways}, rows)}"
        for kind in kinds
    ]


def measured(spark: Any, broker: int, ask: Callable[[], Found], expected: int) -> Cost:
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    before, own, begin = cpu_of(jvm), cpu(broker), time.perf_counter()
    found = ask()
    wall, after = time.perf_counter() - begin, cpu_of(jvm)
    assert found.size == expected, f"{found.size:,} bytes of bodies, {expected:,} were sent"
    used = (after[0] - before[0], after[1] - before[1], cpu(broker) - own)
    return Cost(found.took_s or wall, *used, wall)


def batch(spark: Any, way: Variant) -> Found:
    from pyspark.sql import functions as f

    frame = spark.read.format(way.format).options(**way.options).load()
    return Found(int(frame.agg(f.sum(f.length(way.body))).collect()[0][0]))


def stream(spark: Any, way: Variant, rows: int, checkpoint: Path) -> Found:
    """Runs the query as a stream into a sink that drops its rows; the sum is an observed metric."""
    progress = list(run(spark, way, -(-rows // MICRO_BATCHES), checkpoint, availableNow=True))
    seen = [
        one["observedMetrics"]["seen"]["bytes"] or 0 for one in progress if "seen" in one["observedMetrics"]
    ]
    return Found(sum(seen), sum(one["durationMs"]["triggerExecution"] for one in progress) / 1e3)


def run(spark: Any, way: Variant, most: int, checkpoint: Path, **trigger: Any) -> Iterator[dict[str, Any]]:
    """Runs a query over all data and returns its progress reports."""
    query = begun(spark, {**way.options, "maxOffsetsPerTrigger": str(most)}, way, checkpoint, trigger)
    try:
        assert query.awaitTermination(WAIT_S)
        yield from ({**one, "observedMetrics": observed(one)} for one in query.recentProgress)
    finally:
        query.stop()
        shutil.rmtree(checkpoint)


def begun(
    spark: Any, options: dict[str, str], way: Variant, checkpoint: Path, trigger: dict[str, Any]
) -> Any:
    from pyspark.sql import functions as f

    frame = spark.readStream.format(way.format).options(**options).load()
    seen = frame.select(f.length(way.body).alias("n")).observe("seen", f.sum("n").alias("bytes"))
    writer = seen.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def observed(progress: Any) -> dict[str, dict[str, int]]:
    return {name: row.asDict() for name, row in progress["observedMetrics"].items()}


# --- micro-batches ----------------------------------------------------------------------------


def triggers(spark: Any, ways: dict[str, Variant], size: int, home: Path) -> str:
    lines = []
    for name, way in ways.items():
        few = {**way.options, "maxOffsetsPerTrigger": str(FEW)}
        none = {**way.options, "startingOffsets": "latest"}
        lines.append([name, parts(spark, few, way, home), parts(spark, none, way, home, is_empty=True)])
    return f"\nmedian ms of a trigger, {size} B\n\n{report.table(['', f'{FEW} rows', 'no rows'], lines)}"


def parts(spark: Any, options: dict[str, str], way: Variant, home: Path, is_empty: bool = False) -> str:
    """Medians of the parts of a trigger, from the last triggers of a query."""
    checkpoint = home / "checkpoint"
    query = begun(spark, options, way, checkpoint, {"processingTime": "0 seconds"})
    try:
        found = last_progress(query, is_empty)
    finally:
        query.stop()
        shutil.rmtree(checkpoint)
    names = sorted({name for one in found for name in one})
    each = {name: statistics.median(one.get(name, 0) for one in found) for name in names}
    whole = each.pop("triggerExecution")
    shares = ", ".join(f"{name} {ms:.0f}" for name, ms in each.items() if ms >= 1)
    return f"{whole:.0f} ({shares})"


def last_progress(query: Any, is_empty: bool) -> list[dict[str, float]]:
    seen: dict[str, dict[str, float]] = {}
    deadline = time.monotonic() + WAIT_S
    while len(seen) < 2 * TRIGGERS:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, (
            f"the query must run {2 * TRIGGERS} triggers in {WAIT_S} s, got {len(seen)}"
        )
        time.sleep(0.05)
        for one in query.recentProgress:
            if (one["numInputRows"] == 0) == is_empty:
                seen[f"{one['batchId']} {one['timestamp']}"] = dict(one["durationMs"])
    return list(seen.values())[-TRIGGERS:]


# --- figures ---------------------------------------------------------------------------------------------


def table(costs: dict[str, list[Cost]], rows: int) -> str:
    base = best(costs["kafka"])
    heads = [
        "",
        "k rows/s",
        "JVM us/row",
        "Python",
        "broker",
        "speed, Kafka = 1",
        "by CPU of Spark",
        "by all CPU",
        "s, whole query",
    ]
    lines = []
    for name, several in costs.items():
        one = best(several)
        each = [f"{seconds / rows * 1e6:.2f}" for seconds in one[1:4]]
        ratios = [base.wall_s / one.wall_s, sum(base[1:3]) / sum(one[1:3]), sum(base[1:4]) / sum(one[1:4])]
        cells = [*each, *(f"{ratio:.2f}" for ratio in ratios), f"{one.query_s:.1f}"]
        lines.append([name, f"{rows / one.wall_s / 1e3:.0f}", *cells])
    return report.table(heads, lines)


def best(costs: list[Cost]) -> Cost:
    return Cost(*(min(column) for column in zip(*costs, strict=True)))


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


# --- data ---------------------------------------------------------------------------------


def fill(ours: systems.System, theirs: systems.System, size: int, rows: int) -> None:
    topic = f"T{size}"
    kafka.create(theirs.address, topic)
    kafka.fill(theirs.address, topic, rows, size)
    broker = asyncio.run(create(ours.address, topic))
    each = MAX_BATCH_BYTES // size
    with Producer("spark-source", name_servers=ours.address) as producer:
        for number, bodies in enumerate(parted(kafka.bodies(rows, size), each)):
            queue = MessageQueue(topic, broker, number % kafka.PARTITIONS)
            producer.send_batch([Message(topic, body) for body in bodies], queue=queue)


async def create(name_server: str, topic: str) -> str:
    async with Admin(name_server) as admin:
        broker = (await admin.clusters.layout()).brokers[0]
        queues = kafka.PARTITIONS
        config = TopicConfig(topicName=topic, readQueueNums=queues, writeQueueNums=queues)
        await admin.topics.create(broker.address, config)
        return broker.name


def parted(bodies: Iterable[bytes], count: int) -> Iterator[list[bytes]]:
    source = iter(bodies)
    while several := list(islice(source, count)):
        yield several


if __name__ == "__main__":
    main()
