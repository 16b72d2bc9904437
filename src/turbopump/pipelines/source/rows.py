"""Parts of a queue into rows: whole batches at a time, no message is touched.

In: records back to back, and which offsets they should have. Out: Arrow batches of the query's columns. What
the broker could only guess (tags by their hash, a filter that looked beyond the range) is put right here, and
a message that is missing in the middle is noticed.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turbopump.pipelines.decode import batches
from turbopump.pipelines.inner_batches import has_inner_batches, unpack
from turbopump.pipelines.record_positions import Mask, Numbers, RecordPositions, locate, starts_in
from turbopump.pipelines.schema import COLUMNS, Schema
from turbopump.pipelines.source.offsets import Range
from turbopump.pipelines.source.range_pull import PulledRecords
from turbopump.pipelines.source.settings import SourceFilter
from turbopump.protocol.errors import BrokenRecord

ROWS = 16_384  # in one batch
TAGS = next(column for column in COLUMNS if column.name == "tags")
OFFSETS = ("queueOffset", "offset")

Lose = Callable[[int, int], None]
"""Told of offsets [start, end) that should be there; raises, or lets it pass."""


def rows_of(
    part: PulledRecords, wanted: Range, schema: Schema, filter: SourceFilter, lose: Lose
) -> Iterator[pa.RecordBatch]:
    data = part.body
    places = locate(data, starts_in(data))
    _check_whole(data, places)
    if has_inner_batches(places):
        data, starts = unpack(data, places.starts)
        places = locate(data, starts)
    offsets = places.number("queue_offset") + part.delta
    wanted_ones = (offsets >= part.start) & (offsets < min(part.end, wanted.end)) & _is_first(offsets)
    places, offsets = places.only(wanted_ones), offsets[wanted_ones]
    if filter.is_all:
        for start, end in missing(offsets, part.start, part.end):
            lose(start, end)
    decoded = with_tags(schema) if filter.tags else schema
    for batch in batches(data, places, decoded, wanted.queue.broker, ROWS):
        chosen = _chosen(batch, schema, filter.tags) if filter.tags else batch
        if chosen.num_rows:
            yield _shifted(chosen, part.delta) if part.delta else chosen


def _is_first(offsets: Numbers) -> Mask:
    """Where messages are missing, a pull goes on beyond where the next one begins: what comes twice, comes
    again behind what is higher."""
    before = np.maximum.accumulate(offsets)
    return np.concatenate((np.ones(min(len(offsets), 1), bool), offsets[1:] > before[:-1]))


def missing(offsets: Numbers, start: int, end: int) -> list[tuple[int, int]]:
    """The gaps between `start` and `end` in offsets that rise."""
    if len(offsets) == end - start and len(offsets) and offsets[0] == start and offsets[-1] == end - 1:
        return []
    edges = np.concatenate(([start - 1], offsets, [end]))
    at = np.flatnonzero(np.diff(edges) > 1)
    return [(int(edges[one]) + 1, int(edges[one + 1])) for one in at]


def with_tags(schema: Schema) -> Schema:
    return schema if "tags" in schema.names else Schema((*schema.columns, TAGS))


def _check_whole(data: bytes, places: RecordPositions) -> None:
    after = int(places.starts[-1] + places.sizes[-1]) if len(places) else 0
    if not places.is_whole.all():
        after = int(places.starts[~places.is_whole][0])
    if after != len(data):
        raise BrokenRecord(f"a broker's answer has something else than records at byte {after}")


def _chosen(batch: pa.RecordBatch, schema: Schema, tags: tuple[str, ...]) -> pa.RecordBatch:
    mask = pc.is_in(batch.column("tags"), value_set=pa.array(tags, pa.string()))
    return batch.filter(mask).select(list(schema.names))


def _shifted(batch: pa.RecordBatch, delta: int) -> pa.RecordBatch:
    """Queues of static topics: the broker counts from another number than the topic."""
    for number, name in enumerate(batch.schema.names):
        if name in OFFSETS:
            moved = pc.add(batch.column(number), delta)
            batch = batch.set_column(number, batch.schema.field(number), moved)
    return batch
