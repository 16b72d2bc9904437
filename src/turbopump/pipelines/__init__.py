"""Topics as tables and streams: RocketMQ's messages in Arrow and Spark.

    from turbopump import pipelines

    pipelines.register(spark)
    spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("subscribe", "T").load()

Nothing heavy is imported before it is used: PyArrow comes with `turbopump[arrow]`, PySpark and Delta with
`turbopump[spark]`.
"""

from importlib import import_module
from typing import Any

FORMATS = (
    ("turbopump.pipelines.rocketmq", "RocketMq"),
    ("turbopump.pipelines.lake.spark", "RocketMqDelta"),
)
"""Module and class of each format."""


def register(spark: Any) -> None:
    """Makes the formats known to this session, after a look whether its workers can run them.

    Raises CannotRun, whose text says what to install or to set.
    """
    from turbopump.pipelines.ground import check

    check(spark)
    for module, name in FORMATS:
        spark.dataSource.register(getattr(import_module(module), name))
