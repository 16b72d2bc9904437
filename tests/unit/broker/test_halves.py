"""Open transactions as a state machine: what is open, and what a round does about it."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as some

from turbopump.broker.transactions.halves import (
    CheckRules,
    CheckStep,
    OpenHalf,
    OpenHalves,
    immunity_ms,
    step,
)

RULES = CheckRules(timeout_ms=6000, max_checks=15, lifetime_ms=100_000)


def half(offset: int, root: int | None = None) -> OpenHalf:
    return OpenHalf(offset, 100 * offset, 0, offset if root is None else root)


def test_a_transaction_is_found_by_its_root_and_by_its_open_record() -> None:
    halves = OpenHalves()
    first = half(1)
    halves.add(first)
    copy = halves.renew(first, 5, 500)
    again = halves.renew(copy, 6, 600)
    assert halves.find(1) is halves.find(6) is again
    assert halves.find(5) is None
    assert not halves.is_open(first)
    assert not halves.is_open(copy)
    halves.close(again)
    assert halves.find(1) is halves.find(6) is halves.first is None


def test_those_before_a_place_in_the_log_come_oldest_first_and_may_be_renewed_meanwhile() -> None:
    halves = OpenHalves()
    for offset in range(5):
        halves.add(half(offset))
    seen = []
    for one in halves.below(300):
        seen.append(one.offset)
        halves.renew(one, 10 + one.offset, 1000 + one.offset)
    assert seen == [0, 1, 2]
    assert [one.offset for one in halves.all()] == [3, 4, 10, 11, 12]


@pytest.mark.parametrize(
    ("asked", "born_ms", "due_ms", "is_far", "now_ms", "what"),
    [
        (0, 1000, 7000, False, 6999, CheckStep.WAIT),
        (0, 1000, 7000, False, 7000, CheckStep.WAIT),
        (0, 1000, 7000, False, 7001, CheckStep.ASK),
        (14, 1000, 7000, False, 50_000, CheckStep.ASK),
        (15, 1000, 7000, False, 50_000, CheckStep.EXPIRE),
        (0, 1000, 200_000, True, 50_000, CheckStep.MOVE),
        (0, 1000, 7000, True, 50_000, CheckStep.ASK),
        (0, 1000, 7000, False, 101_000, CheckStep.ASK),
        (0, 1000, 200_000, False, 101_001, CheckStep.EXPIRE),
    ],
)
def test_what_a_round_does(
    asked: int, born_ms: int, due_ms: int, is_far: bool, now_ms: int, what: CheckStep
) -> None:
    assert step(asked, born_ms, due_ms, is_far, now_ms, RULES) is what


@pytest.mark.parametrize(
    ("wish", "immune_ms"),
    [
        (None, 6000),
        ("", 6000),
        ("-1", 6000),
        ("x", 6000),
        ("5", 6000),
        ("7", 7000),
        ("3600", 3_600_000),
        ("9" * 30, 6000),
    ],
)
def test_a_message_can_ask_for_more_time_and_not_for_less(wish: str | None, immune_ms: int) -> None:
    assert immunity_ms(wish, 6000) == immune_ms


@given(some.lists(some.tuples(some.sampled_from(["add", "renew", "close"]), some.integers(0, 30))))
def test_whatever_happens_each_open_transaction_has_one_record(events: list[tuple[str, int]]) -> None:
    halves = OpenHalves()
    model: dict[int, int] = {}  # root -> its open record
    end = 0
    for what, number in events:
        if what == "add":
            halves.add(half(end))
            model[end] = end
            end += 1
        elif model:
            root = sorted(model)[number % len(model)]
            found = halves.find(root)
            assert found is not None
            if what == "renew":
                halves.renew(found, end, 100 * end)
                model[root] = end
                end += 1
            else:
                halves.close(found)
                del model[root]
        assert {one.root: one.offset for one in halves.all()} == model
        assert [one.offset for one in halves.all()] == sorted(model.values())
        assert (halves.first.offset if halves.first else None) == min(model.values(), default=None)


def test_an_open_transaction_takes_little_memory() -> None:
    assert sys.getsizeof(half(10**6)) <= 56
