"""Topics as tables and streams: RocketMQ's messages in Arrow and Spark.

    from turbopump import pipelines

    pipelines.register(spark)
    spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "T").load()

Heavy packages are imported when they are first used: PyArrow comes with `turbopump[arrow]`, PySpark and Delta
with `turbopump[spark]`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

FORMATS = (
    ("turbopump.pipelines.rocketmq", "RocketMq"),
    ("turbopump.pipelines.log_source", "RocketMqLog"),
    ("turbopump.pipelines.lake.spark", "RocketMqDelta"),
)
"""Module and class of each format."""


def register(spark: Any) -> None:
    """Registers the formats `rocketmq`, `rocketmq-log` and `rocketmq-delta` with the Spark session.

    Checks first that the session's workers can run them. Raises CannotRun, whose text says what to install or
    to set.
    """
    from turbopump.pipelines.requirements import check

    check(spark)
    for module, name in FORMATS:
        format = getattr(import_module(module), name)
        if not _is_registered(spark, format.name()):
            spark.dataSource.register(format)


def _is_registered(spark: Any, name: str) -> bool:
    """Tells whether the session has the format; False for Spark Connect, which cannot be asked.

    Spark warns about a format that is registered twice.
    """
    session = getattr(spark, "_jsparkSession", None)
    return session is not None and bool(session.sessionState().dataSourceManager().dataSourceExists(name))


def watch(spark: Any, tell: Callable[[str], object] = print, *, empty: bool = False) -> Any:
    """Reports a line per micro-batch of the session's streams to `tell`; returns the listener, to remove it.

    `tell` receives each line. `empty`: also for triggers that found nothing. To end it, give the returned
    listener to `spark.streams.removeListener`.
    """
    from turbopump.pipelines.progress_listener import ProgressListener

    listener = ProgressListener(tell, empty)
    spark.streams.addListener(listener)
    return listener
