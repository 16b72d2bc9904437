"""Dead letters: where they came from, what they have in common, and how they are sent again."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.client.admin.dead_letters import MADE_FROM
from turbopump.pipelines.transforms.resending import own_properties
from turbopump.protocol import names, properties

DEAD, RETRY = names.dlq_topic(""), names.retry_topic("")


def letters(messages: DataFrame) -> DataFrame:
    """Messages of dead-letter topics (read with includeProperties) with `consumerGroup`, which gave them up,
    `originTopic`, to which they were first sent, and `originId`, under which their producer knows them.
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
    """What of `letters` failed together: a row for each group, topic and tag, the largest first."""
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


def again(dead: DataFrame, to_topic: bool = False) -> DataFrame:
    """Of `letters` rows for the sink: to the group alone (its retry topic), or to all that read the topic.
    Each names the letter it was made from, and has nothing of the way that led it here.
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
