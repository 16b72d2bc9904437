"""Format `rocketmq-log` as Spark sees it: the rows of a store directory, read by the tasks themselves.

    spark.read.format("rocketmq-log").option("topic", "T").option("columns", "body,tags").load("/data/store")

In: options. Out: one task per partition of `log/plan.py`, whose ends are fixed when the query is planned. The
directory must exist under the same path on every worker.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema

from turbopump.pipelines import tables
from turbopump.pipelines.log.files import StoreFiles
from turbopump.pipelines.log.options import FORMAT, TABLE, query_of, rows_of
from turbopump.pipelines.log.partitions import partitions_of
from turbopump.pipelines.log.plan import Partition, QueuePositions, StoreQuery
from turbopump.pipelines.log.store_reader import RowFormat, StoreReader
from turbopump.pipelines.options import (
    EARLIEST,
    LATEST,
    BadOption,
    FormatOptions,
    is_of_table,
    local_path,
    own_options,
)
from turbopump.pipelines.worker_memory import freeze_after

READ_ONLY = "format rocketmq-log only reads a store's files: write to a topic with format rocketmq"


class RocketMqLog(DataSource):
    """Spark's data source `rocketmq-log`: reads the files of a store, without a broker."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> Any:
        rows = rows_of(FormatOptions(TABLE, own_options(self.options), FORMAT))
        if not is_of_table(self.options):
            return rows.schema.ddl
        return tables.with_options(from_arrow_schema(rows.schema.arrow), self.options, (TABLE,), FORMAT)

    def reader(self, schema: Any) -> DataSourceReader:
        asked = FormatOptions(TABLE, tables.for_reader(self.options, schema, "path", TABLE), FORMAT)
        kind = FilteringLogReader if asked["pushFilters"] else LogReader
        path = local_path(
            asked.need("path", f"the store directory, as in load(path). In SQL: {tables.hint('path')}")
        )
        return kind(path, asked["commitLogPath"] or (), query_of(asked), rows_of(asked))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        raise BadOption(READ_ONLY)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        raise BadOption(READ_ONLY)


class LogReader(DataSourceReader):
    """Spark's reader of a store directory: plans partitions, and reads each in a task."""

    def __init__(self, path: str, log_dirs: tuple[str, ...], query: StoreQuery, rows: RowFormat) -> None:
        self._path = path
        self._log_dirs = log_dirs
        self._query = query
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        found = partitions_of(StoreFiles(self._path, self._log_dirs), self._query)
        return [InputPartition(partition) for partition in found or [()]]  # Spark needs at least one

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        pieces: Partition = partition.value
        reader = StoreReader(StoreFiles(self._path, self._log_dirs), self._query, self._rows)
        return freeze_after(reader.read(pieces))


class FilteringLogReader(LogReader):
    """LogReader that also narrows what it reads by the conditions of Spark's query.

    All conditions stay with Spark as well, which costs little and keeps its answer right, whatever the files
    can tell.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for one in filters:
            self._query = narrowed_by(self._query, one)
        return filters


def narrowed_by(query: StoreQuery, condition: Filter) -> StoreQuery:
    """Returns the query narrowed by a condition, perhaps in part; unchanged if files cannot answer it."""
    match condition:
        case EqualTo((column,), value) | EqualNullSafe((column,), value) if value is not None:
            return _one_of(query, column, [value])
        case In((column,), values):
            return _one_of(query, column, [value for value in values if value is not None])
        case GreaterThan((column,), value) | GreaterThanOrEqual((column,), value):
            return _at_least(query, column, value)
        case LessThan((column,), value) | LessThanOrEqual((column,), value):
            return _at_most(query, column, value)
    return query


def _one_of(query: StoreQuery, column: str, values: list[Any]) -> StoreQuery:
    wanted = frozenset(values)
    match column:
        case "topic":
            return replace(query, among=wanted if query.among is None else wanted & query.among)
        case "queueId" | "partition":
            return replace(query, queues=wanted if query.queues is None else wanted & query.queues)
        case "tags" if not query.tags:
            return replace(query, tags=wanted)
        case "queueOffset" | "offset" if values:
            return _at_most(_at_least(query, column, min(values)), column, max(values))
        case "keys" if len(values) == 1 and _is_one_key(values[0]) and not (query.key or _has_offsets(query)):
            return replace(query, key=values[0])
    return query


def _at_least(query: StoreQuery, column: str, value: Any) -> StoreQuery:
    match column, value:
        case (("queueOffset" | "offset"), int()):
            return replace(query, min_offset=max(query.min_offset, value))
        case (("storeTimestamp" | "timestamp"), datetime()):
            since = _in_ms(value)
            return replace(query, since_ms=since if query.since_ms is None else max(since, query.since_ms))
    return query


def _at_most(query: StoreQuery, column: str, value: Any) -> StoreQuery:
    match column, value:
        case (("queueOffset" | "offset"), int()):
            return replace(query, max_offset=min(query.max_offset, value))
        case (("storeTimestamp" | "timestamp"), datetime()):
            until = _in_ms(value) + 1
            return replace(query, until_ms=until if query.until_ms is None else min(until, query.until_ms))
    return query


def _is_one_key(keys: str) -> bool:
    return keys != "" and " " not in keys


def _has_offsets(query: StoreQuery) -> bool:
    return query.starting != QueuePositions(EARLIEST) or query.ending != QueuePositions(LATEST)


def _in_ms(moment: datetime) -> int:
    """Returns ms since 1970, rounded down; a moment without a time zone is in UTC."""
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000 // 1)
