"""A Delta table's rows for Spark, without any jar: files are listed on the driver and read by tasks.

In: a path, and a version of the table that stays the same for the whole query. Out: Arrow batches. A file's
partition values come from the table's log: what folders are called is nobody's promise.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from turbopump.pipelines.options import BadOption

FILES_EACH = 8  # of a task


@dataclass
class Part(InputPartition):
    """Some files of a version, by their places in its list."""

    version: int
    begin: int
    end: int


class TableReader(DataSourceReader):
    def __init__(self, path: str, version: int | None) -> None:
        self._path = path
        self._version = opened(path, version).version()

    def partitions(self) -> list[Part]:
        count = len(_fragments(opened(self._path, self._version)))
        return [Part(self._version, at, min(at + FILES_EACH, count)) for at in range(0, count, FILES_EACH)]

    def read(self, part: Part) -> Iterator[Any]:
        from pyarrow.dataset import FileSystemDataset

        table = opened(self._path, part.version)
        dataset = table.to_pyarrow_dataset()
        fragments = _fragments(table)[part.begin : part.end]
        wanted = plain(dataset.schema)
        some = FileSystemDataset(fragments, dataset.schema, dataset.format, fragments[0].filesystem)
        for batch in some.to_batches():
            yield from pa.Table.from_batches([batch]).cast(wanted).to_batches()


def opened(path: str, version: int | None = None) -> Any:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        raise BadOption(f"there is no Delta table at {path}")
    return DeltaTable(path, version=version)


def spark_schema(path: str, version: int | None) -> Any:
    """Delta writes its schema as Spark does."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(opened(path, version).schema().to_json()))


def _fragments(table: Any) -> list[Any]:
    """In an order that is the same in every process."""
    return sorted(table.to_pyarrow_dataset().get_fragments(), key=lambda fragment: str(fragment.path))


def plain(schema: pa.Schema) -> pa.Schema:
    """With the types that Spark takes: no large ones, no views, times in UTC."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    return kind
