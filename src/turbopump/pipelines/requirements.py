"""What the formats stand on: Java, PySpark, PyArrow, and workers that run the same Python.

In: a session. Out: nothing, or an error that says what to do. Spark itself would say it much later, in the
middle of a worker's traceback.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

MIN_VERSIONS = {"pyspark": (4, 2), "pyarrow": (17, 0)}
FAST_WORKER_CONF = {"spark.python.unix.domain.socket.enabled": "true"}
"""For a new session. Over TCP the driver's second packet of each task waits 40 ms for the first one's
acknowledgement, which is most of a small micro-batch.
"""
CHECK_TIMEOUT_S = 60.0
CHECK_CODE = "import sys, numpy, pyarrow, turbopump.pipelines.schema; print(*sys.version_info[:2])"


class CannotRun(RuntimeError):
    """Something that the formats need is missing or too old; the text has the fix."""


def check(spark: Any) -> None:
    for package, least in MIN_VERSIONS.items():
        _check_version(package, least)
    context = getattr(spark, "sparkContext", None) if _is_classic(spark) else None
    if context is not None and context.master.startswith("local"):
        check_worker(context.pythonExec)


def check_worker(python: str) -> None:
    """Workers are started by this name: it must be a Python of our version that finds our packages."""
    found = shutil.which(python)
    if found is None:
        raise CannotRun(f"workers are to run {python!r}, which is not there: {_set_it()}")
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return
    seen = subprocess.run([found, "-c", CHECK_CODE], capture_output=True, text=True, timeout=CHECK_TIMEOUT_S)
    if seen.returncode != 0:
        why = (seen.stderr.strip().splitlines() or ["it failed"])[-1]
        raise CannotRun(f"workers are to run {found}, which cannot read RocketMQ ({why}): {_set_it()}")
    here = "{} {}".format(*sys.version_info[:2])
    if seen.stdout.strip() != here:
        raise CannotRun(
            f"workers are to run {found}, a Python {seen.stdout.strip().replace(' ', '.')}, and this is "
            f"{here.replace(' ', '.')}: {_set_it()}"
        )


def _check_version(package: str, least: tuple[int, int]) -> None:
    wanted = ".".join(map(str, least))
    try:
        found = version(package)
    except PackageNotFoundError:
        raise CannotRun(f"{package} is not installed: pip install 'turbopump[spark]'") from None
    if tuple(int(part) for part in found.split(".")[:2]) < least:
        raise CannotRun(f"{package} {found} is too old, {wanted} is needed: pip install -U {package}")


def _is_classic(spark: Any) -> bool:
    """A session of Spark Connect has its workers elsewhere."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def _set_it() -> str:
    return f"set PYSPARK_PYTHON={sys.executable} before the session is made"
