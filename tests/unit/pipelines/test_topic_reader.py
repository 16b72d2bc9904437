"""Answers of brokers as rows of an export."""

import asyncio
import logging

import pytest
from tests.unit.client.kit import record

from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import PulledBytes, PullStatus
from turbopump.client.routes import TopicRoute
from turbopump.pipelines.log.store_reader import RecordsLost
from turbopump.pipelines.schema import schema_of
from turbopump.pipelines.topic_reader import TopicQuery, read_topic, rows_of
from turbopump.protocol import batch, inner
from turbopump.protocol.record import encode

QUEUE = MessageQueue("t", "a", 0)


def answer() -> PulledBytes:
    """Two messages alone, with a batch of three between them."""
    packed = record(QUEUE, 1, 5, batch.join([(0, b"m%d" % number, b"") for number in (1, 2, 3)]))
    packed.sys_flag = inner.FLAGS
    packed.properties = b"INNER_NUM\x013\x02INNER_BASE\x011\x02"
    records = [record(QUEUE, 0, 5, b"m0"), packed, record(QUEUE, 4, 5, b"m4")]
    return PulledBytes(PullStatus.FOUND, 5, 0, 5, b"".join(map(encode, records)), 0)


@pytest.mark.parametrize(("begin", "end"), [(0, 5), (1, 4), (2, 3), (0, 2), (3, 5)])
def test_a_batch_is_a_row_for_each_message_from_the_offset_asked_for_to_the_end(begin, end):
    wanted = TopicQuery("t", schema_of(["queueOffset", "body"]))
    rows = [row for part in rows_of(answer(), begin, end, "a", wanted) for row in part.to_pylist()]
    assert rows == [{"queueOffset": at, "body": b"m%d" % at} for at in range(begin, end)]


class Retention:
    """A puller and routes of one queue that had ten messages when it was looked at, and has fewer now."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    async def refresh(self, topic: str) -> TopicRoute:
        return TopicRoute((), (QUEUE,), {})

    async def min_offset(self, queue: MessageQueue) -> int:
        return 0

    async def max_offset(self, queue: MessageQueue) -> int:
        return 10

    async def pull_bytes(self, queue: MessageQueue, offset: int, *_: object, **__: object) -> PulledBytes:
        if offset < self.low:
            return PulledBytes(PullStatus.OFFSET_ILLEGAL, self.low, self.low, self.high, b"", 0)
        if offset >= self.high:
            return PulledBytes(PullStatus.NO_NEW_MSG, offset, self.low, self.high, b"", 0)
        body = encode(record(QUEUE, offset, 10, b"x"))
        return PulledBytes(PullStatus.FOUND, offset + 1, self.low, self.high, body, 0)


async def export(queue: Retention, is_strict: bool) -> list[int]:
    wanted = TopicQuery("t", schema_of(["queueOffset", "body"]), is_strict=is_strict)
    parts = [part async for part in read_topic(queue, queue, wanted)]  # type: ignore[arg-type]
    return [row["queueOffset"] for part in parts for row in part.to_pylist()]


@pytest.mark.parametrize(
    ("low", "high", "lost"), [(4, 10, "4 messages from offset 0"), (0, 7, "3 messages from offset 7")]
)
def test_messages_deleted_while_they_are_read_are_an_error_or_a_warning(low, high, lost, caplog):
    with pytest.raises(RecordsLost, match=f"queue 0 of t on a: {lost} on were deleted"):
        asyncio.run(export(Retention(low, high), is_strict=True))
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(export(Retention(low, high), is_strict=False)) == list(range(low, high))
    assert lost in caplog.text
