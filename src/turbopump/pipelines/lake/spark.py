"""Format `rocketmq-delta`: writes rows of a stream or a batch into a Delta table, without any jar.

In: Spark's calls. Out: executors write files, the driver commits them (`files.py`, `table.py`). Rows of any
kind are accepted; those of format `rocketmq` also record their offsets in the table.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from turbopump.pipelines import tables
from turbopump.pipelines.lake import PARTITIONS, files, table
from turbopump.pipelines.lake.table_reader import FilteringTableReader, TableReader, spark_schema
from turbopump.pipelines.options import (
    NO_VERSION,
    BadOption,
    FormatOption,
    FormatOptions,
    count,
    flag,
    is_of_table,
    local_path,
    own_options,
    text,
    version_of,
    words,
)
from turbopump.pipelines.worker_memory import freeze_after

FORMAT = "rocketmq-delta"
QUERY_ID = "sql.streaming.queryId"

LAKE = (
    FormatOption("path", text, help="directory of the table, or an address such as s3://…"),
    FormatOption(
        "partitionBy",
        words,
        help="partition columns; default: those of topic, date and hour that the rows have",
    ),
    FormatOption(
        "transactionalId",
        text,
        help="id under which the table records written batches; default: the id of the query",
    ),
    FormatOption(
        "txnVersion",
        count(0),
        help="number of this batch under the transactionalId, such as the batch id of foreachBatch; a number "
        "that the table already has is not written again. Without it an id writes one batch",
    ),
    FormatOption(
        "mergeSchema",
        flag,
        False,
        help="add columns that the table lacks; columns that the rows lack are null",
    ),
    FormatOption(
        "overwriteSchema",
        flag,
        False,
        help="with mode overwrite: replace the table's columns by those of the rows",
    ),
)


TABLE = (
    FormatOption("path", text, help="directory of the table, or an address such as s3://…"),
    FormatOption("versionAsOf", count(0), help="version of the table to read; default: the latest"),
    FormatOption(
        "pushFilters",
        flag,
        False,
        help="skip files that have no row for the query's conditions, by partition values and "
        "statistics; needs spark.sql.python.filterPushdown.enabled=true",
    ),
)
"""Options for reading."""


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Checked options for writing to a Delta table. Sent to tasks by pickle."""

    path: str
    partition_by: tuple[str, ...]
    transactional_id: str
    version: int | None = None
    """Number of a batch; None: the transactional id writes one batch."""
    how: table.WriteMode = table.APPEND
    schema: Any = None
    """Arrow schema of the rows."""


@dataclass
class FilesCommit(WriterCommitMessage):
    """Spark's commit message from a task to the driver: its files, and the transactional id."""

    id: str
    files: files.WrittenFiles


class RocketMqDelta(DataSource):
    """Spark's data source `rocketmq-delta`: reads and writes Delta tables without a jar."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> Any:
        own = own_options(self.options)
        options = FormatOptions(TABLE, tables.known(own, TABLE) if is_of_table(self.options) else own, FORMAT)
        columns = spark_schema(path_of(options), options["versionAsOf"])
        return tables.with_options(columns, self.options, (TABLE, LAKE), FORMAT)

    def reader(self, schema: Any) -> Any:
        options = FormatOptions(TABLE, tables.for_reader(self.options, schema, "path", TABLE), FORMAT)
        kind = FilteringTableReader if options["pushFilters"] else TableReader
        return kind(path_of(options), options["versionAsOf"], schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        own = tables.for_writer(self.options, schema, "path", LAKE)
        lake = lake_of(own, schema.names, overwrite, to_arrow_schema(schema, timezone="UTC"))
        check_version(lake)
        return BatchWriter(lake)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        lake = lake_of(dict(self.options), schema.names, overwrite, to_arrow_schema(schema, timezone="UTC"))
        return StreamWriter(for_stream(lake))


def lake_of(
    given: dict[str, str], columns: Sequence[str], overwrite: bool, schema: Any = None
) -> LakeOptions:
    """Checks Spark's options for writing and returns them typed. Raises BadOption.

    `overwrite`: the rows replace all that are in the table.
    """
    options = FormatOptions(LAKE, given, FORMAT)
    if options["overwriteSchema"] and not overwrite:
        raise BadOption("option overwriteSchema is for mode('overwrite'); mergeSchema adds columns")
    path = path_of(options)
    known = {column.lower(): column for column in columns}
    asked = options["partitionBy"] or [name for name in PARTITIONS if name in known]
    if missing := [name for name in asked if name.lower() not in known]:
        raise BadOption(
            f"partitionBy names {missing[0]}, but the rows have only columns {', '.join(columns)}"
        )
    partition_by = tuple(known[name.lower()] for name in asked)
    if len(partition_by) == len(columns):
        raise BadOption("partitionBy must not name all columns: nothing is left for the files")
    version, id = version_of(options), options["transactionalId"] or ""
    how = table.WriteMode(
        overwrite,
        options["mergeSchema"],
        options["overwriteSchema"],
        may_repeat=version is not None or not id,
    )
    return LakeOptions(path, partition_by, id, version, how, schema)


def for_stream(lake: LakeOptions) -> LakeOptions:
    """Returns the options for a stream, whose repeated batches are skipped. Refuses txnVersion."""
    if lake.version is not None:
        raise BadOption(NO_VERSION)
    return replace(lake, how=replace(lake.how, may_repeat=True))


def check_version(lake: LakeOptions) -> None:
    """Raises AlreadyWritten if the transactional id has written to the table and no txnVersion is given.

    Called before any task runs; the commit checks again.
    """
    id = lake.transactional_id
    if id and lake.version is None and table.last_version(lake.path, id) >= 0:
        raise table.already_written(id, lake.path)


def path_of(options: FormatOptions) -> str:
    path: str = options.need("path", f"the directory of the table. In SQL: {tables.hint('path')}")
    return local_path(path)


class StreamWriter(DataSourceStreamArrowWriter):
    """Spark's writer of a stream to a Delta table: commits each micro-batch exactly once."""

    def __init__(self, lake: LakeOptions) -> None:
        self._lake = lake

    def write(self, iterator: Iterator[Any]) -> FilesCommit:
        context = TaskContext.get()
        assert context is not None, "only a task writes"
        id = self._lake.transactional_id or context.getLocalProperty(QUERY_ID)
        return FilesCommit(id, written(self._lake, freeze_after(iterator)))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        committed(self._lake, messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        """Does nothing: files that no commit names are not part of the table."""


class BatchWriter(DataSourceArrowWriter):
    """Spark's writer of a batch to a Delta table.

    With transactionalId and txnVersion the rows are in the table once, however often the job runs.
    """

    def __init__(self, lake: LakeOptions) -> None:
        self._lake = lake

    def write(self, iterator: Iterator[Any]) -> FilesCommit:
        return FilesCommit(self._lake.transactional_id, written(self._lake, freeze_after(iterator)))

    def commit(self, messages: Sequence[Any]) -> None:
        committed(self._lake, messages, self._lake.version or 0)

    def abort(self, messages: Sequence[Any]) -> None:
        """Does nothing: files that no commit names are not part of the table."""


def written(lake: LakeOptions, batches: Iterator[Any]) -> files.WrittenFiles:
    return files.write(lake.path, lake.partition_by, uuid.uuid4().hex, batches)


def committed(lake: LakeOptions, messages: Sequence[Any], batch: int) -> None:
    found = [message for message in messages if message is not None]
    parts = [one.files for one in found]
    table.commit(lake.path, lake.partition_by, parts, found[0].id, batch, lake.how, lake.schema)
