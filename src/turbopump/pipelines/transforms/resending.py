"""Of stored messages what is sent when they are sent again: not what tells how they were stored."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.client.admin.dead_letters import MADE_FROM, OF_THEIR_WAY
from turbopump.pipelines.sink.rows import NOT_FREE
from turbopump.protocol import properties

SENT = ("body", "tags", "keys", "delayLevel", "deliverTime", "shardingKey")
NOT_KEPT = sorted(NOT_FREE | OF_THEIR_WAY | {MADE_FROM, properties.RETRY_TOPIC})


def sendable(rows: DataFrame) -> DataFrame:
    """The columns that the sink takes, without `topic`: that is for the job to say."""
    kept = [F.col(name) for name in SENT if name in rows.columns]
    if "properties" in rows.columns:
        kept.append(own_properties().alias("properties"))
    return rows.select(*kept)


def own_properties() -> Column:
    """Those that a user has given."""
    return F.map_filter(
        "properties", lambda name, value: ~name.isin(*NOT_KEPT) & (F.trim(value) != F.lit(""))
    )
