"""The judges of the long runs: what they must notice, on a few lines of logs."""

from __future__ import annotations

from .churn import Offsets, went_back
from .workers import Got, Sent, disorder, lost, owners, tally


def got(at: float, offset: int, member: str = "one", key: str = "k", sequence: int | None = None) -> Got:
    return Got(at, member, key, offset if sequence is None else sequence, "broker-a", 0, offset, 0)


def just_before(member: str, at: float) -> float:
    """The member's process was started a moment before that message."""
    return at - 1.0


def at_zero(member: str, at: float) -> float:
    """Every member was started once."""
    return 0.0


def test_a_message_that_nobody_got_is_lost() -> None:
    assert lost([Sent(0.0, "k", 1), Sent(0.0, "k", 2)], [got(1.0, 2)]) == [Sent(0.0, "k", 1)]


def test_a_repeat_is_no_disorder() -> None:
    assert disorder([got(1.0, 1), got(2.0, 2), got(3.0, 1, "two"), got(4.0, 2, "two"), got(5.0, 3)]) == []


def test_a_skipped_message_that_comes_later_is_disorder() -> None:
    assert len(disorder([got(1.0, 1), got(2.0, 3), got(3.0, 2)])) == 1


def test_what_was_stored_twice_and_what_was_delivered_twice_are_counted_apart() -> None:
    counted = tally([got(1.0, 1), got(2.0, 2, sequence=1), got(3.0, 2, sequence=1)])
    assert (counted.messages, counted.stored_twice, counted.repeated) == (1, 1, 1)


def test_owners_are_those_who_got_something_lately() -> None:
    assert owners([got(1.0, 1), got(5.0, 2, "two")], since=4.0) == {"two": {("broker-a", 0)}}


def test_a_new_member_may_repeat_from_the_committed_offset_on() -> None:
    offsets = Offsets()
    offsets.note(("g", 0), 10.0, 5)
    assert went_back("g", [got(9.0, 5), got(9.1, 6), got(14.0, 5, "two")], offsets, just_before) == []


def test_a_new_member_must_not_begin_before_the_committed_offset() -> None:
    offsets = Offsets()
    offsets.note(("g", 0), 10.0, 5)
    assert len(went_back("g", [got(14.0, 4, "two")], offsets, just_before)) == 1


def test_a_step_back_that_nobody_saw_but_the_broker_allows_what_it_covers() -> None:
    offsets = Offsets()
    offsets.note(("g", 0), 10.0, 50)
    offsets.stepped_back(("g", 0), before=50, after=20)
    assert went_back("g", [got(14.0, 20, "two")], offsets, just_before) == []
    assert len(went_back("g", [got(14.0, 19, "two")], offsets, just_before)) == 1


def test_what_is_committed_after_a_member_was_started_does_not_count_for_it() -> None:
    offsets = Offsets()
    offsets.note(("g", 0), 10.0, 5)
    offsets.note(("g", 0), 13.5, 8)
    assert went_back("g", [got(14.0, 5, "two")], offsets, just_before) == []
    assert len(went_back("g", [got(20.0, 5, "two")], offsets, just_before)) == 1


def test_after_a_kill_of_the_broker_committed_is_what_it_had_written_down() -> None:
    offsets = Offsets()
    offsets.note(("g", 0), 10.0, 50)
    offsets.killed(12.0, {("g", 0): 20})
    assert went_back("g", [got(14.0, 20, "two")], offsets, just_before) == []
    assert len(went_back("g", [got(14.0, 19, "two")], offsets, just_before)) == 1


def test_one_who_keeps_a_queue_is_judged_by_the_offset_it_began_with() -> None:
    offsets = Offsets()
    offsets.note(("g", 0), 9.0, 5)
    offsets.note(("g", 0), 12.0, 9)
    assert went_back("g", [got(11.0, 5), got(13.0, 6), got(15.0, 7)], offsets, at_zero) == []


def test_a_broker_that_is_killed_sends_a_member_back_without_a_pause_too() -> None:
    offsets = Offsets()
    offsets.note(("g", 0), 10.0, 20)
    story = [got(11.0, 20), got(12.0, 21), got(13.0, 15)]
    assert len(went_back("g", story, offsets, lambda *_: 10.6)) == 1
    offsets.killed(11.5, {("g", 0): 15})
    assert went_back("g", story, offsets, lambda *_: 10.6) == []


def test_one_who_had_no_answers_for_a_while_may_go_on_where_it_was() -> None:
    offsets = Offsets()
    offsets.note(("g", 0), 9.0, 5)
    offsets.note(("g", 0), 9.4, 50)
    assert went_back("g", [got(10.0, 5), got(30.0, 6)], offsets, at_zero) == []
    assert len(went_back("g", [got(10.0, 5), got(30.0, 5)], offsets, at_zero)) == 1
    assert len(went_back("g", [got(10.0, 5), got(30.0, 6)], offsets, lambda member, at: at // 20 * 20)) == 1
