"""Counts messages by topic, queue, tag or key: numbers, sizes, rates and skew."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

BY = ("topic",)
TIME = "storeTimestamp"


def stats(messages: DataFrame, by: Sequence[str] = BY) -> DataFrame:
    """Returns a row per value of the columns `by`, with its messages, bytes, sizes, rate and share.

    The columns include first and last time, messages per second, and `share` of all messages. `brokerName`
    may be null, which is a group of its own then.
    """
    size = F.length("body")
    grouped = messages.groupBy(*by).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum(size).alias("bytes"),
        F.avg(size).alias("meanSize"),
        F.percentile_approx(size, 0.5).alias("medianSize"),
        F.percentile_approx(size, 0.99).alias("p99Size"),
        F.max(size).alias("largest"),
        F.min(TIME).alias("first"),
        F.max(TIME).alias("last"),
    )
    whole = messages.agg(F.count(F.lit(1)).alias("__all"))
    return (
        grouped.crossJoin(whole)
        .withColumn("perSecond", F.col("messages") / _seconds(F.col("first"), F.col("last")))
        .withColumn("share", F.col("messages") / F.col("__all"))
        .drop("__all")
        .orderBy(F.desc("messages"), *by)
    )


def skew(counted: DataFrame) -> DataFrame:
    """Returns one row that says how uneven the groups of `stats` are, in its columns `skew` and `variation`.

    A skew of 1 is even; n: the largest group has n times the average.
    """
    return counted.agg(
        F.count(F.lit(1)).alias("groups"),
        F.coalesce(F.sum("messages"), F.lit(0)).alias("messages"),
        F.max("messages").alias("largest"),
        (F.max("messages") / F.avg("messages")).alias("skew"),
        (F.stddev_pop("messages") / F.avg("messages")).alias("variation"),
    )


def rates(messages: DataFrame, every: str = "1 minute", by: Sequence[str] = BY) -> DataFrame:
    """Returns a row per interval and group with its messages and bytes, by store time."""
    spans = messages.groupBy(F.window(TIME, every).alias("span"), *by).agg(
        F.count(F.lit(1)).alias("messages"), F.sum(F.length("body")).alias("bytes")
    )
    return spans.select(F.col("span.start").alias("start"), *by, "messages", "bytes").orderBy("start", *by)


def one_by_key(messages: DataFrame) -> DataFrame:
    """Returns a row per message and key, in the column `key`; for a message without keys a row with null."""
    return messages.withColumn("key", F.explode_outer(F.split("keys", " +")))


def _seconds(first: Column, last: Column) -> Column:
    span = last.cast("double") - first.cast("double")
    return F.greatest(span, F.lit(0.001))
