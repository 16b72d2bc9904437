"""One Spark session for all tests, our servers as processes, and what this machine lacks.

`spark`: a session on two cores, made once; a second one would cost ten seconds. `broker`: a name server and a
broker of ours on free ports, for tests that add topics of their own; `start` gives one that may be stopped,
killed and started again, of ours or Apache's. Without Java or PySpark a test is skipped and counted; where
CI=true it is a failure.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.interop import artifacts, peers

Start = Callable[..., peers.Cluster]

_left_out: dict[str, int] = {}
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


def _judge_missing() -> Iterator[None]:
    try:
        yield
    except artifacts.Missing as missing:
        reason = str(missing).splitlines()[0]
        if os.environ.get("CI") == "true":
            pytest.fail(f"must not be left out under CI: {reason}", pytrace=False)
        _left_out[reason] = _left_out.get(reason, 0) + 1
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from _judge_missing()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield from _judge_missing()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason, count in _left_out.items():
        terminalreporter.line(f"spark: skipped: {reason} ({count} tests)")


def need_spark() -> None:
    if shutil.which("java") is None:
        raise artifacts.Missing("Spark needs Java 17 or newer, and there is no java here")
    if importlib.util.find_spec("pyspark") is None:
        raise artifacts.Missing("PySpark is not installed here: `make test-spark` does it")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    need_spark()
    from pyspark.sql import SparkSession

    from turbopump import pipelines

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for key, value in settings(tmp_path_factory.mktemp("spark")).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")  # the errors that tests provoke are seen as exceptions
    pipelines.register(session)
    yield session
    session.stop()


def settings(home: Path) -> dict[str, str]:
    from turbopump.pipelines.requirements import FAST_WORKER_CONF

    return {
        **FAST_WORKER_CONF,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(home / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.Cluster]:
    """For all tests that leave it running and use topics of their own."""
    cluster = peers.start(peers.OURS, peers.place(tmp_path_factory.mktemp("broker")))
    yield cluster
    cluster.discard()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start()`: a cluster for this test alone; `start("4.9.7", {"fileReservedTime": "1"})`."""
    running: list[peers.Cluster] = []

    def started(kind: str = peers.OURS, conf: Mapping[str, str] | None = None) -> peers.Cluster:
        where = peers.place(tmp_path / f"cluster-{len(running)}")
        running.append(peers.start(kind, where, conf))
        return running[-1]

    yield started
    for cluster in running:
        cluster.discard()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"Spark{next(_numbers)}"
