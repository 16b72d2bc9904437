"""The sink as Spark calls it: writers for batches and streams, exactly once and at least once.

In: Spark's calls, on executors (`write`) and on the driver (`commit`, `abort`). Out: calls of
`exactly_once.py` and `at_least_once.py`. A stream's writer is created for each micro-batch and once more for
its commit, in other processes, so all that a commit needs comes in the messages of its tasks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from turbopump.pipelines.sink import at_least_once, exactly_once
from turbopump.pipelines.sink.exactly_once import Attempt, CannotBeExact, QueryRun
from turbopump.pipelines.sink.rows import without_assigned
from turbopump.pipelines.sink.settings import SinkOptions
from turbopump.pipelines.worker_memory import freeze_after

QUERY_ID, RUN_ID, BATCH_ID = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"
"""Spark's names of what a task knows about its query. Not part of its API, so a test checks them."""


@dataclass
class TaskCommit(WriterCommitMessage):
    """Spark's commit message of a task: its attempt, or nothing with at-least-once delivery."""

    attempt: Attempt | None = None


class StreamAtLeastOnce(DataSourceStreamArrowWriter):
    """Spark's writer of a stream's micro-batches to topics, at least once."""

    def __init__(self, sink: SinkOptions) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        at_least_once.write(self._sink, freeze_after(iterator))
        return TaskCommit()

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        """Does nothing: all messages are stored."""

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        """Does nothing: stored messages stay, and the batch is repeated."""


class StreamExactlyOnce(DataSourceStreamArrowWriter):
    """Spark's writer of a stream's micro-batches to topics, exactly once."""

    def __init__(self, sink: SinkOptions) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        run, batch = of_task(self._sink)
        return TaskCommit(exactly_once.write(self._sink, run, batch, freeze_after(iterator)))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        exactly_once.commit(self._sink, batchId, attempts_of(messages))

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        """Does nothing: the next run rolls back what is undecided.

        A commit may have decided and then failed.
        """


class BatchAtLeastOnce(DataSourceArrowWriter):
    """Spark's writer of a batch to topics, at least once."""

    def __init__(self, sink: SinkOptions) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        at_least_once.write(self._sink, _rows(self._sink, iterator))
        return TaskCommit()

    def commit(self, messages: Sequence[Any]) -> None:
        """Does nothing: all messages are stored."""

    def abort(self, messages: Sequence[Any]) -> None:
        """Does nothing: stored messages stay."""


class BatchExactlyOnce(DataSourceArrowWriter):
    """Spark's writer of a batch to topics, exactly once.

    Created once per job, on the driver; tasks and commit have copies of it.
    """

    def __init__(self, sink: SinkOptions) -> None:
        self._sink = sink
        self._run, self._batch = exactly_once.begin_job(sink)

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        return TaskCommit(exactly_once.write(self._sink, self._run, self._batch, _rows(self._sink, iterator)))

    def commit(self, messages: Sequence[Any]) -> None:
        exactly_once.commit(self._sink, self._batch, attempts_of(messages))

    def abort(self, messages: Sequence[Any]) -> None:
        exactly_once.give_up(self._sink, self._run)


def _rows(sink: SinkOptions, iterator: Iterator[Any]) -> Iterator[Any]:
    return without_assigned(freeze_after(iterator), sink.assigned)


def of_task(sink: SinkOptions) -> tuple[QueryRun, int]:
    """Returns the run and the batch number that the current Spark task belongs to. Raises CannotBeExact."""
    context = TaskContext.get()
    assert context is not None, "only a task writes"
    query, run, batch = (context.getLocalProperty(name) for name in (QUERY_ID, RUN_ID, BATCH_ID))
    id = sink.transactional_id or query
    if not id or not run or not batch:
        raise CannotBeExact(
            f"this Spark does not say which query ({query}), run ({run}) and batch ({batch}) a task belongs "
            "to: give the option delivery=at-least-once"
        )
    return QueryRun(id, run), int(batch)


def attempts_of(messages: Sequence[Any]) -> list[Attempt]:
    found = [message.attempt for message in messages if message is not None]
    assert found, "Spark commits at least one partition"
    return found
