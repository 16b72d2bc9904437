"""Transforms dead letters: finds their origin, groups those that failed alike, and makes rows to resend."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.client.admin.dead_letters import MADE_FROM
from turbopump.pipelines.transforms.resend import own_properties
from turbopump.protocol import names, properties

DEAD, RETRY = names.dlq_topic(""), names.retry_topic("")


def with_origin(messages: DataFrame) -> DataFrame:
    """Returns the messages of dead-letter topics, with consumer group, original topic and original id.

    `consumerGroup` gave the message up, `originTopic` is where it was first sent, `originId` its id at the
    producer. The messages must be read with includeProperties.
    """
    return (
        messages.where(F.col("topic").startswith(DEAD))
        .withColumn("consumerGroup", F.substring("topic", len(DEAD) + 1, 1 << 20))
        .withColumn(
            "originTopic", F.coalesce(_pair(properties.RETRY_TOPIC), _pair(properties.DLQ_ORIGIN_TOPIC))
        )
        .withColumn("originId", F.coalesce(_pair(properties.ORIGIN_MESSAGE_ID), F.col("msgId")))
    )


def failures(dead: DataFrame) -> DataFrame:
    """Returns a row per group, topic and tag with the number of dead letters, from rows of `with_origin`."""
    return (
        dead.groupBy("consumerGroup", "originTopic", "tags")
        .agg(
            F.count(F.lit(1)).alias("letters"),
            F.min("storeTimestamp").alias("first"),
            F.max("storeTimestamp").alias("last"),
            F.max("reconsumeTimes").alias("tries"),
            F.avg(F.length("body")).alias("meanSize"),
            F.min("originId").alias("example"),
        )
        .orderBy(F.desc("letters"), "consumerGroup", "originTopic", "tags")
    )


def to_resend(dead: DataFrame, to_topic: bool = False) -> DataFrame:
    """Returns sink rows that send rows of `with_origin` to the retry topic or, with `to_topic`, the original.

    Only the group reads the retry topic; all groups of the topic read the original. Each row names the dead
    letter it was made from and carries no property that delivery and retries added.
    """
    group = F.concat(F.lit(RETRY), F.col("consumerGroup"))
    made_from = F.create_map(F.lit(MADE_FROM), F.col("offsetMsgId"))
    origin = F.create_map(F.lit(properties.RETRY_TOPIC), F.col("originTopic"))
    return dead.select(
        (F.col("originTopic") if to_topic else group).alias("topic"),
        "body",
        "tags",
        "keys",
        F.map_concat(own_properties(), made_from, *([] if to_topic else [origin])).alias("properties"),
    )


def _pair(name: str) -> Column:
    return F.col("properties").getItem(name)
