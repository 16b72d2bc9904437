"""Ranges of a queue from a broker that limits, forgets, restarts and filters: all of it comes, in order."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples

from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import PulledBytes, PullStatus
from turbopump.pipelines.schema import Schema, schema_of
from turbopump.pipelines.source import range_pull
from turbopump.pipelines.source.offsets import DataLost, Range
from turbopump.pipelines.source.range_pull import MAX_PULLS_IN_FLIGHT, PulledRecords, RangePull
from turbopump.pipelines.source.rows import missing, rows_of
from turbopump.pipelines.source.settings import SourceFilter
from turbopump.protocol import record as codec
from turbopump.protocol.errors import AccessRefused, BrokenRecord, Refused, refusal
from turbopump.protocol.ids import pack_host
from turbopump.protocol.record import Record
from turbopump.testing import run_virtual

QUEUE = MessageQueue("T", "a", 1)
HOST = pack_host("10.1.2.3", 10911)
TAGGED = SourceFilter("x || y", "TAG", ("x", "y"))


def stored(offset: int, tag: str = "", size: int = 4) -> bytes:
    properties = b"TAGS\x01" + tag.encode() + b"\x02" if tag else b""
    body = b"%08d" % offset + bytes(size)
    return codec.encode(
        Record("T", 1, 0, offset, offset * 100, 0, 1, HOST, 2, HOST, body=body, properties=properties)
    )


@dataclass
class Broker:
    """Has `low` to `high`; gives `most` at once; what is done before each pull is up to the test."""

    low: int = 0
    high: int = 100
    most: int = 32
    scan: int = 40
    tag_of: Callable[[int], str] = field(default=lambda offset: "")
    size_of: Callable[[int], int] = field(default=lambda offset: 4)
    before: Callable[["Broker", int], None] = field(default=lambda broker, pulls: None)
    removed: frozenset[int] = frozenset()
    delta: int = 0
    pulls: int = 0
    asked: list[int] = field(default_factory=list)
    reset: bool = False

    async def pull_bytes(
        self, queue, offset, expression="*", max_count=32, *, kind="TAG", max_bytes=1, timeout_s=1.0
    ):
        self.pulls += 1
        self.asked.append(offset)
        self.before(self, self.pulls)
        if self.reset:
            self.reset = False
            return self._answer(PullStatus.OFFSET_ILLEGAL, 0)
        if offset < self.low:
            return self._answer(PullStatus.OFFSET_ILLEGAL, self.low)
        if offset >= self.high:
            status = PullStatus.NO_NEW_MSG if offset == self.high else PullStatus.OFFSET_ILLEGAL
            return self._answer(status, self.high)
        return self._found(offset, expression, max_count)

    def _found(self, offset: int, expression: str, max_count: int) -> PulledBytes:
        body, count, at = b"", 0, offset
        while at < self.high and count < min(max_count, self.most) and at < offset + self.scan:
            tag = self.tag_of(at)
            if at not in self.removed and (
                expression == "*" or tag in expression.split(" || ") or tag == "collides"
            ):
                body += stored(at - self.delta, tag, self.size_of(at))
                count += 1
            at += 1
        status = PullStatus.FOUND if count else PullStatus.NO_MATCHED_MSG
        return self._answer(status, at, body)

    def _answer(self, status: PullStatus, after: int, body: bytes = b"") -> PulledBytes:
        return PulledBytes(status, after, self.low, self.high, body, self.delta)


def read(
    broker: Broker,
    start: int,
    end: int,
    filter: SourceFilter = SourceFilter(),  # noqa: B008
    fails: bool = True,
    patience_s: float = 30.0,
    count: int = 4096,
) -> list[PulledRecords]:
    async def gather() -> list[PulledRecords]:
        wanted = Range(QUEUE, start, end)
        reading = RangePull(broker, lambda topic: None, wanted, filter, count, patience_s, fails)
        return [part async for part in reading.parts()]

    return run_virtual(gather())


def offsets(
    parts: list[PulledRecords],
    end: int = 1 << 40,
    filter: SourceFilter = SourceFilter(),  # noqa: B008
) -> list[int]:
    found = []
    for part in parts:
        wanted = Range(QUEUE, part.start, end)
        for batch in rows_of(part, wanted, schema_of(["queueOffset"]), filter, _fail):
            found += batch.column(0).to_pylist()
    return found


def _fail(start: int, end: int) -> None:
    raise AssertionError(f"{start} to {end} are missing")


@examples(60)
@given(st.integers(0, 300), st.integers(0, 600), st.integers(1, 90), st.integers(1, 64))
def test_a_range_comes_whole_and_in_order_whatever_the_broker_gives_at_once(start, size, most, count):
    broker = Broker(high=start + size + 7, most=most, scan=1000)
    assert offsets(read(broker, start, start + size, count=count)) == list(range(start, start + size))


def test_several_pulls_are_under_way_and_none_is_made_twice():
    broker = Broker(high=3200)
    assert offsets(read(broker, 0, 3200)) == list(range(3200))
    assert broker.pulls <= 3200 // 32 + MAX_PULLS_IN_FLIGHT


def test_large_messages_are_followed_by_small_ones_without_small_pulls_for_ever(monkeypatch):
    monkeypatch.setattr(range_pull, "PART_BYTES", 100_000)
    broker = Broker(high=2000, most=64)
    broker.before = lambda here, pulls: setattr(here, "most", 1 if pulls <= 4 else 64)
    parts = read(broker, 0, 2000)
    assert offsets(parts) == list(range(2000))
    assert len(parts) > 1
    assert broker.pulls < 300


def test_sparse_filters_get_to_the_end_of_the_range_and_not_beyond():
    tags = {7: "x", 500: "y", 900: "x", 1001: "x", 1002: "collides", 901: "collides"}
    broker = Broker(high=1100, tag_of=lambda offset: tags.get(offset, "z"))
    parts = read(broker, 0, 1000, TAGGED)
    assert offsets(parts, 1000, TAGGED) == [7, 500, 900]
    assert max(broker.asked) < 1000


def test_a_filter_that_matches_nothing_ends_too():
    assert read(Broker(high=1000), 0, 1000, TAGGED) == []


def test_what_retention_took_before_the_range_fails_it_or_is_passed_over():
    with pytest.raises(DataLost, match="messages 0 to 39 of queue 1 of T on a are gone"):
        read(Broker(low=40), 0, 100)
    assert offsets(read(Broker(low=40), 0, 100, fails=False)) == list(range(40, 100))
    assert read(Broker(low=140, high=150), 0, 100, fails=False) == []


def test_what_retention_takes_while_it_is_read_is_noticed():
    def delete(broker: Broker, pulls: int) -> None:
        broker.low = 70 if pulls > 1 else 0

    with pytest.raises(DataLost, match="messages 32 to 63"):
        read(Broker(before=delete), 0, 100)
    kept = offsets(read(Broker(before=delete), 0, 100, fails=False))
    assert kept == [*range(32), *range(70, 100)]


def test_a_message_that_is_missing_in_the_middle_is_noticed():
    (part,) = read(Broker(removed=frozenset({5, 50, 51})), 0, 100)
    lost: list[tuple[int, int]] = []
    wanted, schema = Range(QUEUE, 0, 100), schema_of(["queueOffset"])
    rows = list(rows_of(part, wanted, schema, SourceFilter(), lambda start, end: lost.append((start, end))))
    assert lost == [(5, 6), (50, 52)]
    assert sum(batch.num_rows for batch in rows) == 97


def test_files_that_are_just_being_deleted_are_a_loss():
    broker = Broker(removed=frozenset(range(32, 96)), most=32, scan=32)
    with pytest.raises(DataLost, match="messages 32 to"):
        read(broker, 0, 128, count=32)


def test_a_queue_that_has_become_shorter_is_waited_for_and_then_a_loss():
    with pytest.raises(DataLost, match=r"messages 50 to 63 .* it ends at 50"):
        read(Broker(high=50), 0, 100)
    assert offsets(read(Broker(high=50), 0, 100, fails=False)) == list(range(50))
    late = Broker(high=50, before=lambda broker, pulls: setattr(broker, "high", 50 if pulls < 9 else 100))
    assert offsets(read(late, 0, 100)) == list(range(100))


def test_offsets_of_the_group_that_are_reset_do_not_move_the_reading():
    broker = Broker(before=lambda broker, pulls: setattr(broker, "reset", pulls in (1, 3)))
    assert offsets(read(broker, 10, 90)) == list(range(10, 90))


@pytest.mark.parametrize("failure", [ConnectionRefusedError("nobody"), TimeoutError(), refusal(2, "busy")])
def test_a_broker_that_restarts_is_waited_for(failure):
    def restart(broker: Broker, pulls: int) -> None:
        if 2 <= pulls < 30:
            raise failure

    assert offsets(read(Broker(before=restart), 0, 100)) == list(range(100))


def test_a_broker_that_stays_away_fails_the_task_in_the_end():
    def gone(broker: Broker, pulls: int) -> None:
        raise ConnectionRefusedError("nobody there")

    with pytest.raises(TimeoutError, match=r"could not be read for 30.0 s \(pullTimeoutMs\): nobody there"):
        read(Broker(before=gone), 0, 100)


def test_what_a_broker_refuses_for_good_is_told_at_once():
    def forbid(broker: Broker, pulls: int) -> None:
        raise refusal(16, "pulling is forbidden")

    broker = Broker(before=forbid)
    with pytest.raises(Refused, match="forbidden"):
        read(broker, 0, 100)
    assert broker.pulls == 1


@pytest.mark.parametrize("nth", [1, 2, 3, 5])
def test_a_right_that_is_taken_away_in_the_middle_fails_the_range_and_leaves_no_row_out(nth):
    def forbid(broker: Broker, pulls: int) -> None:
        if pulls >= nth:
            raise refusal(
                16, "User:u has no permission to access Topic:T from 10.0.0.1, no matched policies."
            )

    for fails in (True, False):
        with pytest.raises(AccessRefused, match="no matched policies"):
            read(Broker(before=forbid), 0, 160, fails=fails)


def test_a_broker_that_gives_nothing_of_what_it_has_fails_the_task():
    class Mute(Broker):
        def _found(self, offset: int, expression: str, max_count: int) -> PulledBytes:
            return self._answer(PullStatus.NO_MATCHED_MSG, offset)

    with pytest.raises(TimeoutError, match=r"returned nothing at 0 for 30.0 s, although it has 0 to 99"):
        read(Mute(), 0, 100)


def test_offsets_of_static_topics_are_the_topics():
    parts = read(Broker(low=1000, high=1100, delta=1000), 1000, 1100)
    assert offsets(parts) == list(range(1000, 1100))


# rows


def rows(part: PulledRecords, columns: Schema, filter: SourceFilter) -> pa.Table:
    found = rows_of(part, Range(QUEUE, part.start, part.end), columns, filter, _fail)
    return pa.Table.from_batches(list(found), columns.arrow)


def test_tags_whose_hash_collides_are_sorted_out_and_leave_no_column():
    data = b"".join(stored(n, tag) for n, tag in enumerate(["x", "collides", "y", "", "x"]))
    columns = schema_of(["queueOffset", "brokerName"])
    table = rows(PulledRecords(0, 5, data), columns, TAGGED)
    assert table.column_names == ["queueOffset", "brokerName"]
    assert table.to_pydict() == {"queueOffset": [0, 2, 4], "brokerName": ["a"] * 3}


def test_an_answer_with_something_else_behind_its_records_is_refused():
    with pytest.raises(BrokenRecord, match="must hold records alone, got others at byte"):
        rows(PulledRecords(0, 2, stored(0) + b"\0" * 50), schema_of(), SourceFilter())


@pytest.mark.parametrize(
    ("there", "gaps"),
    [([3, 4, 5], []), ([4, 5], [(3, 4)]), ([3, 4], [(5, 6)]), ([3, 5], [(4, 5)]), ([], [(3, 6)])],
)
def test_gaps(there, gaps):
    assert missing(np.array(there, np.int64), 3, 6) == gaps
