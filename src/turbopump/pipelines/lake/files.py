"""Rows become Parquet files, one or more for each partition, that no table knows yet.

In: Arrow batches of a task. Out: what was written: `Files` with the size and the number of rows of each, and
up to which offsets of which queues the rows reach. Names are made of a token of the attempt, so files of
attempts that failed are in nobody's way; `compact` removes them in time. Which count is decided elsewhere.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from turbopump.pipelines.sink.rows import groups

MOST_OPEN = 64  # files of one task; the oldest is closed for a new one
COMPRESSION = "zstd"
TIME = pa.timestamp("us", tz="UTC")
OFFSET, PLACE = "queueOffset", ("topic", "brokerName", "queueId")
UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")

Reached = dict[str, dict[str, dict[str, int]]]
"""Topic → broker → queue → the offset after the last one, as in Spark's checkpoint."""
Values = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class File:
    path: str
    """Below the table."""
    size: int
    rows: int
    values: tuple[tuple[str, str | None], ...]
    """Of the partition's columns."""
    offsets: tuple[int, int] | None = None
    """The lowest and the highest."""


@dataclass(slots=True)
class Files:
    """What a task has written."""

    files: list[File] = field(default_factory=list)
    schema: bytes = b""
    """Arrow's, of whole rows; empty: there were no rows."""
    reached: Reached = field(default_factory=dict)


def write(root: str, partition_by: tuple[str, ...], token: str, batches: Iterable[Any]) -> Files:
    """`root`: a directory, or an address that PyArrow understands."""
    system, path = pa.fs.FileSystem.from_uri(root) if "://" in root else (pa.fs.LocalFileSystem(), root)
    writing = _Writing(system, path.rstrip("/"), partition_by, token)
    done = Files()
    for batch in batches:
        rows = in_utc(batch)
        if len(rows):
            done.schema = rows.schema.serialize().to_pybytes()
            merge(done.reached, reached(rows))
            for values, part in parts(rows, partition_by):
                writing.add(values, part)
    done.files = writing.close()
    return done


def in_utc(batch: Any) -> Any:
    """Spark's times have the session's zone, Delta's have UTC."""
    table = pa.Table.from_batches([batch])
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            table = table.set_column(number, column.name, table.column(number).cast(TIME))
    return table


def parts(table: Any, partition_by: tuple[str, ...]) -> list[tuple[Values, Any]]:
    """By values of the partition's columns, which are not in the files themselves."""
    rest = table.drop_columns(list(partition_by))
    codes = np.zeros(len(table), np.int64)
    names: list[list[str | None]] = []
    for name in partition_by:
        coded = pc.dictionary_encode(table.column(name).cast(pa.string()).combine_chunks(), "encode")
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


def reached(table: Any) -> Reached:
    """Of rows that tell where they come from; others reach nothing."""
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


class _Writing:
    def __init__(self, system: Any, root: str, partition_by: tuple[str, ...], token: str) -> None:
        self._system = system
        self._root = root
        self._partition_by = partition_by
        self._token = token
        self._open: dict[Values, _OpenFile] = {}
        self._done: list[File] = []
        self._count = 0

    def add(self, values: Values, part: Any) -> None:
        one = self._open.get(values)
        if one is None:
            while len(self._open) >= MOST_OPEN:
                self._close(next(iter(self._open)))
            one = self._open[values] = self._begin(values, part.schema)
        one.add(part)

    def close(self) -> list[File]:
        for values in list(self._open):
            self._close(values)
        return self._done

    def _begin(self, values: Values, schema: Any) -> "_OpenFile":
        named = tuple(zip(self._partition_by, values, strict=True))
        folder = "/".join(f"{name}={UNSAFE.sub('_', value or 'null')}" for name, value in named)
        self._count += 1
        path = f"{folder}/part-{self._count:05}-{self._token}.{COMPRESSION}.parquet".lstrip("/")
        self._system.create_dir(f"{self._root}/{folder}".rstrip("/"), recursive=True)
        writer = pq.ParquetWriter(
            f"{self._root}/{path}", schema, filesystem=self._system, compression=COMPRESSION
        )
        return _OpenFile(path, named, writer)

    def _close(self, values: Values) -> None:
        one = self._open.pop(values)
        one.writer.close()
        size = self._system.get_file_info(f"{self._root}/{one.path}").size
        self._done.append(File(one.path, size, one.rows, one.values, one.offsets))


@dataclass(slots=True)
class _OpenFile:
    path: str
    values: tuple[tuple[str, str | None], ...]
    writer: Any
    rows: int = 0
    offsets: tuple[int, int] | None = None

    def add(self, part: Any) -> None:
        self.writer.write_table(part)
        self.rows += len(part)
        if OFFSET in part.column_names:
            ends = pc.min_max(part.column(OFFSET)).as_py()
            if ends["min"] is not None:
                low, high = self.offsets or (ends["min"], ends["max"])
                self.offsets = min(low, ends["min"]), max(high, ends["max"])
