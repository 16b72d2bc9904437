"""Between pull and commit: what is not finished is never committed."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.kit import record

from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.process_queue import CacheLimits, ProcessQueue

QUEUE = MessageQueue("t", "a", 0)


def records(*offsets: int, body: bytes = b"x") -> list[MessageExt]:
    return [MessageExt(record(QUEUE, offset, 0, body), QUEUE) for offset in offsets]


def test_the_lowest_unfinished_message_holds_the_offset() -> None:
    held = ProcessQueue(5)
    assert held.committable == 5
    held.put(records(5, 6, 7), 8)
    held.finish(records(6, 7))
    assert held.committable == 5
    held.finish(records(5))
    assert held.committable == 8


def test_what_was_filtered_out_counts_as_done() -> None:
    held = ProcessQueue(0)
    held.put(records(3), 32)
    held.finish(records(3))
    assert held.committable == 32
    held.put([], 64)
    assert held.committable == 64


def test_a_message_pulled_twice_is_held_once() -> None:
    held = ProcessQueue(0)
    held.put(records(0, 1), 2)
    held.put(records(1, 2), 3)
    assert (held.count, held.bytes) == (3, 3)
    held.finish(records(0, 1, 2, 2))
    assert (held.count, held.bytes, held.committable) == (0, 0, 3)


def test_it_is_full_by_count_by_bytes_and_by_span() -> None:
    held = ProcessQueue(0)
    held.put(records(0, 1, body=b"four"), 2)
    assert not held.is_full(CacheLimits(messages=2, bytes=8, span=1))
    assert held.is_full(CacheLimits(messages=1, bytes=8, span=1))
    assert held.is_full(CacheLimits(messages=2, bytes=7, span=1))
    assert held.is_full(CacheLimits(messages=2, bytes=8, span=0))
    held.finish(records(0, 1))
    assert not held.is_full(CacheLimits(messages=0, bytes=0, span=0))


@given(st.integers(1, 40).flatmap(lambda count: st.permutations(range(count))), st.data())
def test_whatever_the_order_a_crash_repeats_and_never_loses(order: list[int], data: st.DataObject) -> None:
    held = ProcessQueue(0)
    held.put(records(*sorted(order)), len(order))
    done: set[int] = set()
    for offset in order[: data.draw(st.integers(0, len(order)))]:
        held.finish(records(offset))
        done.add(offset)
        assert set(range(held.committable)) <= done
        assert held.committable == min(set(range(len(order) + 1)) - done)
