"""The formats are there by name, and a session whose workers cannot run them is told so at once."""

from __future__ import annotations

import sys

import pytest

from turbopump.pipelines.requirements import CannotRun, check_worker


def test_the_format_is_there_by_name(spark):
    frame = spark.read.format("rocketmq").load()
    assert frame.columns[:4] == ["topic", "brokerName", "queueId", "queueOffset"]


def test_a_worker_of_this_python_will_do():
    check_worker(sys.executable)


def test_a_worker_that_is_not_there_is_named_with_the_fix():
    with pytest.raises(CannotRun, match=r"'python-of-nowhere', does not exist: set PYSPARK_PYTHON="):
        check_worker("python-of-nowhere")


def test_registering_twice_registers_nothing_twice(spark, monkeypatch):
    """Spark prints a warning for each format that is replaced."""
    from turbopump import pipelines

    registered = []
    kind = type(spark.dataSource)
    monkeypatch.setattr(kind, "register", lambda self, source: registered.append(source.name()))
    pipelines.register(spark)
    assert registered == []
