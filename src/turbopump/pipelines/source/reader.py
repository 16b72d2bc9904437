"""The readers that Spark calls: they exchange offsets, tasks and rows with it.

In: Spark's calls, on the driver or in a worker. Out: what `plan.py` decides, `range_pull.py` pulls and
`rows.py` decodes.
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
from turbopump.pipelines.source.cluster_view import BlockingClusterView
from turbopump.pipelines.source.offsets import Range
from turbopump.pipelines.source.plan import StreamPlan, batch_ranges
from turbopump.pipelines.source.range_reader import read
from turbopump.pipelines.source.settings import SourceQuery
from turbopump.pipelines.worker_memory import freeze_after


class RangePartition(InputPartition):
    """Spark's input partition of one task: a range of offsets of a queue."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class BatchReader(DataSourceReader):
    """Spark's reader for a batch: plans the ranges of the topics, and reads each in a task."""

    def __init__(self, query: SourceQuery) -> None:
        self._query = query

    def partitions(self) -> Sequence[InputPartition]:
        wanted = batch_ranges(self._query, BlockingClusterView(self._query))
        return [RangePartition(one) for one in wanted] or [_nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return freeze_after(read(partition.wanted, self._query))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader for a stream: plans micro-batches of the topics, and reads their ranges in tasks.

    One per query, in a process beside the driver; copies of it read in workers.
    """

    def __init__(self, query: SourceQuery) -> None:
        self._query = query
        self._made: StreamPlan | None = None

    @property
    def _stream(self) -> StreamPlan:
        if self._made is None:
            self._made = StreamPlan(self._query, BlockingClusterView(self._query), time.monotonic)
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return dict(self._stream.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._query.max_offsets is None else ReadMaxRows(self._query.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.fix_goal()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        max_messages = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return dict(self._stream.next(start, max_messages))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return dict(self._stream.latest()) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [RangePartition(one) for one in self._stream.ranges(start, end)] or [_nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return freeze_after(read(partition.wanted, self._query))

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the query alone, which is all that a worker needs."""
        return {"_query": self._query, "_made": None}


def _nothing() -> RangePartition:
    """Returns the partition of an empty task: Spark needs one even where there is nothing to read."""
    return RangePartition(Range(MessageQueue("", "", 0), 0, 0))
