"""What a pull consumer holds and may commit."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.kit import record

from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.pull.prefetch_buffer import PrefetchBuffer, PrefetchBuffers
from turbopump.client.push.process_queue import CacheLimits

FIRST, SECOND = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)


def messages(queue: MessageQueue, *offsets: int, size: int = 1) -> list[MessageExt]:
    return [MessageExt(record(queue, offset, 1, b"x" * size), queue) for offset in offsets]


def buffers(limits: CacheLimits | None = None, max_count: int = 100, per_turn: int = 2) -> PrefetchBuffers:
    return PrefetchBuffers(limits or CacheLimits(), max_count, per_turn, lambda: 7)


def held(of: PrefetchBuffers, queue: MessageQueue, *offsets: int, start: int = 0) -> PrefetchBuffer:
    buffer = PrefetchBuffer(queue, start)
    of.add(buffer)
    of.put(buffer, messages(queue, *offsets), offsets[-1] + 1)
    return buffer


def offsets(given: list[MessageExt]) -> list[int]:
    return [message.offset for message in given]


def test_what_is_in_hand_is_done_when_it_is_settled() -> None:
    all_shelves = buffers()
    buffer = held(all_shelves, FIRST, 0, 1, 2, 5)
    assert (buffer.position, buffer.done) == (0, 0)
    assert offsets(all_shelves.take(2)) == [0, 1]
    assert (buffer.position, buffer.done) == (2, 0)
    assert offsets(all_shelves.take(1)) == [2]
    assert (buffer.position, buffer.done) == (5, 0)
    all_shelves.settle()
    assert buffer.done == 5
    all_shelves.take(1)
    all_shelves.settle()
    assert buffer.done == 6


def test_what_a_filter_passed_over_is_done_too() -> None:
    buffer = PrefetchBuffer(FIRST, 10)
    buffer.put([], 40)
    assert buffer.done == 40


def test_an_emptied_shelf_pulls_again_what_was_not_given_out_and_remembers_what_is_in_hand() -> None:
    all_shelves = buffers()
    buffer = held(all_shelves, FIRST, 0, 1, 2)
    all_shelves.take(2)
    anew = buffer.emptied()
    all_shelves.add(anew)
    assert (anew.next_offset, anew.done, all_shelves.count) == (2, 0, 0)
    all_shelves.settle()
    assert anew.done == 2


def test_queues_take_turns() -> None:
    all_shelves = buffers()
    held(all_shelves, FIRST, 0, 1, 2, 3)
    held(all_shelves, SECOND, 0, 1, 2)
    given = [all_shelves.take(10) for _ in range(4)]
    assert [(batch[0].queue.id, offsets(batch)) for batch in given] == [
        (0, [0, 1]),
        (1, [0, 1]),
        (0, [2, 3]),
        (1, [2]),
    ]
    assert all_shelves.take(10) == []


def test_one_by_one_a_queue_keeps_its_turn_for_as_long() -> None:
    all_shelves = buffers()
    held(all_shelves, FIRST, 0, 1, 2, 3)
    held(all_shelves, SECOND, 0, 1)
    assert [all_shelves.take(1)[0].queue.id for _ in range(6)] == [0, 0, 1, 1, 0, 0]


def test_a_paused_or_removed_queue_has_no_turn() -> None:
    all_shelves = buffers()
    first = held(all_shelves, FIRST, 0, 1)
    held(all_shelves, SECOND, 0, 1)
    all_shelves.pause(first, True)
    assert all_shelves.take(10)[0].queue == SECOND
    assert all_shelves.take(10) == []
    all_shelves.pause(first, False)
    assert offsets(all_shelves.take(1)) == [0]
    all_shelves.remove(FIRST)
    assert (all_shelves.take(10), all_shelves.count, first.dropped) == ([], 0, True)


def test_each_limit_makes_a_shelf_full() -> None:
    by_count = buffers(CacheLimits(messages=3))
    assert not by_count.is_full(held(by_count, FIRST, 0, 1))
    assert by_count.is_full(held(by_count, FIRST, 0, 1, 2))
    by_span = buffers(CacheLimits(span=10))
    assert not by_span.is_full(held(by_span, FIRST, 0, 10))
    assert by_span.is_full(held(by_span, FIRST, 0, 11))
    by_bytes = buffers(CacheLimits(bytes=10))
    buffer = PrefetchBuffer(FIRST, 0)
    by_bytes.add(buffer)
    by_bytes.put(buffer, messages(FIRST, 0, size=9), 1)
    assert not by_bytes.is_full(buffer)
    by_bytes.put(buffer, messages(FIRST, 1, size=1), 2)
    assert by_bytes.is_full(buffer)
    by_bytes.take(1)
    assert not by_bytes.is_full(buffer)
    of_all = buffers(max_count=4)
    held(of_all, FIRST, 0, 1, 2)
    assert of_all.is_full(held(of_all, SECOND, 0))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(0, 4)),
        st.tuples(st.just("take"), st.integers(0, 0), st.integers(1, 5)),
        st.tuples(st.sampled_from(["pause", "resume", "empty", "settle"]), st.integers(0, 2), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_is_done_each_queue_gives_all_its_messages_once_and_in_order(
    steps: list[tuple[str, int, int]],
) -> None:
    all_shelves = buffers(per_turn=3)
    queues = [MessageQueue("t", "a", number) for number in range(3)]
    for queue in queues:
        all_shelves.add(PrefetchBuffer(queue, 0))
    seen: dict[MessageQueue, list[int]] = {queue: [] for queue in queues}
    settled = dict.fromkeys(queues, 0)
    for step, number, count in steps:
        buffer = all_shelves.find(queues[number])
        assert buffer is not None
        match step:
            case "put":
                next_offset = buffer.next_offset + count
                coming = messages(buffer.queue, *range(buffer.next_offset, next_offset))
                all_shelves.put(buffer, coming, next_offset)
            case "take":
                for message in all_shelves.take(count):
                    seen[message.queue].append(message.offset)
            case "pause" | "resume":
                all_shelves.pause(buffer, step == "pause")
            case "empty":
                all_shelves.add(buffer.emptied())
            case "settle":
                all_shelves.settle()
                settled = {queue: len(offsets) for queue, offsets in seen.items()}
        assert all_shelves.count == sum(len(buffer) for buffer in all_shelves)
        for buffer in all_shelves:
            assert seen[buffer.queue] == list(range(buffer.position))
            assert buffer.done == settled[buffer.queue]
