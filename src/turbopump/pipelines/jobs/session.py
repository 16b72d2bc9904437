"""A Spark session for a job, and what is missing for one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turbopump.pipelines import shipping
from turbopump.pipelines.ground import QUICK, CannotRun

QUIET = {
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOOK_TIMEOUT_S = 60.0


def session(name: str, master: str, conf: Mapping[str, str], archive: Path | None = None) -> Any:
    """With our formats registered, and workers that run this Python. `archive`: for executors that do not
    have our packages. Raises CannotRun.
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
    for key, value in {**QUIET, **QUICK, **shipped, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    pipelines.register(spark)
    return spark


def check() -> None:
    """What is wanted before a session can be made."""
    if find_spec("pyspark") is None:
        raise CannotRun("pipelines need PySpark: pip install 'turbopump[spark]'")
    if not _has_java():
        raise CannotRun("Spark needs Java 17 or newer: apt install openjdk-17-jre-headless, or set JAVA_HOME")


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java:
        return False
    try:
        return subprocess.run([java, "-version"], capture_output=True, timeout=LOOK_TIMEOUT_S).returncode == 0
    except OSError:
        return False
