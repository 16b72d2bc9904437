"""Of messages with the same key within a time, the first."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from turbopump.pipelines.moments import seconds_of

KEY = "__key"
PLACE = ("topic", "brokerName", "queueId", "queueOffset")  # of a message: no other has the same


def dedupe(
    messages: DataFrame,
    by: Sequence[str] = ("keys",),
    within: str = "10 minutes",
    time: str = "storeTimestamp",
) -> DataFrame:
    """Keeps a message unless one with the same key was kept, and is not older than `within`. A message
    without a key is always kept. A stream remembers keys for so long, and waits no longer for late ones.
    """
    keyed = messages.withColumn(KEY, _key(messages, by))
    if messages.isStreaming:
        kept = keyed.withWatermark(time, within).dropDuplicatesWithinWatermark([KEY])
        return kept.drop(KEY)
    first = _first_of(time, int(seconds_of(within) * 1_000_000))
    return keyed.groupBy(KEY).applyInArrow(first, keyed.schema).drop(KEY)


def _key(messages: DataFrame, by: Sequence[str]) -> Any:
    """Text, or where it is missing the place of the message, which is its own alone."""
    absent = [F.col(name).isNull() for name in by]
    lacks = absent[0]
    for one in absent[1:]:
        lacks = lacks & one
    place = [F.col(name).cast("string") for name in PLACE if name in messages.columns]
    return F.when(lacks, F.concat_ws("\x00", F.lit("place"), *place)).otherwise(
        F.concat_ws("\x00", F.lit("key"), *(F.coalesce(F.col(name).cast("string"), F.lit("")) for name in by))
    )


def _first_of(time: str, within_us: int) -> Any:
    def first(group: pa.Table) -> pa.Table:
        ordered = group.sort_by(time)
        moments = ordered.column(time).cast(pa.int64()).to_pylist()
        return ordered.take(pa.array(list(kept(moments, within_us)), pa.int64()))

    return first


def kept(moments: Iterable[int | None], within: int) -> Iterator[int]:
    """Which of the moments, in order, begin a window: positions."""
    begin: int | None = None
    for position, moment in enumerate(moments):
        if begin is None or moment is None or moment - begin > within:
            begin = moment
            yield position
