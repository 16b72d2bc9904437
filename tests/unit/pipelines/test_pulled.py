"""Answers of brokers as rows of an export."""

import pytest
from tests.unit.client.kit import record

from turbopump.client.message import MessageQueue
from turbopump.client.pull import PulledBytes, PullStatus
from turbopump.pipelines.pulled import Wanted, rows_of
from turbopump.pipelines.schema import schema_of
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
    wanted = Wanted("t", schema_of(["queueOffset", "body"]))
    rows = [row for part in rows_of(answer(), begin, end, "a", wanted) for row in part.to_pylist()]
    assert rows == [{"queueOffset": at, "body": b"m%d" % at} for at in range(begin, end)]
