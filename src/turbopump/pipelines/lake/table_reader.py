"""Reads a Delta table's rows for Spark, without any jar: files are listed on the driver and read by tasks.

In: a path, a version of the table that stays the same for the whole query, the columns that Spark expects,
and the conditions of the query that were pushed down. Out: Arrow batches. Files that cannot hold a matching
row, by their partition values and statistics, are not opened. A file's partition values come from the table's
log: names of folders guarantee nothing.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema

from turbopump.pipelines.lake.files import has_order
from turbopump.pipelines.options import BadOption

FILES_PER_TASK = 8


@dataclass
class FilePartition(InputPartition):
    """Spark's input partition of one task: files of a version, by their paths relative to the table."""

    version: int
    paths: tuple[str, ...]


class TableReader(DataSourceReader):
    """Spark's reader of one version of a Delta table, for batches."""

    def __init__(self, path: str, version: int | None, schema: Any) -> None:
        """Opens the table, at its latest version if None. Raises BadOption for columns that it lacks."""
        table = opened(path, version)
        known = {field.name for field in table.schema().fields}
        if missing := [name for name in schema.names if name not in known]:
            raise BadOption(
                f"the table at {path} has no column {missing[0]}: it has {', '.join(sorted(known))}"
            )
        self._path = path
        self._version = table.version()
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._where: Any = None  # an Arrow expression; None: all rows

    def partitions(self) -> list[FilePartition]:
        dataset = opened(self._path, self._version).to_pyarrow_dataset()
        paths = sorted(str(one.path) for one in dataset.get_fragments(self._where))
        parts = [tuple(paths[at : at + FILES_PER_TASK]) for at in range(0, len(paths), FILES_PER_TASK)]
        return [FilePartition(self._version, one) for one in parts or [()]]  # Spark needs at least one

    def read(self, part: FilePartition) -> Iterator[Any]:
        from pyarrow.dataset import FileSystemDataset

        dataset = opened(self._path, part.version).to_pyarrow_dataset()
        wanted = set(part.paths)
        fragments = [one for one in dataset.get_fragments(self._where) if str(one.path) in wanted]
        assert len(fragments) == len(wanted), "a version of a table always has the same files"
        if fragments:
            some = FileSystemDataset(fragments, dataset.schema, dataset.format, fragments[0].filesystem)
            for batch in some.to_batches(columns=self._arrow.names, filter=self._where):
                yield from pa.Table.from_batches([batch]).cast(self._arrow).to_batches()


class FilteringTableReader(TableReader):
    """TableReader that also skips files which cannot match the conditions of Spark's query.

    All conditions stay with Spark too, which keeps its answer right.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for one in filters:
            found = condition(one, self._arrow)
            if found is not None:
                self._where = found if self._where is None else self._where & found
        return filters


def condition(one: Filter, schema: pa.Schema) -> Any:
    """Converts a condition of Spark to an Arrow expression; None if files cannot be skipped by it."""
    column = one.attribute[0] if hasattr(one, "attribute") and len(one.attribute) == 1 else None
    if column not in schema.names or not has_order(schema.field(column).type):
        return None
    field, kind = pc.field(column), schema.field(column).type
    try:
        match one:
            case EqualTo(_, value) | EqualNullSafe(_, value) if value is not None:
                return field == _scalar(value, kind)
            case In(_, values):
                return field.isin(
                    pa.array([_scalar(one, kind).as_py() for one in values if one is not None], kind)
                )
            case GreaterThan(_, value):
                return field > _scalar(value, kind)
            case GreaterThanOrEqual(_, value):
                return field >= _scalar(value, kind)
            case LessThan(_, value):
                return field < _scalar(value, kind)
            case LessThanOrEqual(_, value):
                return field <= _scalar(value, kind)
            case IsNotNull(_):
                return field.is_valid()
    except (pa.ArrowException, TypeError):  # a value that the column cannot have: Spark evaluates it
        return None
    return None


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, datetime) and value.tzinfo is None and pa.types.is_timestamp(kind) and kind.tz:
        value = value.replace(tzinfo=UTC)
    return pa.scalar(value, kind)


def opened(path: str, version: int | None = None) -> Any:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        raise BadOption(f"there is no Delta table at {path}")
    return DeltaTable(path, version=version)


def spark_schema(path: str, version: int | None) -> Any:
    """Returns Spark's schema of a Delta table at a version; of the latest one if None."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(opened(path, version).schema().to_json()))
