"""Prepares stored messages for sending them again, without the properties that storing added."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.client.admin.dead_letters import DELIVERY_PROPERTIES, MADE_FROM
from turbopump.pipelines.sink.rows import NOT_FREE
from turbopump.protocol import properties

SENT = ("body", "tags", "keys", "delayLevel", "deliverTime", "shardingKey")
NOT_KEPT = sorted(NOT_FREE | DELIVERY_PROPERTIES | {MADE_FROM, properties.RETRY_TOPIC})
QUEUE = ("topic", "brokerName", "queueId")
OFFSET, TIME, AT = "queueOffset", "storeTimestamp", "__at"


def in_queue_order(rows: DataFrame, in_one_task: bool = False) -> DataFrame:
    """Sorts rows and gives them sharding keys, so that the sink keeps the order of each original queue.

    Each row gets a sharding key, and a queue is in one task. A message without a sharding key of its own gets
    the queue it was in as one: what one queue held goes to one queue. The tasks of a stream read each queue
    in order. Rows of files are sorted by offset within a queue, and across queues by time; where the offset
    is unknown, by time in one task.
    """
    if not {OFFSET, *QUEUE} <= set(rows.columns):
        is_sorted = TIME in rows.columns and not rows.isStreaming
        return rows.repartition(1).sortWithinPartitions(TIME) if is_sorted else rows
    keyed = rows if "shardingKey" in rows.columns else rows.withColumn("shardingKey", _sharding_key(rows))
    if rows.isStreaming:
        return keyed
    # A message never comes before one with a smaller offset in its queue, whatever the broker's clock did.
    so_far = Window.partitionBy(*QUEUE).orderBy(OFFSET)
    timed = keyed.withColumn(AT, F.max(TIME).over(so_far) if TIME in rows.columns else F.lit(0))
    order = (AT, *QUEUE, OFFSET)
    # Not orderBy: Spark would read all rows once more to sample their distribution, and count them twice.
    parted = timed.repartition(1) if in_one_task else timed.repartition(*QUEUE)
    return parted.sortWithinPartitions(*order)


def _sharding_key(rows: DataFrame) -> Column:
    queue = F.concat_ws("@", *(F.col(name).cast("string") for name in QUEUE))
    if "properties" not in rows.columns:
        return queue
    own = F.col("properties").getItem(properties.SHARDING_KEY)
    return F.coalesce(F.when(own != F.lit(""), own), queue)


def sendable(rows: DataFrame) -> DataFrame:
    """Selects the columns that the sink takes, without `topic`, which the job decides."""
    kept = [F.col(name) for name in SENT if name in rows.columns]
    if "properties" in rows.columns:
        kept.append(own_properties().alias("properties"))
    return rows.select(*kept)


def own_properties() -> Column:
    """Returns the column `properties` without blank ones and those that storing or delivery added."""
    return F.map_filter(
        "properties", lambda name, value: ~name.isin(*NOT_KEPT) & (F.trim(value) != F.lit(""))
    )
