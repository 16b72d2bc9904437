"""Writes record batches as Parquet: one file, or a directory of files by topic, day and hour.

In: batches, as they come. Out: files, and how many rows they have. Memory holds one row group, however large
the export is. A file gets its name once it is complete.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from turbopump.pipelines.schema import Schema

MAX_GROUP_ROWS = 100_000
MAX_GROUP_BYTES = 64 * 1024 * 1024
"""A row group ends at the first of these limits."""
MAX_OPEN_FILES = 64  # in a partitioned directory

TIMES = ("storeTimestamp", "timestamp")
PARTS: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "date": (pa.string(), lambda times: pc.strftime(times, "%Y-%m-%d")),
    "hour": (pa.int32(), lambda times: pc.hour(times).cast(pa.int32())),
}
"""Partition columns made from the store time, in UTC."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export has written: path, rows, bytes and number of files."""

    path: str
    rows: int
    bytes: int
    files: int


def export(
    batches: Iterable[pa.RecordBatch], schema: Schema, to: str, by: Sequence[str], compression: str
) -> ExportResult:
    """Writes the batches to one Parquet file, or with `by` to a directory partitioned by these columns.

    Raises OSError, also when the target exists.
    """
    return _directory(batches, schema, to, by, compression) if by else _file(batches, schema, to, compression)


def _file(batches: Iterable[pa.RecordBatch], schema: Schema, to: str, compression: str) -> ExportResult:
    file = ParquetFile(to, schema, compression)
    try:
        for batch in batches:
            file.add(batch)
        return file.close()
    except BaseException:
        file.discard()
        raise


class ParquetFile:
    """A Parquet file that grows by batches, and gets its name when it is closed. Raises OSError."""

    def __init__(self, to: str, schema: Schema, compression: str = "zstd") -> None:
        os.makedirs(os.path.dirname(to) or ".", exist_ok=True)
        self._to, self._unfinished = to, f"{to}.unfinished"
        self._writer = pq.ParquetWriter(self._unfinished, schema.arrow, compression=compression)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._rows = 0
        self._is_sound = True

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= MAX_GROUP_ROWS or self._waiting_bytes >= MAX_GROUP_BYTES:
            self._put_group()

    def close(self) -> ExportResult:
        """Completes the file, renames it to its final name, and returns what was written."""
        self._put_group()
        self._writer.close()
        os.replace(self._unfinished, self._to)
        return ExportResult(self._to, self._rows, os.path.getsize(self._to), 1)

    def discard(self) -> None:
        """Deletes the unfinished file."""
        with suppress(OSError):  # the disk may be too full for the footer, which is deleted anyway
            self._writer.close()
        with suppress(FileNotFoundError):
            os.remove(self._unfinished)

    def _put_group(self) -> None:
        if not self._is_sound:
            raise OSError(errno.EIO, "could not be written", self._unfinished)
        if not self._waiting:
            return
        self._is_sound = False
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self._is_sound = True


def _directory(
    batches: Iterable[pa.RecordBatch], schema: Schema, to: str, by: Sequence[str], compression: str
) -> ExportResult:
    """Writes files such as `to/topic=T/date=2025-06-30/hour=12/part-0.parquet`.

    Spark, DuckDB and polars read the partition values from the names.
    """
    if os.path.isdir(to) and os.listdir(to):
        raise FileExistsError(errno.EEXIST, "directory exists and is not empty", to)
    parts = pa.schema([pa.field(name, PARTS[name][0] if name in PARTS else pa.string()) for name in by])
    added = [field for field in parts if field.name in PARTS]
    written: list[Any] = []
    rows = 0

    def extended() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield with_parts(batch, [field.name for field in added])

    ds.write_dataset(
        extended(),
        to,
        schema=pa.schema([*schema.arrow, *added]),
        format="parquet",
        partitioning=ds.partitioning(parts, flavor="hive"),
        file_options=ds.ParquetFileFormat().make_write_options(compression=compression),
        file_visitor=written.append,
        max_open_files=MAX_OPEN_FILES,
        max_rows_per_group=MAX_GROUP_ROWS,
        existing_data_behavior="error",
    )
    return ExportResult(to, rows, sum(os.path.getsize(file.path) for file in written), len(written))


def with_parts(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Returns the batch with these partition columns of `PARTS` added, made from the store time."""
    columns, fields = list(batch.columns), list(batch.schema)
    times = next((batch.column(name) for name in TIMES if name in batch.schema.names), None)
    for name in names:
        kind, make = PARTS[name]
        columns.append(make(times))
        fields.append(pa.field(name, kind))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def missing_for(by: Sequence[str], schema: Schema) -> str | None:
    """Returns the column that the partition columns `by` need and the rows lack; None if none is lacking."""
    if "topic" in by and "topic" not in schema.names:
        return "topic"
    if set(by) & set(PARTS) and not set(TIMES) & set(schema.names):
        return TIMES[0]
    return None
