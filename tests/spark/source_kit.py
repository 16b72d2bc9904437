"""Set-up of tests that read topics with Spark in batches."""

from __future__ import annotations


def reader(spark, broker, topic: str, **options: str):
    frame = spark.read.format("rocketmq").option("nameServer", broker.namesrv).option("subscribe", topic)
    return frame.options(**options)
