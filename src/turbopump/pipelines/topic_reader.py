"""Reads a topic up to its present end as record batches, for exports; Spark has a source of its own.

In: a puller and a `TopicQuery`. Out: batches, queue by queue, each up to the end that its queue had when
reading it began. No group's offsets are changed.
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
from turbopump.pipelines.log.store_reader import RecordsLost, has_tag, is_in_time
from turbopump.pipelines.pull_response import messages_in
from turbopump.pipelines.schema import Schema

log = logging.getLogger(__name__)

MAX_PULL_COUNT = 4096
MAX_PULL_BYTES = 4 * 1024 * 1024
"""Asked for with each pull; a broker gives less when its own limits are lower."""


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """Selects messages of a topic by queue, store time and tag, and the columns to decode."""

    topic: str
    schema: Schema
    queues: frozenset[int] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    tags: frozenset[str] = frozenset()
    is_strict: bool = True
    """Whether messages that are deleted while they are read, or cannot be pulled, are an error."""


async def read_topic(puller: Puller, routes: RouteCache, wanted: TopicQuery) -> AsyncIterator[pa.RecordBatch]:
    """Yields the rows of a topic, queue by queue. Raises RecordsLost if rows are missing and `is_strict`."""
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
        answer = await puller.pull_bytes(queue, offset, tags, MAX_PULL_COUNT, max_bytes=MAX_PULL_BYTES)
        if answer.status is PullStatus.FOUND:
            for batch in rows_of(answer, offset, end, queue.broker, wanted):
                yield batch
        if answer.status is PullStatus.OFFSET_ILLEGAL or answer.next_offset <= offset:
            _lost(queue, offset, min(max(answer.next_offset, offset), end), end, wanted)
        if answer.next_offset <= offset:
            return
        offset = answer.next_offset


def _lost(queue: MessageQueue, offset: int, resumed: int, end: int, wanted: TopicQuery) -> None:
    """Raises RecordsLost for messages that can no longer be pulled; only logs them unless `is_strict`.

    They begin at `offset` and end before `resumed`, or before `end` when no later message can be pulled.
    """
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
    """Decodes the messages of a pull response that match the query and have offsets in [begin, end)."""
    messages = messages_in(answer.body, answer.delta)
    data, offsets = messages.data, messages.offsets
    positions = messages.positions.only((offsets >= begin) & (offsets < end))
    if (in_time := is_in_time(data, positions, wanted.since_ms, wanted.until_ms)) is not None:
        positions = positions.only(in_time)
    if wanted.tags:
        positions = positions.only(has_tag(data, positions, wanted.tags))
    return list(batches(data, positions, wanted.schema, broker, MAX_PULL_COUNT))
