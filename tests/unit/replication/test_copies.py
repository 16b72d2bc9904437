"""The slaves of a master and what waits for them, against a simple model."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.replication.copies import Copies, CopyCount


@dataclass
class Answers:
    """Collects what waiters were told."""

    told: list[tuple[str, CopyCount]] = field(default_factory=list)

    def waiter(self, name: str):  # type: ignore[no-untyped-def]
        return lambda count: self.told.append((name, count))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]


def test_a_waiter_is_called_when_a_slave_has_everything_below_its_end() -> None:
    copies, answers = Copies(), Answers()
    copies.wait(100, 2, 3.0, answers.waiter("a"))
    copies.reported("s", 99)
    assert answers.told == []
    copies.reported("s", 100)
    assert answers.told == [("a", CopyCount(2, 0, True))]
    assert copies.waiting == 0


def test_a_waiter_that_has_enough_copies_already_is_called_at_once() -> None:
    copies, answers = Copies(), Answers()
    copies.reported("s", 100, 100)
    copies.wait(100, 2, 3.0, answers.waiter("a"))
    assert answers.told == [("a", CopyCount(2, 1, True))]


def test_one_broker_is_enough_without_any_slave() -> None:
    copies, answers = Copies(), Answers()
    copies.wait(100, 1, 3.0, answers.waiter("a"))
    assert answers.told == [("a", CopyCount(1, 0, True))]


def test_each_waiter_has_its_own_deadline_and_is_told_what_there_is() -> None:
    copies, answers = Copies(), Answers()
    copies.wait(200, 2, 5.0, answers.waiter("later"))
    copies.wait(100, 3, 4.0, answers.waiter("sooner"))
    copies.reported("s", 100)
    assert copies.next_deadline == 4.0
    copies.expire(3.9)
    assert answers.told == []
    copies.expire(4.0)
    assert answers.told == [("sooner", CopyCount(2, 0, False))]
    assert copies.next_deadline == 5.0
    copies.reported("s", 200)
    assert answers.names == ["sooner", "later"]
    assert copies.next_deadline is None


def test_a_waiter_for_more_slaves_does_not_hold_those_behind_it() -> None:
    copies, answers = Copies(), Answers()
    copies.wait(100, 3, 9.0, answers.waiter("three"))
    copies.wait(200, 2, 9.0, answers.waiter("two"))
    copies.reported("one", 300)
    assert answers.names == ["two"]
    copies.reported("other", 100)
    assert answers.names == ["two", "three"]
    assert answers.told[-1] == ("three", CopyCount(3, 0, True))


def test_the_two_slaves_that_have_it_may_be_any() -> None:
    copies, answers = Copies(), Answers()
    for slave in "abc":
        copies.reported(slave, 0)
    copies.wait(100, 3, 9.0, answers.waiter("w"))
    copies.reported("c", 100)
    copies.reported("a", 100)
    assert answers.names == ["w"]


def test_what_a_slave_that_left_once_had_does_not_count() -> None:
    copies, answers = Copies(), Answers()
    copies.reported("s", 1000, 1000)
    copies.left("s")
    assert copies.furthest == -1
    assert copies.within(1000, 10) == 0
    copies.wait(100, 2, 3.0, answers.waiter("w"))
    assert answers.told == []
    copies.expire(3.0)
    assert answers.told == [("w", CopyCount(1, 0, False))]


def test_a_slave_that_comes_back_with_less_counts_for_less() -> None:
    copies, answers = Copies(), Answers()
    copies.reported("s", 1000)
    copies.reported("s", 500)
    copies.wait(600, 2, 3.0, answers.waiter("w"))
    assert answers.told == []
    assert copies.count(500, 2) == CopyCount(2, 0, True)


def test_a_slave_that_is_too_far_behind_is_not_within_reach() -> None:
    copies = Copies()
    copies.reported("near", 901)
    copies.reported("far", 900)
    assert copies.within(1000, 100) == 1
    assert copies.within(1000, 101) == 2


def test_the_copy_on_disk_is_what_the_slave_said_of_its_disk() -> None:
    copies = Copies()
    copies.reported("memory", 100, 50)
    copies.reported("disk", 100, 100)
    copies.reported("apache", 100)
    assert copies.count(100, 2) == CopyCount(4, 1, True)
    assert copies.count(50, 2) == CopyCount(4, 2, True)


def test_all_waiters_are_told_when_the_broker_stops() -> None:
    copies, answers = Copies(), Answers()
    for name in "ab":
        copies.wait(100, 2, 3.0, answers.waiter(name))
    copies.give_up()
    assert answers.told == [("a", CopyCount(1, 0, False)), ("b", CopyCount(1, 0, False))]
    copies.give_up()
    assert len(answers.told) == 2


def test_a_waiter_whose_peer_is_gone_keeps_no_other_from_its_answer() -> None:
    copies, answers = Copies(), Answers()

    def fail(count: CopyCount) -> None:
        raise ConnectionResetError

    for end in (100, 200, 300):
        copies.wait(end, 2, end / 100, fail)
        copies.wait(end, 2, end / 100, answers.waiter(str(end)))
    copies.reported("s", 100)
    copies.expire(2.0)
    copies.give_up()
    assert answers.names == ["100", "200", "300"]


def test_a_waiter_may_wait_again_when_it_is_called() -> None:
    copies, answers = Copies(), Answers()
    copies.wait(100, 2, 3.0, lambda _: copies.wait(200, 2, 3.0, answers.waiter("second")))
    copies.reported("s", 150)
    assert copies.waiting == 1
    copies.reported("s", 200)
    assert answers.names == ["second"]


class Counted(float):
    """A number that counts how often any of its kind is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) < float(other)

    def __le__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) <= float(other)

    def __gt__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) > float(other)

    def __ge__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) >= float(other)

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return isinstance(other, float) and float(self) == float(other)

    __hash__ = float.__hash__


def _deadlines_one_by_one(waiters: int) -> int:
    """Has each waiter's deadline pass alone; returns how many comparisons of deadlines that took."""
    copies, answers = Copies(), Answers()
    for number in range(waiters):
        copies.wait(100 + number, 2, Counted(number), answers.waiter(str(number)))
    Counted.compared = 0
    while (deadline := copies.next_deadline) is not None:
        copies.expire(deadline)
    assert answers.names == [str(number) for number in range(waiters)]
    return Counted.compared


def _reports_one_by_one(waiters: int) -> int:
    """Has one of two slaves that are needed report each end; returns how many comparisons that took."""
    copies, answers = Copies(), Answers()
    copies.reported("hangs", 0)
    for number in range(1, waiters + 1):
        copies.wait(Counted(number), 3, 9.0, answers.waiter(str(number)))  # type: ignore[arg-type]
    Counted.compared = 0
    for number in range(1, waiters + 1):
        copies.reported("goes on", number)
    assert answers.told == []
    copies.reported("hangs", waiters)
    assert len(answers.told) == waiters
    return Counted.compared


@pytest.mark.parametrize("ends_one_by_one", [_deadlines_one_by_one, _reports_one_by_one])
def test_four_times_as_many_waiters_cost_about_four_times_as_much(
    ends_one_by_one: Callable[[int], int],
) -> None:
    assert 0 < ends_one_by_one(2000) < 6 * ends_one_by_one(500)


def test_waiters_that_were_called_are_not_kept() -> None:
    copies = Copies()
    for number in range(10_000):
        copies.wait(number + 1, 2, number + 3.0, lambda _: None)
        if number % 2:
            copies.expire(number)  # a slave that hangs
    copies.reported("s", 20_000)
    assert copies.waiting == 0
    assert not any(copies._all_lanes())


def test_waiters_whose_ends_fall_are_called_in_the_order_of_their_ends() -> None:
    copies, answers = Copies(), Answers()
    for end in (300, 100, 200, 150):
        copies.wait(end, 2, 3.0, answers.waiter(str(end)))
    copies.reported("s", 250)
    assert answers.names == ["100", "150", "200"]
    copies.reported("s", 300)
    assert answers.names == ["100", "150", "200", "300"]
    assert len(copies._all_lanes()) <= 1


def test_a_shorter_timeout_does_not_wait_for_those_that_came_before() -> None:
    copies, answers = Copies(), Answers()
    copies.wait(100, 2, 9.0, answers.waiter("long"))
    copies.wait(200, 2, 1.0, answers.waiter("short"))
    assert copies.next_deadline == 1.0
    copies.expire(1.0)
    assert answers.names == ["short"]
    assert copies.next_deadline == 9.0


def test_waiters_of_one_report_share_a_count_only_where_it_is_the_same() -> None:
    copies, answers = Copies(), Answers()
    for end in (100, 110, 200, 210):
        copies.wait(end, 2, 3.0, answers.waiter(str(end)))
    copies.reported("s", 300, 150)
    counts = [count for _, count in answers.told]
    assert counts == [CopyCount(2, 1, True)] * 2 + [CopyCount(2, 0, True)] * 2
    assert counts[0] is counts[1]
    assert counts[2] is counts[3]


SLAVES = st.sampled_from("abc")
POSITIONS = st.integers(0, 20)
EVENTS = st.one_of(
    st.tuples(st.just("report"), SLAVES, POSITIONS, POSITIONS),
    st.tuples(st.just("leave"), SLAVES),
    st.tuples(st.just("wait"), POSITIONS, st.integers(1, 4), st.integers(0, 20)),
    st.tuples(st.just("expire"), st.integers(0, 20)),
    st.just(("give up",)),
)


class Model:
    """The same by looking at everything after each event."""

    def __init__(self) -> None:
        self.slaves: dict[str, tuple[int, int]] = {}
        self.waiting: dict[int, tuple[int, int, int]] = {}
        self.told: dict[int, CopyCount] = {}

    def count(self, end: int, needed: int) -> CopyCount:
        in_memory = 1 + sum(received >= end for received, _ in self.slaves.values())
        on_disk = sum(synced >= end for _, synced in self.slaves.values())
        return CopyCount(in_memory, on_disk, in_memory >= needed)

    def answer(self, over: float | None = None) -> None:
        for number, (end, needed, deadline) in list(self.waiting.items()):
            count = self.count(end, needed)
            if count.is_enough or (over is not None and deadline <= over):
                self.told[number] = count
                del self.waiting[number]


@given(st.lists(EVENTS, max_size=40))
def test_every_waiter_is_told_once_and_exactly_when_the_model_says(events: list[tuple]) -> None:  # type: ignore[type-arg]
    copies, model = Copies(), Model()
    told: dict[int, CopyCount] = {}
    for number, event in enumerate(events):
        match event:
            case ("report", slave, received, synced):
                synced = min(received, synced)
                model.slaves[slave] = received, synced
                copies.reported(slave, received, synced)
                model.answer()
            case ("leave", slave):
                model.slaves.pop(slave, None)
                copies.left(slave)
            case ("wait", end, needed, deadline):
                model.waiting[number] = end, needed, deadline

                def tell(count: CopyCount, number: int = number) -> None:
                    assert number not in told
                    told[number] = count

                copies.wait(end, needed, deadline, tell)
                model.answer()
            case ("expire", now):
                copies.expire(now)
                model.answer(over=now)
            case _:
                copies.give_up()
                model.answer(over=1e9)
        assert told == model.told
        assert copies.waiting == len(model.waiting)
        assert copies.furthest == max((received for received, _ in model.slaves.values()), default=-1)
        deadlines = [deadline for _, _, deadline in model.waiting.values()]
        assert copies.next_deadline == min(deadlines, default=None)
