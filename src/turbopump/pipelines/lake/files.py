"""Writes rows as Parquet files, one or more per partition, before they belong to a table.

In: the Arrow batches of a task. Out: `WrittenFiles`: path, size, row count and statistics of each file, and
the offset that the rows of each queue reach. File names contain a token of the attempt, so files of failed
attempts disturb nothing; `compact` removes them later. Which attempts count is decided in `table.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from turbopump.pipelines.schema import TIME
from turbopump.pipelines.sink.rows import groups

MAX_OPEN_FILES = 64  # per task; the oldest is closed for a new one
COMPRESSION = "zstd"
MAX_STATISTIC_LENGTH = 64  # characters
OFFSET, PLACE = "queueOffset", ("topic", "brokerName", "queueId")
SAFE = "-_.~"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

Reached = dict[str, dict[str, dict[str, int]]]
"""Topic → broker → queue → the offset after the last one, as in Spark's checkpoint."""
Values = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Smallest and largest values and nulls of a file's columns, by which readers skip files."""

    lowest: dict[str, Any] = field(default_factory=dict)
    highest: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One written Parquet file of a table: path, size, rows, partition values and statistics."""

    path: str
    """Relative to the table."""
    size: int
    rows: int
    values: tuple[tuple[str, str | None], ...]
    """Partition column → value."""
    statistics: ColumnStatistics = field(default_factory=ColumnStatistics)
    columns: frozenset[str] = frozenset()
    """The columns in the file itself, which lacks the partition columns."""


@dataclass(slots=True)
class WrittenFiles:
    """The files that a task has written, their schema, and the offsets that their rows reach."""

    files: list[DataFile] = field(default_factory=list)
    schema: bytes = b""
    """Arrow schema of complete rows; empty if there were no rows."""
    reached: Reached = field(default_factory=dict)


def write(root: str, partition_by: tuple[str, ...], token: str, batches: Iterable[Any]) -> WrittenFiles:
    """Writes batches as Parquet files below `root`, a directory or address that PyArrow understands."""
    system, path = pa.fs.FileSystem.from_uri(root) if "://" in root else (pa.fs.LocalFileSystem(), root)
    writer = _PartitionWriter(system, path.rstrip("/"), partition_by, token)
    done = WrittenFiles()
    for batch in batches:
        rows = in_utc(batch)
        if len(rows):
            done.schema = rows.schema.serialize().to_pybytes()
            merge(done.reached, reached(rows))
            for values, part in parts(rows, partition_by):
                writer.add(values, part)
    done.files = writer.close()
    return done


def in_utc(batch: Any) -> Any:
    """Returns the batch as a table with times in UTC, as Delta has them; Spark's have the session's zone."""
    return table_in_utc(pa.Table.from_batches([batch]))


def table_in_utc(table: Any) -> Any:
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            table = table.set_column(number, column.name, table.column(number).cast(TIME))
    return table


def parts(table: Any, partition_by: tuple[str, ...]) -> list[tuple[Values, Any]]:
    """Divides rows by their partition values; returns each part with its values, without those columns."""
    rest = table.drop_columns(list(partition_by))
    codes = np.zeros(len(table), np.int64)
    names: list[list[str | None]] = []
    for name in partition_by:
        coded = pc.dictionary_encode(as_text(table.column(name)).combine_chunks(), "encode")
        known = coded.dictionary.to_pylist()
        names.append(known)
        codes = codes * len(known) + np.asarray(coded.indices)
    found = []
    for code, indices in groups(codes):
        values: list[str | None] = []
        for known in reversed(names):
            values.insert(0, known[code % len(known)])
            code //= len(known)
        found.append((tuple(values), rest if len(indices) == len(rest) else rest.take(indices)))
    return found


def as_text(column: Any) -> Any:
    """Formats partition values as Delta's protocol does: times in UTC, without a zone."""
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column.cast(pa.timestamp("us", column.type.tz)), format="%Y-%m-%d %H:%M:%S")
    return column.cast(pa.string())


def statistics_of(metadata: Any, schema: Any) -> ColumnStatistics:
    """Reads the statistics of flat columns from Parquet's footer.

    None for a column with a row group that lacks them.
    """
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path
        if name not in schema.names:
            continue  # a part of a nested column
        found = [
            metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)
        ]
        if all(one is not None and one.has_null_count for one in found):
            nulls[name] = sum(one.null_count for one in found)
        ends = [(one.min, one.max) for one in found if one is not None and one.has_min_max]
        if has_order(schema.field(name).type) and ends and len(ends) == len(found):
            least, most = _ending(min(low for low, _ in ends)), _ending(max(high for _, high in ends))
            if least is not None and most is not None:
                lowest[name], highest[name] = least, most
    return ColumnStatistics(lowest, highest, nulls)


def has_order(kind: Any) -> bool:
    """Tells whether Spark, Arrow and statistics order the values of this type alike.

    Not for floats, which have NaN, nor for decimals, which JSON would round.
    """
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_string(kind) or types.is_date32(kind) or types.is_timestamp(kind)
    )


def _ending(value: Any) -> Any:
    """Converts a smallest or largest value to JSON; None for a string too long to be of use."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > MAX_STATISTIC_LENGTH:
        return None
    return value


def reached(table: Any) -> Reached:
    """Returns the offset after the last row of each queue; empty for rows not of format `rocketmq`."""
    if not {OFFSET, *PLACE} <= set(table.column_names):
        return {}
    last = table.group_by(list(PLACE)).aggregate([(OFFSET, "max")])
    found: Reached = {}
    for row in last.to_pylist():
        if None not in row.values():
            queues = found.setdefault(row["topic"], {}).setdefault(row["brokerName"], {})
            queues[str(row["queueId"])] = row[f"{OFFSET}_max"] + 1
    return found


def merge(into: Reached, more: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
    for topic, brokers in more.items():
        for broker, queues in brokers.items():
            known = into.setdefault(topic, {}).setdefault(broker, {})
            for queue, offset in queues.items():
                known[queue] = max(offset, known.get(queue, 0))


class BadPartition(ValueError):
    """A row's value in a partition column cannot be stored; the text has the fix."""


def folder_of(name: str, value: str | None) -> str:
    """Returns the value of a Hive folder `name=value`, quoted. Raises BadPartition for an empty string.

    Some readers, Polars among them, take the value from there.
    """
    if value == "":
        raise BadPartition(
            f"a row has an empty string in column {name}, and Delta takes that for null in a partition: "
            f"write null, NULLIF({name}, ''), or leave the column out of partitionBy"
        )
    return NO_VALUE if value is None else quote(value, SAFE)


class _PartitionWriter:
    """Writes rows into Parquet files, with one open file per partition."""

    def __init__(self, system: Any, root: str, partition_by: tuple[str, ...], token: str) -> None:
        self._system = system
        self._root = root
        self._partition_by = partition_by
        self._token = token
        self._open: dict[Values, _OpenFile] = {}
        self._done: list[DataFile] = []
        self._count = 0

    def add(self, values: Values, part: Any) -> None:
        one = self._open.get(values)
        if one is None:
            while len(self._open) >= MAX_OPEN_FILES:
                self._close(next(iter(self._open)))
            one = self._open[values] = self._begin(values, part.schema)
        one.add(part)

    def close(self) -> list[DataFile]:
        for values in list(self._open):
            self._close(values)
        return self._done

    def _begin(self, values: Values, schema: Any) -> "_OpenFile":
        named = tuple(zip(self._partition_by, values, strict=True))
        folder = "/".join(f"{quote(name, SAFE)}={folder_of(name, value)}" for name, value in named)
        self._count += 1
        path = f"{folder}/part-{self._count:05}-{self._token}.{COMPRESSION}.parquet".lstrip("/")
        self._system.create_dir(f"{self._root}/{folder}".rstrip("/"), recursive=True)
        footers: list[Any] = []
        writer = pq.ParquetWriter(
            f"{self._root}/{path}",
            schema,
            filesystem=self._system,
            compression=COMPRESSION,
            metadata_collector=footers,
        )
        return _OpenFile(path, named, writer, footers)

    def _close(self, values: Values) -> None:
        one = self._open.pop(values)
        one.writer.close()
        size = self._system.get_file_info(f"{self._root}/{one.path}").size
        found, columns = statistics_of(one.footers[0], one.writer.schema), frozenset(one.writer.schema.names)
        self._done.append(DataFile(one.path, size, one.rows, one.values, found, columns))


@dataclass(slots=True)
class _OpenFile:
    """A file of one partition that is being written."""

    path: str
    values: tuple[tuple[str, str | None], ...]
    writer: Any
    footers: list[Any]
    """Parquet's footer, once the file is closed."""
    rows: int = 0

    def add(self, part: Any) -> None:
        self.writer.write_table(part)
        self.rows += len(part)
