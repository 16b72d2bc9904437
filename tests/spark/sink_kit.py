"""Set-up of tests that write to topics with Spark."""

from __future__ import annotations

from collections import Counter

ROWS = 60


def numbers(count: int = ROWS) -> Counter[str]:
    return Counter(str(number) for number in range(count))


def rows(spark, count: int = ROWS):
    return spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS body")


def sink(frame, broker, topic: str, **options: str):
    writer = frame.write.format("rocketmq").mode("append").option("nameServer", broker.namesrv)
    return writer.option("topic", topic).options(**options)


def stream(spark, tmp_path, broker, topic: str, files: int = 3, more: tuple[str, ...] = (), **options: str):
    """Rows of files, one file to a micro-batch, written to the topic and all the way to the end. `more`:
    columns beside the body.
    """
    source = tmp_path / "in"
    if not source.exists():
        for number in range(files):
            part = spark.range(number * 20, number * 20 + 20, 1, 2).selectExpr("CAST(id AS STRING) AS body")
            part.coalesce(1).write.mode("append").json(str(source))
    frame = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 1).json(str(source))
    writer = (
        frame.selectExpr("body", *more)
        .repartition(2)
        .writeStream.format("rocketmq")
        .trigger(availableNow=True)
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).options(**options)
    return writer.option("nameServer", broker.namesrv).option("topic", topic).start()
