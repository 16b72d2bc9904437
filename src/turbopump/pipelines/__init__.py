"""Topics as tables and streams: RocketMQ's messages in Arrow and Spark.

    from turbopump import pipelines

    pipelines.register(spark)
    spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "T").load()

Nothing heavy is imported before it is used: PyArrow comes with `turbopump[arrow]`, PySpark and Delta with
`turbopump[spark]`.
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
    """Makes the formats known to this session, after a look whether its workers can run them.

    Raises CannotRun, whose text says what to install or to set.
    """
    from turbopump.pipelines.requirements import check

    check(spark)
    for module, name in FORMATS:
        format = getattr(import_module(module), name)
        if not _is_registered(spark, format.name()):
            spark.dataSource.register(format)


def _is_registered(spark: Any, name: str) -> bool:
    """Spark warns of each format that is registered twice. A session of Spark Connect cannot be asked."""
    session = getattr(spark, "_jsparkSession", None)
    return session is not None and bool(session.sessionState().dataSourceManager().dataSourceExists(name))


def watch(spark: Any, tell: Callable[[str], object] = print, *, empty: bool = False) -> Any:
    """One line for each micro-batch of the session's streams: rows, speed, lag, where the time went.

    `empty`: for triggers that found nothing, too. `spark.streams.removeListener` of what it returns ends it.
    """
    from turbopump.pipelines.progress_listener import ProgressListener

    listener = ProgressListener(tell, empty)
    spark.streams.addListener(listener)
    return listener
