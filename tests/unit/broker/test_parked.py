"""Pulls that wait: who is woken by what."""

from collections.abc import Callable
from dataclasses import dataclass

from turbopump.broker.consume.parked import ParkedPulls


@dataclass(eq=False)
class Waiter:
    queue: str
    offset: int
    accepts: Callable[[int], bool] | None = None
    matches: Callable[[bytes], bool] | None = None


def no_message() -> bytes:
    raise AssertionError("nobody chooses by properties")


def parked(*waiters: Waiter, limit: int = 100) -> ParkedPulls[Waiter]:
    pulls: ParkedPulls[Waiter] = ParkedPulls(limit)
    for waiter in waiters:
        assert pulls.park(waiter)
    return pulls


def test_a_parked_pull_wakes_when_its_message_arrives() -> None:
    waiter = Waiter("q", 7)
    pulls = parked(waiter)
    assert pulls.arrived("q", 7, 0, no_message) == []
    assert pulls.arrived("q", 8, 0, no_message) == [waiter]
    assert len(pulls) == 0
    assert not pulls.waits_on("q")


def test_a_message_wakes_only_those_who_wait_on_its_queue() -> None:
    here, there = Waiter("here", 0), Waiter("there", 0)
    pulls = parked(here, there)
    assert pulls.arrived("here", 1, 0, no_message) == [here]
    assert pulls.waits_on("there")


def test_a_message_that_the_filter_refuses_wakes_nobody() -> None:
    waiter = Waiter("q", 0, {5}.__contains__)
    pulls = parked(waiter)
    assert pulls.arrived("q", 1, 4, no_message) == []
    assert pulls.arrived("q", 2, 5, no_message) == [waiter]


def test_those_who_wait_are_woken_in_the_order_in_which_they_came() -> None:
    waiters = [Waiter("q", 0) for _ in range(1000)]
    assert parked(*waiters, limit=1000).arrived("q", 1, 0, no_message) == waiters


def test_beyond_the_limit_nobody_is_parked() -> None:
    pulls = parked(Waiter("q", 0), limit=1)
    assert not pulls.park(Waiter("q", 0))
    pulls.drain()
    assert pulls.park(Waiter("q", 0))


def test_a_pull_can_be_withdrawn_once() -> None:
    waiter = Waiter("q", 0)
    pulls = parked(waiter)
    assert pulls.withdraw(waiter)
    assert not pulls.withdraw(waiter)
    assert len(pulls) == 0
    assert pulls.arrived("q", 1, 0, no_message) == []


def test_draining_gives_back_everyone() -> None:
    first, second = Waiter("a", 0), Waiter("b", 0)
    pulls = parked(first, second)
    assert pulls.drain() == [first, second]
    assert len(pulls) == 0


def test_who_chooses_by_properties_is_woken_by_them_and_they_are_looked_up_once() -> None:
    one, two, other = (Waiter("q", 0, matches=text.__eq__) for text in (b"a", b"a", b"b"))
    asked = []

    def properties() -> bytes:
        asked.append(1)
        return b"a"

    pulls = parked(one, other, two)
    assert pulls.arrived("q", 1, 0, properties) == [one, two]
    assert len(asked) == 1
    assert pulls.waiting("q") == [other]
