"""Creates the Spark session of a job, after checking what it needs."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turbopump.pipelines import shipping
from turbopump.pipelines.requirements import FAST_WORKER_CONF, CannotRun

QUIET = {
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
CHECK_TIMEOUT_S = 60.0
MIN_JAVA = 17
JAVA_HINT = "apt install openjdk-17-jre-headless, or set JAVA_HOME"
MAX_BATCH_PARTITIONS = "200"
PARTITIONS, INITIAL = (
    "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum",
)


def session(name: str, master: str, conf: Mapping[str, str], archive: Path | None = None) -> Any:
    """Returns a Spark session with our formats registered, and workers that run this Python.

    Raises CannotRun. `archive`: packages for executors that do not have ours.
    """
    check()
    shipped = shipping.settings(archive) if archive else {}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    from turbopump import pipelines

    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**QUIET, **FAST_WORKER_CONF, **shipped, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _set_partitions(spark, conf)
    pipelines.register(spark)
    return spark


def _set_partitions(spark: Any, conf: Mapping[str, str]) -> None:
    """Sets the number of shuffle partitions unless `conf` does: for streams the cores, for batches many.

    A stream keeps one state store per shuffle partition, and starts a task for it in every batch. A batch
    begins with many partitions, and Spark merges the small ones.
    """
    if PARTITIONS not in conf:
        spark.conf.set(PARTITIONS, str(spark.sparkContext.defaultParallelism))
        spark.conf.set(INITIAL, conf.get(INITIAL, MAX_BATCH_PARTITIONS))


def check() -> None:
    """Raises CannotRun unless PySpark and a new enough Java are installed."""
    if find_spec("pyspark") is None:
        raise CannotRun("pipelines need PySpark: pip install 'turbopump[spark]'")
    found = java_version(_java_output())
    if found is None:
        raise CannotRun(f"Spark needs Java {MIN_JAVA} or newer, and there is none: {JAVA_HINT}")
    if found < MIN_JAVA:
        raise CannotRun(f"Spark needs Java {MIN_JAVA} or newer, got Java {found}: {JAVA_HINT}")


def java_version(output: str) -> int | None:
    """Returns the major version in the output of `java -version`; None if there is no Java.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_402"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def _java_output() -> str:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java:
        return ""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=CHECK_TIMEOUT_S)
    except OSError:
        return ""
    return done.stderr + done.stdout if done.returncode == 0 else ""
