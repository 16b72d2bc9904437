"""A topic at its brokers as record batches, once through: for exports; Spark has a source of its own.

In: a puller and what is wanted. Out: batches, queue by queue, up to where each queue ended when it was begun.
No group's offsets are touched.
"""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pyarrow as pa

from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import PulledBytes, Puller, PullStatus
from turbopump.client.routes import RouteCache
from turbopump.filter import text_of
from turbopump.pipelines.decode import batches
from turbopump.pipelines.inner_batches import has_inner_batches, unpack
from turbopump.pipelines.log.store_reader import RecordsLost, has_tag, is_in_time
from turbopump.pipelines.record_positions import locate, starts_in
from turbopump.pipelines.schema import Schema
from turbopump.protocol.errors import BrokenRecord

log = logging.getLogger(__name__)

PULL_COUNT = 4096
PULL_BYTES = 4 * 1024 * 1024
"""What is asked for at once; a broker gives less when its own limits are lower."""


@dataclass(frozen=True, slots=True)
class TopicQuery:
    topic: str
    schema: Schema
    queues: frozenset[int] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    tags: frozenset[str] = frozenset()
    is_strict: bool = True
    """Whether messages that are deleted while they are read, or cannot be had, are an error."""


async def read_topic(puller: Puller, routes: RouteCache, wanted: TopicQuery) -> AsyncIterator[pa.RecordBatch]:
    """Raises RecordsLost where fewer rows would come than there are, unless that is allowed."""
    for queue in (await routes.refresh(wanted.topic)).subscribe:
        if wanted.queues is None or queue.id in wanted.queues:
            async for batch in _queue(puller, queue, wanted):
                yield batch


async def _queue(puller: Puller, queue: MessageQueue, wanted: TopicQuery) -> AsyncIterator[pa.RecordBatch]:
    offset, end = await puller.min_offset(queue), await puller.max_offset(queue)
    if wanted.since_ms is not None:
        offset = max(offset, await puller.offset_at(queue, wanted.since_ms))
    tags = text_of(sorted(wanted.tags))
    while offset < end:
        answer = await puller.pull_bytes(queue, offset, tags, PULL_COUNT, max_bytes=PULL_BYTES)
        if answer.status is PullStatus.FOUND:
            for batch in rows_of(answer, offset, end, queue.broker, wanted):
                yield batch
        if answer.status is PullStatus.OFFSET_ILLEGAL or answer.next_offset <= offset:
            _lost(queue, offset, min(max(answer.next_offset, offset), end), end, wanted)
        if answer.next_offset <= offset:
            return
        offset = answer.next_offset


def _lost(queue: MessageQueue, offset: int, resumed: int, end: int, wanted: TopicQuery) -> None:
    """Some messages between `offset` and `end` were deleted since the end of the queue was asked for."""
    until = resumed if resumed > offset else end
    place = f"queue {queue.id} of {queue.topic} on {queue.broker}"
    words = f"{place}: {until - offset} messages from offset {offset} on"
    if wanted.is_strict:
        raise RecordsLost(
            f"{words} were deleted before they could be read; export again, or read what is there"
        )
    log.warning("%s were deleted before they could be read, and are missing", words)


def rows_of(
    answer: PulledBytes, begin: int, end: int, broker: str, wanted: TopicQuery
) -> list[pa.RecordBatch]:
    """Of messages between these offsets. Records lie back to back, up to the last byte of the answer."""
    data = answer.body
    places = locate(data, starts_in(data))
    reached = int(places.starts[-1] + places.sizes[-1]) if len(places) else 0
    if reached != len(data) or not places.is_whole.all():
        raise BrokenRecord(f"an answer of {len(data)} bytes, of which {reached} are records")
    if has_inner_batches(places):
        data, starts = unpack(data, places.starts)
        places = locate(data, starts)
    offsets = places.number("queue_offset") + answer.delta
    places = places.only((offsets >= begin) & (offsets < end))
    if (in_time := is_in_time(data, places, wanted.since_ms, wanted.until_ms)) is not None:
        places = places.only(in_time)
    if wanted.tags:
        places = places.only(has_tag(data, places, wanted.tags))
    return list(batches(data, places, wanted.schema, broker, PULL_COUNT))
