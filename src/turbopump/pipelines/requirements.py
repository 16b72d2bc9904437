"""Checks what the formats need: Java, PySpark, PyArrow, and workers that run the same Python.

In: a session. Out: nothing, or an error that says what to do. Spark itself would report it much later, in the
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
"""Settings for a new session. Over TCP the driver's second packet of each task waits 40 ms for the
acknowledgement of the first, which is most of the time of a small micro-batch.
"""
CHECK_TIMEOUT_S = 60.0
CHECK_CODE = "import sys, numpy, pyarrow, turbopump.pipelines.schema; print(*sys.version_info[:2])"


class CannotRun(RuntimeError):
    """A package or program that the formats need is missing or too old; the text has the fix."""


def check(spark: Any) -> None:
    """Checks package versions, and for a local session its workers. Raises CannotRun."""
    for package, least in MIN_VERSIONS.items():
        _check_version(package, least)
    context = getattr(spark, "sparkContext", None) if _is_classic(spark) else None
    if context is not None and context.master.startswith("local"):
        check_worker(context.pythonExec)


def check_worker(python: str) -> None:
    """Checks that this command starts a Python of the same version that finds our packages. Raises CannotRun.

    Spark starts its workers by this command.
    """
    found = shutil.which(python)
    if found is None:
        raise CannotRun(f"the Python of Spark's workers, {python!r}, does not exist: {_fix()}")
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return
    seen = subprocess.run([found, "-c", CHECK_CODE], capture_output=True, text=True, timeout=CHECK_TIMEOUT_S)
    if seen.returncode != 0:
        why = (seen.stderr.strip().splitlines() or ["it failed"])[-1]
        raise CannotRun(f"the Python of Spark's workers, {found}, cannot run the formats ({why}): {_fix()}")
    here = "{} {}".format(*sys.version_info[:2])
    if seen.stdout.strip() != here:
        raise CannotRun(
            f"Spark's workers must run Python {here.replace(' ', '.')} as this process does, got "
            f"{seen.stdout.strip().replace(' ', '.')} ({found}): {_fix()}"
        )


def _check_version(package: str, least: tuple[int, int]) -> None:
    wanted = ".".join(map(str, least))
    try:
        found = version(package)
    except PackageNotFoundError:
        raise CannotRun(f"{package} is not installed: pip install 'turbopump[spark]'") from None
    if tuple(int(part) for part in found.split(".")[:2]) < least:
        raise CannotRun(f"{package} must be {wanted} or newer, got {found}: pip install -U {package}")


def _is_classic(spark: Any) -> bool:
    """Tells whether the session runs in this process; one of Spark Connect has its workers elsewhere."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def _fix() -> str:
    return f"set PYSPARK_PYTHON={sys.executable} before the session is made"
