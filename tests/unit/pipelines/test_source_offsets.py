import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.offsets import (
    EARLIEST,
    LATEST,
    BadOffsets,
    Ends,
    Range,
    check_topics,
    document_of,
    is_due,
    limited,
    losses,
    lost,
    positions_of,
    queues_of,
    ranges,
    resolved,
    split,
    target,
)


def q(number: int, topic: str = "T", broker: str = "a") -> MessageQueue:
    return MessageQueue(topic, broker, number)


QUEUES = st.builds(q, st.integers(0, 5), st.sampled_from(["T", "%RETRY%g"]), st.sampled_from(["a", "b-1"]))
POSITIONS = st.dictionaries(QUEUES, st.integers(0, 1 << 62))
SPANS = st.dictionaries(QUEUES, st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1)


@given(POSITIONS)
def test_offsets_come_back_from_json(positions):
    if positions:
        assert positions_of(json.loads(json.dumps(document_of(positions)))) == positions


def test_the_document_has_one_order():
    one = document_of({q(10): 1, q(2): 5, q(0, "A"): 3})
    assert json.dumps(one) == '{"A": {"a": {"0": 3}}, "T": {"a": {"2": 5, "10": 1}}}'


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        "T",
        {"T": 5},
        {"T": {"a": [0]}},
        {"T": {"0": 5}},
        {"T": {"a": {"x": 1}}},
        {"T": {"a": {"0": "1"}}},
    ],
)
def test_offsets_of_another_shape_are_refused_with_the_right_one(wrong):
    with pytest.raises(BadOffsets):
        positions_of(wrong)


def test_only_starting_and_ending_offsets_may_say_earliest():
    assert positions_of({"T": {"a": {"0": -2}}}, EARLIEST) == {q(0): -2}
    with pytest.raises(BadOffsets, match="must be 0 or more, got -2"):
        positions_of({"T": {"a": {"0": -2}}})
    with pytest.raises(BadOffsets, match="-2 for the earliest, got -3"):
        positions_of({"T": {"a": {"0": -3}}}, EARLIEST)


def test_assign_names_queues_of_every_broker_or_of_one():
    assert queues_of({"T": [0, 2], "U": {"a": [1]}}) == ({"T": {0, 2}}, {q(1, "U")})
    for wrong in ({}, {"T": []}, {"T": [-1]}, {"T": ["0"]}, {"T": {"a": 1}}, {"T": [True]}):
        with pytest.raises(BadOffsets, match=r"queues must be .*, got"):
            queues_of(wrong)


def test_named_offsets_are_for_all_queues_and_no_other():
    ends = {q(0): Ends(5, 9), q(1): Ends(0, 3)}
    assert resolved({q(0): EARLIEST, q(1): LATEST}, ends) == {q(0): 5, q(1): 3}
    with pytest.raises(BadOffsets, match="missing for queue 1 of T on a: name every queue"):
        resolved({q(0): 7}, ends)
    with pytest.raises(BadOffsets, match="given for queue 0 of U on a, which this query does not read"):
        resolved({q(0): 7, q(1): 1, q(0, "U"): 1}, ends)


def test_a_new_queue_takes_its_place_at_its_earliest_message_and_is_read_afterwards():
    ends = {q(0): Ends(5, 9), q(1): Ends(2, 4)}
    first = target({q(0): 7}, ends)
    assert first == {q(0): 9, q(1): 2}
    assert target(first, ends) == {q(0): 9, q(1): 4}


def test_a_queue_whose_broker_is_away_stands_still_and_one_that_is_gone_is_left():
    start = {q(0): 7, q(0, broker="b"): 3, q(1): 2}
    assert target(start, {q(0): Ends(0, 9)}, [q(0, broker="b")]) == {q(0): 9, q(0, broker="b"): 3}


@given(SPANS, st.integers(1, 5_000))
def test_a_limit_starves_no_queue_and_goes_beyond_no_end(spans, most):
    start = {queue: low for queue, (low, _) in spans.items()}
    end = {queue: low + size for queue, (low, size) in spans.items()}
    got = limited(start, end, most)
    busy = [queue for queue in end if end[queue] > start[queue]]
    assert all(start[queue] < got[queue] <= end[queue] for queue in busy)
    assert sum(got[queue] - start[queue] for queue in busy) <= max(most, len(busy)) + len(busy)
    if sum(end[queue] - start[queue] for queue in busy) <= most:
        assert got == end


def test_a_limit_is_shared_in_proportion():
    start, end = {q(0): 0, q(1): 10, q(2): 0}, {q(0): 900, q(1): 110, q(2): 1}
    assert limited(start, end, 100) == {q(0): 89, q(1): 19, q(2): 1}


@pytest.mark.parametrize(
    ("waiting", "waited_s", "begins"), [(100, 0, True), (99, 0, False), (99, 60, True), (0, 60, False)]
)
def test_a_small_batch_is_put_off_for_a_while(waiting, waited_s, begins):
    assert is_due(waiting, 100, waited_s, 60) is begins


@given(SPANS, st.none() | st.integers(1, 40), st.none() | st.integers(100, 3_000))
def test_tasks_cover_every_range_once_and_in_order(spans, least, most):
    wanted = [Range(queue, low, low + size) for queue, (low, size) in spans.items() if size]
    parts = split(wanted, least, most)
    for one in wanted:
        mine = [part for part in parts if part.queue == one.queue]
        assert (mine[0].start, mine[-1].end) == (one.start, one.end)
        assert all(a.end == b.start and a.size > 0 for a, b in pairwise(mine))
    if most is not None:
        assert all(part.size <= most for part in parts)
    if least is not None:
        assert len(parts) >= min(least, sum(one.size for one in wanted))


def test_one_task_for_each_queue_unless_more_are_asked_for():
    wanted = [Range(q(0), 0, 90), Range(q(1), 5, 15)]
    assert split(wanted, None, None) == split(wanted, 2, None) == wanted
    assert [one.size for one in split(wanted, 10, None)] == [10] * 10
    assert [one.size for one in split(wanted, None, 40)] == [30, 30, 30, 10]


def test_what_is_empty_or_goes_backwards_makes_no_task():
    assert ranges({q(0): 5, q(1): 9, q(2): 1}, {q(0): 5, q(1): 3, q(2): 2, q(3): 7}) == [Range(q(2), 1, 2)]


def test_each_loss_names_its_queue_and_its_cause():
    start = {q(0): 3, q(1): 50, q(2): 1, q(3): 1, q(4): 8}
    told = losses(start, {q(0): Ends(10, 20), q(1): Ends(0, 40), q(4): Ends(8, 8)}, away=[q(3)])
    assert len(told) == 3
    assert told[0].startswith("messages 3 to 9 of queue 0 of T on a are gone: the broker keeps from 10 on")
    assert "queue 1 of T on a ends at 40, but this query had read up to 50" in told[1]
    assert "queue 2 of T on a is gone" in told[2]
    assert "set failOnDataLoss to false" in str(lost(told))


def test_a_checkpoint_of_another_topic_is_refused():
    check_topics({}, [], "T")
    check_topics({q(0): 1, q(1): 2}, [q(1)], "T")
    with pytest.raises(
        BadOffsets, match="checkpoint is of T, and this query reads U: give each query a check"
    ):
        check_topics({q(0): 1}, [q(0)], "U")


def test_a_queue_that_is_not_asked_for_any_more_is_told_as_such():
    (told,) = losses({q(0): 3, q(1): 4}, {q(1): Ends(0, 9)}, unwanted=[q(0)])
    assert told == "queue 0 of T on a was read until 3, and is no longer part of the query"
