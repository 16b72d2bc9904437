"""The checker of queues: right histories pass, each planted anomaly is named, and nothing else with it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.failures.linear import (
    OPEN,
    AppendCall,
    Leadership,
    QueueAnomaly,
    ReadCall,
    check,
    shared_terms,
)

FIRST, SECOND = Leadership(1, 0), Leadership(2, 1)
A = AppendCall(0, "a", 1.0, 2.0, 0, FIRST)
B = AppendCall(0, "b", 3.0, 4.0, 1, FIRST)
C = AppendCall(0, "c", 5.0, 6.0, 2, FIRST)
APPENDS = (A, B, C)
FINAL = ("a", "b", "c")


def names(
    appends: Sequence[AppendCall], reads: Sequence[ReadCall], final: Sequence[str]
) -> list[QueueAnomaly]:
    return [anomaly for anomaly, _ in check(appends, reads, final)]


def showed(called: float, *found: tuple[int, str], leadership: Leadership | None = FIRST) -> ReadCall:
    """A pull that was answered with messages."""
    return ReadCall(0, called, called + 0.5, 0, found, found[-1][0] + 1, None, leadership)


def ended(called: float, length: int, leadership: Leadership | None = FIRST) -> ReadCall:
    """An answer that says how long the queue is."""
    return ReadCall(0, called, called + 0.5, 0, (), length, length, leadership)


def test_appends_one_after_another_are_linearizable() -> None:
    assert check(APPENDS, [], FINAL) == []


def test_appends_that_overlap_may_stand_in_any_order() -> None:
    early, late = replace(A, returned=9.0, offset=1), replace(B, returned=9.0, offset=0)
    assert check([early, late], [], ("b", "a")) == []


def test_an_open_append_may_have_happened_late_or_never() -> None:
    unknown = AppendCall(0, "x", 0.5, OPEN)
    assert check([*APPENDS, unknown], [], FINAL) == []
    assert check([*APPENDS, unknown], [], (*FINAL, "x")) == []
    assert (
        check([unknown, *(replace(one, offset=one.offset + 1) for one in APPENDS)], [], ("x", *FINAL)) == []
    )


def test_a_read_during_an_append_may_show_it_or_not() -> None:
    during = [ended(3.2, 1), showed(3.2, (0, "a"), (1, "b")), ended(3.3, 2)]
    assert check(APPENDS, during, FINAL) == []


def test_a_lost_message_is_named() -> None:
    assert names(APPENDS, [], ("a", "b")) == [QueueAnomaly.LOST]


def test_a_duplicate_is_named() -> None:
    assert names(APPENDS, [], (*FINAL, "b")) == [QueueAnomaly.DUPLICATE]


def test_a_message_at_another_offset_than_acknowledged_is_named() -> None:
    final = ("a", "c", "b")
    assert names(APPENDS, [], final).count(QueueAnomaly.MOVED) == 2


def test_a_reordered_message_is_named() -> None:
    swapped = [A, replace(B, offset=2), replace(C, offset=1)]
    assert names(swapped, [], ("a", "c", "b")) == [QueueAnomaly.REORDERED]


def test_an_open_append_that_stands_before_one_acknowledged_before_its_call_is_named() -> None:
    late = AppendCall(0, "x", 2.5, OPEN)
    shifted = [replace(one, offset=one.offset + 1) for one in APPENDS]
    assert names([late, *shifted], [], ("x", *FINAL)) == [QueueAnomaly.REORDERED]


def test_a_changed_value_is_named() -> None:
    unknown = AppendCall(0, "x", 4.5, OPEN)
    read = showed(7.0, (2, "x"))
    assert names([*APPENDS, unknown], [read], FINAL) == [QueueAnomaly.CHANGED, QueueAnomaly.VANISHED]


def test_a_value_that_was_read_and_is_gone_is_named_though_nobody_has_acknowledged_it() -> None:
    unknown = AppendCall(0, "x", 4.5, OPEN)
    read = ReadCall(0, 7.0, 7.5, 0, ((3, "x"),), 0)
    assert names([*APPENDS, unknown], [read], FINAL) == [QueueAnomaly.VANISHED]


def test_a_message_that_nobody_has_sent_is_named() -> None:
    assert names(APPENDS, [], (*FINAL, "y")) == [QueueAnomaly.FOREIGN]


def test_a_hole_in_the_queue_is_named() -> None:
    apart = [A, replace(B, offset=2)]
    assert names(apart, [], ("a", "", "b")) == [QueueAnomaly.GAP]


def test_a_maximum_that_the_queue_has_not_at_the_end_is_named() -> None:
    assert names(APPENDS, [ended(7.0, 4)], FINAL) == [QueueAnomaly.SHRUNK]


def test_a_message_that_was_read_before_it_was_sent_is_named() -> None:
    assert names(APPENDS, [showed(2.1, (0, "a"), (1, "b"))], FINAL) == [QueueAnomaly.FUTURE]


def test_a_maximum_below_what_its_leader_has_acknowledged_is_named_stale() -> None:
    assert names(APPENDS, [ended(4.5, 1)], FINAL) == [QueueAnomaly.STALE]


def test_a_pull_that_finds_nothing_where_a_message_was_acknowledged_is_named_stale() -> None:
    nothing = ReadCall(0, 6.5, 7.0, 0, (), 2, 2, FIRST)
    assert names(APPENDS, [nothing], FINAL) == [QueueAnomaly.STALE]


def test_a_maximum_that_shrinks_between_two_reads_is_named_stale() -> None:
    unknown = AppendCall(0, "x", 6.5, OPEN)
    reads = [ended(7.0, 4), ended(8.0, 3)]
    assert names([*APPENDS, unknown], reads, (*FINAL, "x")) == [QueueAnomaly.STALE]


def test_a_leader_must_show_what_a_leader_before_it_acknowledged() -> None:
    after = AppendCall(0, "d", 7.0, 8.0, 3, SECOND)
    read = ended(9.0, 2, SECOND)
    assert names([*APPENDS, after], [read], (*FINAL, "d")) == [QueueAnomaly.STALE]


def test_a_leader_that_was_replaced_may_not_know_what_its_successor_acknowledged() -> None:
    after = AppendCall(0, "d", 7.0, 8.0, 3, SECOND)
    read = ended(9.0, 3, FIRST)
    assert names([*APPENDS, after], [read], (*FINAL, "d")) == [QueueAnomaly.DEPOSED]


def test_a_broker_that_has_acknowledged_nothing_in_its_term_may_still_serve_as_a_follower() -> None:
    assert check(APPENDS, [ended(9.0, 1, SECOND)], FINAL) == []


def test_a_read_at_a_follower_may_be_behind_and_must_be_right() -> None:
    assert check(APPENDS, [ended(9.0, 1, None)], FINAL) == []
    wrong = showed(9.0, (0, "b"), leadership=None)
    assert QueueAnomaly.CHANGED in names(APPENDS, [wrong], FINAL)


def test_two_leaders_of_one_term_are_found() -> None:
    assert shared_terms([FIRST, SECOND, Leadership(2, 2), FIRST]) == [2]


@pytest.mark.parametrize("seed", range(30))
def test_histories_of_a_real_list_pass_and_a_swap_in_one_does_not(seed: int) -> None:
    """Calls get an instant between call and return, and what the list is then is their answer."""
    chance = random.Random(seed)
    appends, reads, final = _made(chance)
    assert check(appends, reads, final) == []
    acknowledged = [one for one in appends if one.returned != OPEN]
    first, last = acknowledged[0], acknowledged[-1]
    swapped = list(final)
    swapped[first.offset], swapped[last.offset] = last.value, first.value
    changed = [
        replace(one, offset=last.offset if one is first else first.offset) if one in (first, last) else one
        for one in appends
    ]
    assert QueueAnomaly.REORDERED in names(changed, [], swapped)


def _made(chance: random.Random) -> tuple[list[AppendCall], list[ReadCall], list[str]]:
    instants = sorted(chance.uniform(0, 100) for _ in range(300))
    appends: list[AppendCall] = []
    reads: list[ReadCall] = []
    queue: list[str] = []
    for number, at in enumerate(instants):
        called, returned = at - chance.uniform(0, 3), at + chance.uniform(0, 3)
        kind = chance.choice(["append", "open", "never", "read"])
        if kind == "read":
            begin = chance.randint(0, len(queue))
            found = tuple(enumerate(queue))[begin : begin + 5]
            most = None if found else len(queue)
            reads.append(ReadCall(0, called, returned, 0, found, begin + len(found), most, FIRST))
            continue
        value = f"m{number}"
        ack = kind == "append"
        offset = len(queue) if ack else -1
        appends.append(
            AppendCall(0, value, called, returned if ack else OPEN, offset, FIRST if ack else None)
        )
        if kind != "never":
            queue.append(value)
    return appends, reads, queue


@pytest.mark.parametrize("seed", range(400))
def test_the_sweep_agrees_with_a_search_over_all_orders(seed: int) -> None:
    """Small histories, of which about half had an answer or an instant changed."""
    chance = random.Random(seed)
    appends, reads, final = _small(chance)
    assert (check(appends, reads, final) == []) == _has_an_order(appends, reads, final), (
        appends,
        reads,
        final,
    )


def test_the_search_sees_both_kinds_of_histories() -> None:
    verdicts = [_has_an_order(*_small(random.Random(seed))) for seed in range(400)]
    assert 100 < sum(verdicts) < 300


def _small(chance: random.Random) -> tuple[list[AppendCall], list[ReadCall], list[str]]:
    """A queue that has its first message, then some calls that overlap; some answers are changed."""
    appends, reads, queue = [AppendCall(0, "first", -2.0, -1.0, 0, FIRST)], [], ["first"]
    for number in range(chance.randint(3, 5)):
        called, returned = number - chance.uniform(0, 2) + 1, number + chance.uniform(0, 2) + 1
        if chance.random() < 0.5:
            found = tuple(enumerate(queue))[chance.randint(0, len(queue)) :]
            length = len(queue)
            reads.append(
                ReadCall(0, called, returned, 0, found, length, chance.choice([length, None]), FIRST)
            )
            continue
        is_open = chance.random() < 0.3
        offset, end = (-1, OPEN) if is_open else (len(queue), returned)
        appends.append(AppendCall(0, f"m{number}", called, end, offset, FIRST))
        if not is_open or chance.random() < 0.5:
            queue.append(f"m{number}")
    for _ in range(chance.choice([0, 1, 2, 3])):
        _change(chance, appends, reads, queue)
    return appends, reads, queue


def _change(
    chance: random.Random, appends: list[AppendCall], reads: list[ReadCall], queue: list[str]
) -> None:
    kind = chance.choice(["swap", "drop", "read", "time", "time"])
    if kind == "swap" and len(queue) > 2:
        one, other = chance.sample(range(1, len(queue)), 2)
        queue[one], queue[other] = queue[other], queue[one]
        for at, append in enumerate(appends):
            if append.returned != OPEN and append.value in queue:
                appends[at] = replace(append, offset=queue.index(append.value))
        reads[:] = [replace(read, found=tuple(enumerate(queue))[: read.least]) for read in reads]
    elif kind == "drop" and len(queue) > 1:
        queue.pop()
    elif kind == "read" and reads:
        at = chance.randrange(len(reads))
        length = max(0, reads[at].least + chance.choice([-1, 1]))
        reads[at] = replace(reads[at], found=(), least=length, most=length)
    elif reads:
        at = chance.randrange(len(reads))
        shift = chance.uniform(-3, 3)
        called = max(-0.9, reads[at].called + shift)
        reads[at] = replace(reads[at], called=called, returned=max(called + 0.1, reads[at].returned + shift))


def _has_an_order(appends: Sequence[AppendCall], reads: Sequence[ReadCall], final: Sequence[str]) -> bool:
    """Whether some order of all calls explains every answer; open appends may be left out."""
    calls = [*appends, *reads]

    def goes_on(left: frozenset[int], queue: tuple[str, ...]) -> bool:
        must = [at for at in left if calls[at].returned != OPEN]
        if not must and queue == tuple(final):
            return True
        first_return = min((calls[at].returned for at in left), default=OPEN)
        return any(
            goes_on(left - {at}, after)
            for at in left
            if calls[at].called <= first_return and (after := _after(calls[at], queue)) is not None
        )

    return goes_on(frozenset(range(len(calls))), ())


def _after(call: AppendCall | ReadCall, queue: tuple[str, ...]) -> tuple[str, ...] | None:
    """Returns the queue after a call, or None when the call cannot have had its answer then."""
    if isinstance(call, AppendCall):
        is_there = call.returned == OPEN or call.offset == len(queue)
        return (*queue, call.value) if is_there else None
    is_right = call.least <= len(queue) and (call.most is None or len(queue) <= call.most)
    shown = all(at < len(queue) and queue[at] == value for at, value in call.found)
    return queue if is_right and shown else None
