"""Format `rocketmq-delta`: rows of a stream or a batch in a Delta table, without any jar.

In: Spark's calls. Out: executors write files, the driver commits them (`files.py`, `table.py`). Any rows
will do; those of format `rocketmq` also tell their offsets to the table.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from turbopump.pipelines.lake import files, table
from turbopump.pipelines.lake.reading import TableReader, spark_schema
from turbopump.pipelines.options import NO_VERSION, BadOption, Option, Options, count, text, version_of, words
from turbopump.pipelines.workers import settling

FORMAT = "rocketmq-delta"
DEFAULT_PARTITIONS = ("topic", "date", "hour")
QUERY_ID = "sql.streaming.queryId"

LAKE = (
    Option("path", text, help="directory of the table, or an address such as s3://…"),
    Option("partitionBy", words, help="columns; those of topic, date and hour that there are"),
    Option("transactionalId", text, help="under which batches are remembered; the id of the query"),
    Option(
        "txnVersion",
        count(0),
        help="number of this batch under the transactionalId, such as the batch id of foreachBatch; one that "
        "the table has already is not written again. Without it an id writes one batch",
    ),
)


TABLE = (
    Option("path", text, help="directory of the table, or an address such as s3://…"),
    Option("versionAsOf", count(0), help="an earlier version of the table"),
)
"""Of who reads."""


@dataclass(frozen=True, slots=True)
class Lake:
    path: str
    partition_by: tuple[str, ...]
    transactional_id: str
    version: int | None = None
    """Of a batch; None: the id writes one batch."""


@dataclass
class Wrote(WriterCommitMessage):
    id: str
    files: files.Files


class RocketMqDelta(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> Any:
        return spark_schema(*self._read())

    def reader(self, schema: Any) -> Any:
        return TableReader(*self._read())

    def _read(self) -> tuple[str, int | None]:
        options = Options(TABLE, dict(self.options), FORMAT)
        return path_of(options), options["versionAsOf"]

    def writer(self, schema: Any, overwrite: bool) -> Any:
        lake = lake_of(dict(self.options), schema.names, overwrite)
        check_version(lake)
        return BatchWriter(lake)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        lake = lake_of(dict(self.options), schema.names, overwrite)
        if lake.version is not None:
            raise BadOption(NO_VERSION)
        return StreamWriter(lake)


def lake_of(given: dict[str, str], columns: Sequence[str], overwrite: bool) -> Lake:
    if overwrite:
        raise BadOption("rows are appended: mode('append')")
    options = Options(LAKE, given, FORMAT)
    path = path_of(options)
    known = {column.lower(): column for column in columns}
    asked = options["partitionBy"] or [name for name in DEFAULT_PARTITIONS if name in known]
    if missing := [name for name in asked if name.lower() not in known]:
        raise BadOption(f"partitionBy names {missing[0]}, and there are only columns {', '.join(columns)}")
    partition_by = tuple(known[name.lower()] for name in asked)
    if len(partition_by) == len(columns):
        raise BadOption("all columns are in partitionBy: nothing is left for the files")
    return Lake(path, partition_by, options["transactionalId"] or "", version_of(options))


def check_version(lake: Lake) -> None:
    """Before any task runs; the commit looks again."""
    id = lake.transactional_id
    if id and lake.version is None and table.last_version(lake.path, id) >= 0:
        raise table.already_written(id, lake.path)


def path_of(options: Options) -> str:
    path: str = options.need("path", "where is the table?")
    return path.removeprefix("file://")


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def write(self, iterator: Iterator[Any]) -> Wrote:
        context = TaskContext.get()
        assert context is not None, "only a task writes"
        id = self._lake.transactional_id or context.getLocalProperty(QUERY_ID)
        return Wrote(id, written(self._lake, settling(iterator)))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        committed(self._lake, messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        """Files that no commit names are no part of the table."""


class BatchWriter(DataSourceArrowWriter):
    """With a transactionalId and a txnVersion the table has its rows once, however often the job runs."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def write(self, iterator: Iterator[Any]) -> Wrote:
        return Wrote(self._lake.transactional_id, written(self._lake, settling(iterator)))

    def commit(self, messages: Sequence[Any]) -> None:
        version = self._lake.version
        committed(self._lake, messages, version or 0, may_repeat=version is not None)

    def abort(self, messages: Sequence[Any]) -> None:
        """Files that no commit names are no part of the table."""


def written(lake: Lake, batches: Iterator[Any]) -> files.Files:
    return files.write(lake.path, lake.partition_by, uuid.uuid4().hex, batches)


def committed(lake: Lake, messages: Sequence[Any], batch: int, may_repeat: bool = True) -> None:
    found = [message for message in messages if message is not None]
    parts = [one.files for one in found]
    table.commit(lake.path, lake.partition_by, parts, found[0].id, batch, may_repeat=may_repeat)
