"""Record batches into Parquet: one file, or a directory of files by topic, day and hour.

In: batches, as they come. Out: files, and how many rows they have. Memory holds one row group, however much
there is. A file has its name when it is whole, and not before.
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

GROUP_ROWS = 100_000
GROUP_BYTES = 64 * 1024 * 1024
"""A row group ends at the first of these."""
OPEN_FILES = 64  # of a partitioned directory

TIMES = ("storeTimestamp", "timestamp")
PARTS: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "date": (pa.string(), lambda times: pc.strftime(times, "%Y-%m-%d")),
    "hour": (pa.int32(), lambda times: pc.hour(times).cast(pa.int32())),
}
"""What is made of the time of storing, in UTC."""


@dataclass(frozen=True, slots=True)
class Exported:
    path: str
    rows: int
    bytes: int
    files: int


def exported(
    batches: Iterable[pa.RecordBatch], schema: Schema, to: str, by: Sequence[str], compression: str
) -> Exported:
    """Raises OSError, among others when something is there already."""
    return _directory(batches, schema, to, by, compression) if by else _file(batches, schema, to, compression)


def _file(batches: Iterable[pa.RecordBatch], schema: Schema, to: str, compression: str) -> Exported:
    unfinished, rows = f"{to}.unfinished", 0
    os.makedirs(os.path.dirname(to) or ".", exist_ok=True)
    try:
        with pq.ParquetWriter(unfinished, schema.arrow, compression=compression) as writer:
            for group in _groups(batches):
                writer.write_table(group)
                rows += group.num_rows
        os.replace(unfinished, to)
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(unfinished)
        raise
    return Exported(to, rows, os.path.getsize(to), 1)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _directory(
    batches: Iterable[pa.RecordBatch], schema: Schema, to: str, by: Sequence[str], compression: str
) -> Exported:
    """`to/topic=T/date=2025-06-30/hour=12/part-0.parquet`: Spark, DuckDB and polars read the names too."""
    if os.path.isdir(to) and os.listdir(to):
        raise FileExistsError(errno.EEXIST, "is there, and is not empty", to)
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
        max_open_files=OPEN_FILES,
        max_rows_per_group=GROUP_ROWS,
        existing_data_behavior="error",
    )
    return Exported(to, rows, sum(os.path.getsize(file.path) for file in written), len(written))


def with_parts(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with these columns of `PARTS`."""
    columns, fields = list(batch.columns), list(batch.schema)
    times = next((batch.column(name) for name in TIMES if name in batch.schema.names), None)
    for name in names:
        kind, make = PARTS[name]
        columns.append(make(times))
        fields.append(pa.field(name, kind))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def missing_for(by: Sequence[str], schema: Schema) -> str | None:
    """The column that these parts need and the rows lack."""
    if "topic" in by and "topic" not in schema.names:
        return "topic"
    if set(by) & set(PARTS) and not set(TIMES) & set(schema.names):
        return TIMES[0]
    return None
