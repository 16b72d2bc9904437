"""Drops repeated messages: of those with the same key within a time, the first is kept.

A batch looks at each key's messages in the order in which they were stored. A stream keeps, for each key, the
store times of the messages that it has passed on, for a time to live by the clock of the driver. It compares
store times, not arrival: a message of a queue that lags is dropped only if one with its key was stored within
the time, and passed on otherwise. No row counts as late, so a watermark on store times is never set here.
"""

import pickle
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.state import GroupStateTimeout

from turbopump.runtime.times import parse_duration_s

KEY, AT, SEEN, ROW = "__key", "__at", "__seen", "__row"
WITHOUT_KEY = "place"
PLACE = ("topic", "brokerName", "queueId", "queueOffset")  # unique to each message
MAX_TIMES = 64  # store times remembered per key: a key that comes all day has one for each `within`


def dedupe(
    messages: DataFrame,
    by: Sequence[str] = ("keys",),
    within: str = "10 minutes",
    time: str = "storeTimestamp",
    remember: str | None = None,
) -> DataFrame:
    """Drops a message if one with the same key was kept, and stored no further away than `within`.

    A message without a key is always kept. `remember`: how long a stream remembers a key after it was last
    seen, by the clock (default: twice `within`); a repeated message that comes later than that is passed on.
    """
    keyed = messages.withColumn(KEY, _key(messages, by, time))
    within_us = int(parse_duration_s(within) * 1_000_000)
    if not messages.isStreaming:
        return keyed.groupBy(KEY).applyInArrow(_first_of(time, within_us), keyed.schema).drop(KEY)
    keyed = keyed.withColumn(AT, F.coalesce(F.unix_micros(F.col(time)), F.lit(0)))
    packed = keyed.mapInArrow(_packer(messages.columns), f"`{KEY}` string, `{AT}` bigint, `{ROW}` binary")
    # The watermark is on the time of the micro-batch, which all of its rows have: none can be behind it.
    living_ms = round(parse_duration_s(remember) * 1000) if remember else 2 * within_us // 1000
    timed = packed.withColumn(SEEN, F.current_timestamp()).withWatermark(SEEN, f"{living_ms} milliseconds")
    kept = timed.groupBy(KEY).applyInPandasWithState(
        _passing(within_us),
        f"`{ROW}` binary",
        "times binary",
        "append",
        GroupStateTimeout.EventTimeTimeout,
    )
    return kept.mapInArrow(_unpacker(messages), messages.schema)


def _key(messages: DataFrame, by: Sequence[str], time: str) -> Any:
    """Returns the column of keys as text; unique for a message that lacks its key or its time.

    That text consists of the message's queue and offset.
    """
    lacks = F.col(time).isNull()
    blank = F.lit(True)
    for name in by:
        blank = blank & (F.coalesce(F.trim(F.col(name).cast("string")), F.lit("")) == F.lit(""))
    place = [F.col(name).cast("string") for name in PLACE if name in messages.columns]
    return F.when(lacks | blank, F.concat_ws("\x00", F.lit(WITHOUT_KEY), *place)).otherwise(
        F.concat_ws("\x00", F.lit("key"), *(F.coalesce(F.col(name).cast("string"), F.lit("")) for name in by))
    )


def _has_key(key: str) -> bool:
    return key.partition("\x00")[0] != WITHOUT_KEY


# --- a batch ---------------------------------------------------------------------------------------------


def _first_of(time: str, within_us: int) -> Any:
    def first(group: pa.Table) -> pa.Table:
        if not _has_key(group.column(KEY)[0].as_py()):
            return group
        ordered = group.sort_by(time)
        times = ordered.column(time).cast(pa.int64()).to_pylist()
        return ordered.take(pa.array(list(kept(times, within_us)), pa.int64()))

    return first


def kept(times: Iterable[int | None], within: int) -> Iterator[int]:
    """Yields the positions of rising times that begin a window of length `within`; None always begins one."""
    begin: int | None = None
    for position, time in enumerate(times):
        if begin is None or time is None or time - begin > within:
            begin = time
            yield position


# --- a stream --------------------------------------------------------------------------------------------


def passed(times: Sequence[int], known: Sequence[int], within: int) -> tuple[list[int], list[int]]:
    """Returns positions of times further than `within` from known ones, and the last MAX_TIMES known then.

    >>> passed([100, 30, 35], known=[90], within=10)
    ([1], [30, 90])
    """
    found: list[int] = []
    after = list(known)
    for position in sorted(range(len(times)), key=times.__getitem__):
        at = times[position]
        if all(abs(at - one) > within for one in after):
            found.append(position)
            after.append(at)
    return found, sorted(after)[-MAX_TIMES:]


def _passing(within_us: int) -> Any:
    def pass_on(key: tuple[str], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        if state.hasTimedOut:
            state.remove()
            return
        group = pd.concat(list(frames))
        if not _has_key(key[0]):
            yield group[[ROW]]
            return
        known = array("q", bytes(state.get[0])) if state.exists else array("q")
        positions, after = passed(group[AT].tolist(), known, within_us)
        state.update((array("q", after).tobytes(),))
        state.setTimeoutTimestamp(state.getCurrentProcessingTimeMs() + 1)
        yield group.iloc[positions][[ROW]]

    return pass_on


def _packer(columns: Sequence[str]) -> Any:
    """Returns a function that pickles each row into one column, since pandas would change some types."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = [batch.column(name).to_pylist() for name in columns]
            rows = [pickle.dumps(row) for row in zip(*values, strict=True)]
            arrays = [batch.column(KEY), batch.column(AT), pa.array(rows, pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, [KEY, AT, ROW])

    return pack


def _unpacker(messages: DataFrame) -> Any:
    schema = to_arrow_schema(messages.schema, timezone="UTC")

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [pickle.loads(row) for row in batch.column(0).to_pylist()]
            columns = list(zip(*rows, strict=True)) or [() for _ in schema]
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return unpack
