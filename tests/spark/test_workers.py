"""Workers of Spark: what they hold after a first task, and what a bare Python gets from us."""

import gc
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from tests.interop import topics
from tests.spark.clusters import standalone
from tests.spark.conftest import Start, need_spark

from turbopump.pipelines import shipping
from turbopump.pipelines.worker_memory import freeze_after


@pytest.fixture
def in_a_task() -> Iterator[None]:
    TaskContext._setTaskContext(TaskContext())
    yield
    TaskContext._setTaskContext(None)
    gc.unfreeze()


@pytest.mark.usefixtures("in_a_task")
def test_a_worker_settles_behind_the_last_row_of_its_first_task() -> None:
    rows = freeze_after([1, 2])
    assert [next(rows), next(rows)] == [1, 2]
    assert not gc.get_freeze_count()
    assert list(rows) == []
    assert gc.get_freeze_count()


@pytest.mark.usefixtures("in_a_task")
def test_it_settles_once() -> None:
    list(freeze_after([1]))
    kept = [[] for _ in range(100)]
    first = gc.get_freeze_count()
    list(freeze_after([1]))
    assert gc.get_freeze_count() <= first
    assert len(kept) == 100


def test_no_other_process_is_touched() -> None:
    assert list(freeze_after([1, 2])) == [1, 2]
    assert not gc.get_freeze_count()


# --- a bare Python -----------------------------------------------------------------------------------------

EVERY_FORMAT = """
import sys
import pyspark_rocketmq, pyspark_rocketmq_delta, pyspark_rocketmq_log
import pyarrow as pa
from deltalake import DeltaTable
from turbopump.pipelines.lake import files, table
from turbopump.pipelines.lake.table_reader import FilePartition, TableReader
from turbopump.pipelines.sink import at_least_once, exactly_once, spark
from turbopump.pipelines.source import reader
from pyspark.sql.types import LongType, StructType

path = sys.argv[1]
batch = pa.record_batch({"id": [1, 2, 3]})
table.commit(path, (), [files.write(path, (), "x", [batch])], "q", 0)
read = TableReader(path, None, StructType().add("id", LongType()))
rows = [row for part in read.partitions() for got in read.read(part) for row in got.to_pylist()]
assert [row["id"] for row in rows] == [1, 2, 3], rows
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """Of the same version, with nothing installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


def test_what_is_packed_is_all_that_every_format_needs_in_a_bare_python(
    tmp_path: Path, bare_python: str
) -> None:
    """Links to what `pack` would put into the archive, and PySpark, which executors have."""
    import pyspark

    packed = tmp_path / "turbopump"
    packed.mkdir()
    for place in shipping.package_paths(shipping.NEEDED, shipping.USEFUL).values():
        (packed / place.name).symlink_to(place)
        libraries = place.with_name(f"{place.name}.libs")
        if libraries.is_dir():
            (packed / libraries.name).symlink_to(libraries)
    ours = Path(pyspark.__file__).parent / "python" / "lib"
    path = [str(packed), *map(str, ours.glob("*.zip"))]
    done = subprocess.run(
        [bare_python, "-c", EVERY_FORMAT, str(tmp_path / "table")],
        env={"PYTHONPATH": os.pathsep.join(path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_package_that_is_needed_and_missing_is_named() -> None:
    with pytest.raises(shipping.CannotShip, match="not installed: no_such_package"):
        shipping.package_paths(("no_such_package",), ())


JOB = """
import json, sys
from pyspark.sql import SparkSession
from turbopump import pipelines
from turbopump.pipelines import shipping

archive, master, python, servers, topic, home = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.pyspark.python", python)
settings = {"spark.executor.memory": "600m", "spark.ui.enabled": "false", **shipping.settings(archive)}
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
pipelines.register(spark)
rows = spark.range(0, 60, 1, 2).selectExpr("CAST(id AS STRING) AS body", "id % 3 AS part")
rows.write.format("rocketmq-delta").mode("append").option("partitionBy", "part").save(f"{home}/table")
delta = spark.read.format("rocketmq-delta").load(f"{home}/table")
for delivery in ("at-least-once", "exactly-once"):
    sink = delta.select("body").write.format("rocketmq").mode("append").option("delivery", delivery)
    sink.option("nameServer", servers).option("topic", topic).save()
read = spark.read.format("rocketmq").option("nameServer", servers).option("subscribe", topic).load()
log = spark.read.format("rocketmq-log").option("topic", topic).load(f"{home}/store")
place = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).first()
print(json.dumps([delta.count(), read.count(), log.count(), place]))
spark.stop()
"""


@pytest.mark.long
def test_every_format_runs_on_executors_with_a_bare_python(
    start: Start, bare_python: str, tmp_path: Path
) -> None:
    need_spark()
    broker = start()
    topics.create(broker, "BareWorkers", 4)
    (tmp_path / "store").symlink_to(broker.store_dir)
    archive = tmp_path / "turbopump.tgz"
    shipping.pack(archive)
    with tarfile.open(archive) as tar:  # for the driver's own workers, which plan with the same bare Python
        tar.extractall(tmp_path / "driver", filter="data")
    env = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(tmp_path / "driver"),
        "PYSPARK_PYTHON": bare_python,  # it goes before spark.pyspark.python
    }
    with standalone(tmp_path, bare_python) as master:
        arguments = [str(archive), master, bare_python, broker.namesrv, "BareWorkers", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-c", JOB, *arguments],
            cwd=tmp_path,
            env=os.environ | env,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    *counts, python = json.loads(done.stdout.splitlines()[-1])
    assert counts == [60, 120, 120]
    assert python == bare_python
