"""Reads a store directory as Arrow record batches, without a broker.

The store may be live, stopped or copied, ours or Apache's.

    import turbopump

    turbopump.read_log("data/store", "OrderTopic").read_pandas()

`files.py`, `queue.py` and `batch_queue.py` say what the directory holds, `plan.py` which of it answers a
query, `partitions.py` brings the two together, `store_reader.py` reads.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

try:
    import pyarrow as pa
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "reading a store needs PyArrow: pip install 'turbopump[arrow]'", name="pyarrow"
    ) from None

from turbopump.filter import wanted_tags
from turbopump.pipelines.log.files import NoStore, StoreFiles
from turbopump.pipelines.log.options import positions_of
from turbopump.pipelines.log.partitions import partitions_of
from turbopump.pipelines.log.plan import NoSuchTopic, OffsetsGone, QueuePositions, StoreQuery
from turbopump.pipelines.log.store_reader import BATCH_ROWS, RecordsLost, RowFormat, StoreReader
from turbopump.pipelines.options import EARLIEST, LATEST
from turbopump.pipelines.schema import BadColumn, schema_of
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.times import epoch_ms

__all__ = ["BadColumn", "NoStore", "NoSuchTopic", "OffsetsGone", "RecordsLost", "read_log"]

Offsets = Mapping[str, Mapping[int | str, int]]
Moment = datetime | int


def read_log(
    directory: str | os.PathLike[str],
    topic: str | Iterable[str] = (),
    *,
    queue: int | Iterable[int] | None = None,
    columns: Sequence[str] = (),
    properties: bool = False,
    pattern: str = "",
    system_topics: bool = False,
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    tags: str | Iterable[str] = (),
    key: str = "",
    scan: str = "",
    kafka_names: bool = False,
    broker: str | None = None,
    batch_rows: int = BATCH_ROWS,
    fail_on_data_loss: bool = True,
) -> pa.RecordBatchReader:
    """Returns the messages of a store directory as Arrow record batches, without a broker.

    Reads what is stored at the time of the call, and nothing that is stored later. Rows come queue by queue,
    each queue in its order; with `scan="log"` in the order in which they were stored.

        read_log("store", "T").read_pandas()                            # pandas
        polars.from_arrow(read_log("store", "T").read_all())            # polars
        duckdb.from_arrow(read_log("store", "T")).aggregate("count(*)") # DuckDB, as a stream

        directory: the store, with commitlog/ in it, or a data directory of `turbopump up`
        topic, pattern: names, or a regular expression; neither: all but the broker's own (`system_topics`)
        queue: queue ids
        columns: by default all but the rarely used ones; `properties` adds the map of properties
        starting_offsets, ending_offsets: {"topic": {queue: offset}}; the end is exclusive
        since, until: store times, a datetime with its zone or ms since 1970; `until` is exclusive
        tags: messages with one of these tags, "a || b" or ["a", "b"]
        key: messages with this key or message id, found through the index
        scan: "queue" or "log"; by default by queue where there are consume queues
        kafka_names: columns by the names of Spark's Kafka connector
        broker: the value of the column brokerName, which the files do not have
        batch_rows: the largest number of rows in a batch
        fail_on_data_loss: whether missing or damaged messages are an error (RecordsLost, OffsetsGone)
    """
    if scan not in ("", "queue", "log"):
        raise ValueError(f"scan must be 'queue' or 'log', got {scan!r}")
    query = StoreQuery(
        topics=_tuple(topic),
        pattern=pattern,
        has_system=system_topics,
        queues=None if queue is None else frozenset([queue] if isinstance(queue, int) else queue),
        starting=_positions(starting_offsets, EARLIEST),
        ending=_positions(ending_offsets, LATEST),
        since_ms=_in_ms(since, "since"),
        until_ms=_in_ms(until, "until"),
        tags=frozenset(wanted_tags(tags)),
        key=key,
        scan=scan,
        is_strict=fail_on_data_loss,
    )
    rows = RowFormat(schema_of(columns, has_properties=properties, is_kafka=kafka_names), broker, batch_rows)
    files = StoreFiles(os.fspath(directory))
    partitions = partitions_of(files, query)
    reader = StoreReader(files, query, rows)

    def batches() -> Iterator[pa.RecordBatch]:
        for partition in partitions:
            yield from reader.read(partition)

    return pa.RecordBatchReader.from_batches(rows.schema.arrow, batches())


def _tuple(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _positions(given: Any, default: int) -> QueuePositions:
    return QueuePositions(default) if given is None else QueuePositions(default, positions_of(given).of)


def _in_ms(given: Moment | None, name: str) -> int | None:
    return None if given is None else epoch_ms(given, SystemClock().now_ms(), name)
