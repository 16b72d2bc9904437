"""Decodes pulled records of a queue into rows: whole batches at a time, no loop per message.

In: records back to back, and the offsets they should have. Out: Arrow batches of the query's columns. What
the broker could only approximate (tags by their hash, a filter that looked beyond the range) is made exact
here, and a message that is missing in the middle is detected.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turbopump.pipelines.decode import BATCH_ROWS, batches
from turbopump.pipelines.pull_response import messages_in
from turbopump.pipelines.record_positions import Mask, Numbers
from turbopump.pipelines.schema import COLUMNS, Schema
from turbopump.pipelines.source.offsets import Range
from turbopump.pipelines.source.range_pull import PulledRecords
from turbopump.pipelines.source.settings import SourceFilter

TAGS = next(column for column in COLUMNS if column.name == "tags")
OFFSETS = ("queueOffset", "offset")

Lose = Callable[[int, int], None]
"""Called with offsets [start, end) that should be there and are not; raises, or returns to go on without
them.
"""


def rows_of(
    part: PulledRecords, wanted: Range, schema: Schema, filter: SourceFilter, lose: Lose
) -> Iterator[pa.RecordBatch]:
    """Yields batches of `part`'s messages in the range that pass the filter; calls `lose` for gaps."""
    messages = messages_in(part.body, part.delta)
    offsets = messages.offsets
    messages = messages.only(
        (offsets >= part.start) & (offsets < min(part.end, wanted.end)) & _is_first(offsets)
    )
    if filter.is_all:
        for start, end in missing(messages.offsets, part.start, part.end):
            lose(start, end)
    decoded = with_tags(schema) if filter.tags else schema
    for batch in batches(messages.data, messages.positions, decoded, wanted.queue.broker, BATCH_ROWS):
        chosen = _chosen(batch, schema, filter.tags) if filter.tags else batch
        if chosen.num_rows:
            yield _shifted(chosen, part.delta) if part.delta else chosen


def _is_first(offsets: Numbers) -> Mask:
    """Marks offsets higher than all before them, which drops repeated messages.

    Where messages are missing, a pull continues beyond the position where the next one begins: what comes
    twice comes the second time behind higher offsets.
    """
    before = np.maximum.accumulate(offsets)
    return np.concatenate((np.ones(min(len(offsets), 1), bool), offsets[1:] > before[:-1]))


def missing(offsets: Numbers, start: int, end: int) -> list[tuple[int, int]]:
    """Returns the gaps [begin, end) that rising offsets leave between `start` and `end`."""
    if len(offsets) == end - start and len(offsets) and offsets[0] == start and offsets[-1] == end - 1:
        return []
    edges = np.concatenate(([start - 1], offsets, [end]))
    at = np.flatnonzero(np.diff(edges) > 1)
    return [(int(edges[one]) + 1, int(edges[one + 1])) for one in at]


def with_tags(schema: Schema) -> Schema:
    """Returns the schema with the column `tags`, which the filter needs."""
    return schema if "tags" in schema.names else Schema((*schema.columns, TAGS))


def _chosen(batch: pa.RecordBatch, schema: Schema, tags: tuple[str, ...]) -> pa.RecordBatch:
    mask = pc.is_in(batch.column("tags"), value_set=pa.array(tags, pa.string()))
    return batch.filter(mask).select(list(schema.names))


def _shifted(batch: pa.RecordBatch, delta: int) -> pa.RecordBatch:
    """Adds `delta` to the offset columns, for static topics.

    There a broker counts from another number than the topic.
    """
    for number, name in enumerate(batch.schema.names):
        if name in OFFSETS:
            moved = pc.add(batch.column(number), delta)
            batch = batch.set_column(number, batch.schema.field(number), moved)
    return batch
