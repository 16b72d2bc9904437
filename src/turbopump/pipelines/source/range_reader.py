"""Reads the rows of one range of a queue for a task, without Spark.

In: a query and a range. Out: Arrow batches, in the order of offsets. For any thread other than an event
loop's.
"""

import logging
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from turbopump.pipelines.source.broker_client import BrokerClient, shared_client
from turbopump.pipelines.source.offsets import Range, lost, named
from turbopump.pipelines.source.range_pull import RangePull, parts_of
from turbopump.pipelines.source.rows import rows_of
from turbopump.pipelines.source.settings import SourceQuery

log = logging.getLogger(__name__)


def read(wanted: Range, query: SourceQuery) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a range as Arrow batches, in the order of offsets."""
    if not wanted.size:
        return
    brokers = shared_client(query.access)
    lose = partial(_lose, wanted, query)
    for part in parts_of(lambda: _reading(brokers, wanted, query)):
        yield from rows_of(part, wanted, query.schema, query.filter, lose)


def _reading(brokers: BrokerClient, wanted: Range, query: SourceQuery) -> RangePull:
    return RangePull(
        brokers.pulls,
        brokers.routes.doubt,
        wanted,
        query.filter,
        query.pull_count,
        query.patience_s,
        query.fails_on_loss,
    )


def _lose(wanted: Range, query: SourceQuery, start: int, end: int) -> None:
    problem = f"messages {start} to {end - 1} of {named(wanted.queue)} are missing between others"
    if query.fails_on_loss:
        raise lost([problem])
    log.warning("%s; continuing without them, as failOnDataLoss is false", problem)
