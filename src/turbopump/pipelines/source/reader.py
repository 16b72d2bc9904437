"""The readers that Spark calls: it hands in offsets, and gets offsets, tasks and rows.

In: Spark's calls, on the driver or in a worker. Out: what `plan.py` decides, what `pulling.py` reads and
`rows.py` decodes. Nothing is decided here.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.offsets import Range
from turbopump.pipelines.source.plan import Stream, batch_ranges
from turbopump.pipelines.source.reading import Eyes, read
from turbopump.pipelines.source.settings import Query
from turbopump.pipelines.workers import settling


class Task(InputPartition):
    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class BatchReader(DataSourceReader):
    def __init__(self, query: Query) -> None:
        self._query = query

    def partitions(self) -> Sequence[InputPartition]:
        wanted = batch_ranges(self._query, Eyes(self._query))
        return [Task(one) for one in wanted] or [_nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return settling(read(partition.wanted, self._query))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query, in a process of its own beside the driver; copies of it read in workers."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._made: Stream | None = None

    @property
    def _stream(self) -> Stream:
        if self._made is None:
            self._made = Stream(self._query, Eyes(self._query), time.monotonic)
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return dict(self._stream.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._query.most is None else ReadMaxRows(self._query.most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.fix_goal()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return dict(self._stream.next(start, most))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return dict(self._stream.latest()) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Task(one) for one in self._stream.ranges(start, end)] or [_nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return settling(read(partition.wanted, self._query))

    def __getstate__(self) -> dict[str, Any]:
        """Without what looks at brokers: a worker needs the query alone."""
        return {"_query": self._query, "_made": None}


def _nothing() -> Task:
    """Spark wants a task even where there is nothing to read."""
    return Task(Range(MessageQueue("", "", 0), 0, 0))
