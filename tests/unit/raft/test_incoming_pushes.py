"""What a follower does with the pushes of its leader."""

from typing import Any

import pytest
from tests.unit.raft.kit import OneNode, only
from tests.unit.raft.memory_log import altered, entry

from turbopump.raft import AppendEntries, Commit, PeerUnreachable, Received, Respond, SavedState, Truncate
from turbopump.raft.messages import Push, PushAnswer, PushKind, RaftCode, VoteRequest

COMPARE, TRUNCATE, APPEND, COMMIT = PushKind.COMPARE, PushKind.TRUNCATE, PushKind.APPEND, PushKind.COMMIT
REFUSED = RaftCode.INCONSISTENT_STATE


def compared(terms: list[int], index: int, **settings: Any) -> OneNode:
    """A follower whose log the leader of term 9 has compared up to `index`."""
    one = OneNode(terms, SavedState(9), **settings).follow()
    one.push(COMPARE, entry(index, terms[index]))
    one.effects.clear()
    return one


# comparison


def test_an_identical_entry_is_found_and_the_bounds_of_the_log_are_told() -> None:
    one = OneNode([1, 1, 1], SavedState(9)).follow()
    assert one.push(COMPARE, entry(1, 1)) == PushAnswer(RaftCode.SUCCESS, 9, 1, 1, 0, 2)


@pytest.mark.parametrize("other", [entry(1, 2), entry(3, 1), altered(entry(1, 1), "other")])
def test_an_entry_that_differs_or_is_missing_is_refused(other: object) -> None:
    one = OneNode([1, 1, 1], SavedState(9)).follow()
    assert one.push(COMPARE, other) == PushAnswer(REFUSED, 9, other.index, 1, 0, 2)  # type: ignore[attr-defined, arg-type]


def test_an_empty_log_is_told_as_minus_one() -> None:
    one = OneNode().follow()
    assert one.push(COMPARE, entry(0, 0)) == PushAnswer(REFUSED, 0, 0, 1, -1, -1)


# truncation


def test_a_truncate_of_an_identical_entry_keeps_the_tail_until_another_entry_takes_its_place() -> None:
    one = compared([1, 1, 2, 2], 1)
    assert one.push(TRUNCATE, entry(1, 1)) == PushAnswer(RaftCode.SUCCESS, 9, 1, 1, 0, 1)
    assert not only(one.effects, Truncate)
    one.push(APPEND, entry(2, 9))
    assert only(one.effects, Truncate) == [Truncate(1)]
    assert str(one.log) == "t1 0-1, t9 2"


def test_a_late_truncate_takes_nothing_that_was_acknowledged() -> None:
    one = compared([1, 1], 1)
    one.push(APPEND, entry(2, 9))
    assert one.push(TRUNCATE, entry(1, 1)).code is RaftCode.SUCCESS
    assert one.push(APPEND, entry(3, 9)).code is RaftCode.SUCCESS
    assert str(one.log) == "t1 0-1, t9 2-3"


def test_an_empty_follower_begins_with_the_leaders_first_entry() -> None:
    one = OneNode().follow()
    assert one.push(TRUNCATE, entry(7, 0)).code is RaftCode.SUCCESS
    assert (one.log.begin_index, one.log.end_index) == (7, 7)


def test_a_follower_behind_the_leaders_first_entry_begins_there() -> None:
    one = OneNode([1, 1], SavedState(9, committed_index=1)).follow()
    one.push(TRUNCATE, entry(40, 9), commit=50)
    assert str(one.log) == "t9 40"
    assert one.node.committed_index == 40


def test_a_truncate_never_drops_what_is_committed() -> None:
    one = OneNode([1, 1, 1], SavedState(9, committed_index=2)).follow()
    assert one.push(TRUNCATE, entry(0, 9)).code is REFUSED
    assert str(one.log) == "t1 0-2"


def test_an_append_never_replaces_what_is_committed() -> None:
    one = OneNode([1, 1, 1], SavedState(9, committed_index=2)).follow()
    one.push(COMPARE, entry(0, 1))
    assert one.push(APPEND, entry(1, 9)).code is REFUSED
    assert str(one.log) == "t1 0-2"


# entries


def test_entries_behind_what_was_compared_are_appended_and_answered() -> None:
    one = compared([1], 0)
    assert one.push(APPEND, entry(1, 9)) == PushAnswer(RaftCode.SUCCESS, 9, 1, 1, 0, 1)
    assert only(one.effects, AppendEntries) == [AppendEntries((entry(1, 9),))]


def test_a_batch_is_appended_as_one_and_answered_with_its_first_index_and_count() -> None:
    one = compared([1], 0)
    assert one.push(APPEND, entry(1, 9), entry(2, 9)) == PushAnswer(RaftCode.SUCCESS, 9, 1, 2, 0, 2)


def test_an_entry_that_is_held_already_is_not_written_again() -> None:
    one = compared([1, 1, 1], 0)
    assert one.push(APPEND, entry(1, 1), entry(2, 1), entry(3, 9)).code is RaftCode.SUCCESS
    assert only(one.effects, AppendEntries) == [AppendEntries((entry(3, 9),))]
    assert not only(one.effects, Truncate)


def test_without_a_comparison_in_this_term_entries_are_refused() -> None:
    one = OneNode([1], SavedState(9)).follow()
    assert one.push(APPEND, entry(1, 9)).code is REFUSED


def test_a_comparison_with_an_earlier_leader_does_not_count() -> None:
    one = compared([1], 0)
    one.follow("n2", term=10)
    assert one.push(APPEND, entry(1, 9), sender="n2").code is REFUSED


def test_a_repeated_push_is_answered_again() -> None:
    one = compared([1], 0)
    for _ in range(2):
        assert one.push(APPEND, entry(1, 9)).code is RaftCode.SUCCESS
    assert str(one.log) == "t1 0, t9 1"


@pytest.mark.parametrize("entries", [(), (entry(1, 9), entry(3, 9))])
def test_pushes_without_entries_or_with_a_hole_are_refused(entries: tuple[object, ...]) -> None:
    one = compared([1], 0)
    assert one.push(APPEND, *entries).code is RaftCode.UNEXPECTED_ARGUMENT  # type: ignore[arg-type]


# order


def test_pushes_in_the_wrong_order_are_taken_in_the_right_one() -> None:
    one = compared([1], 0)
    assert one.push(APPEND, entry(3, 9)) is None
    assert one.push(APPEND, entry(2, 9)) is None
    one.push(APPEND, entry(1, 9))
    assert str(one.log) == "t1 0, t9 1-3"
    assert len(only(one.effects, Respond)) == 3


def test_a_gap_is_refused_after_a_second_and_not_before() -> None:
    one = compared([1], 0)
    one.push(APPEND, entry(2, 9))
    one.push(APPEND, entry(3, 9))
    assert not only(one.tick(999), Respond)
    answers = [respond.answer for respond in only(one.tick(1), Respond)]
    assert [(answer.code, answer.index) for answer in answers] == [(REFUSED, 2), (REFUSED, 3)]  # type: ignore[union-attr]


def test_an_early_push_that_is_repeated_is_refused_as_repeated() -> None:
    one = compared([1], 0)
    one.push(APPEND, entry(2, 9))
    assert one.push(APPEND, entry(2, 9)).code is RaftCode.REPEATED_PUSH


def test_early_pushes_are_bounded_by_number() -> None:
    one = compared([1], 0, max_early_pushes=2)
    assert one.push(APPEND, entry(2, 9)) is None
    assert one.push(APPEND, entry(3, 9)) is None
    assert one.push(APPEND, entry(4, 9)).code is REFUSED


def test_early_pushes_are_bounded_by_bytes() -> None:
    one = compared([1], 0, max_early_bytes=150)
    assert one.push(APPEND, entry(2, 9)) is None
    assert one.push(APPEND, entry(3, 9)).code is REFUSED


def test_a_new_comparison_refuses_what_waited_for_a_gap() -> None:
    one = compared([1], 0)
    one.push(APPEND, entry(2, 9))
    one.push(COMPARE, entry(0, 1))
    codes = [respond.answer.code for respond in only(one.effects, Respond)]  # type: ignore[union-attr]
    assert codes == [REFUSED, RaftCode.SUCCESS]


# durability


def test_a_push_is_answered_when_its_entries_are_safe() -> None:
    one = compared([1], 0, syncs=False)
    assert one.push(APPEND, entry(1, 9)) is None
    assert one.push(APPEND, entry(2, 9)) is None
    assert [respond.answer.code for respond in only(one.sync(), Respond)] == [RaftCode.SUCCESS] * 2  # type: ignore[union-attr]


def test_an_entry_that_replaces_a_safe_one_is_not_safe() -> None:
    one = compared([1, 1, 1], 0, syncs=False)
    assert one.push(APPEND, entry(1, 9)) is None
    assert len(only(one.sync(), Respond)) == 1


def test_a_comparison_with_an_entry_that_is_not_safe_waits_too() -> None:
    one = compared([1], 0, syncs=False)
    one.push(APPEND, entry(1, 9))
    assert one.push(COMPARE, entry(1, 9)) is None
    assert len(only(one.sync(), Respond)) == 2


def test_a_log_that_begins_anew_is_acknowledged_when_it_is_safe() -> None:
    one = OneNode(syncs=False).follow()
    assert one.push(TRUNCATE, entry(0, 0)) is None
    assert len(only(one.sync(), Respond)) == 1


# commits


def test_the_commit_index_follows_the_leaders_and_never_falls() -> None:
    one = compared([1, 1, 1], 2)
    for leaders in (1, 0, 2, 1):
        assert one.push(COMMIT, commit=leaders).code is RaftCode.SUCCESS
    assert [effect.index for effect in only(one.effects, Commit)] == [1, 2]


def test_the_commit_index_never_passes_what_the_leader_has_verified() -> None:
    one = compared([1, 1, 1], 1)
    one.push(COMMIT, commit=2)
    assert one.node.committed_index == 1


def test_a_commit_without_a_comparison_is_refused() -> None:
    one = OneNode([1, 1], SavedState(9)).follow()
    assert one.push(COMMIT, commit=1).code is REFUSED
    assert one.node.committed_index == -1


def test_a_commit_comes_behind_the_entries_that_it_covers() -> None:
    one = compared([1], 0)
    one.push(APPEND, entry(1, 9), commit=1)
    kinds = [type(effect) for effect in one.effects]
    assert kinds.index(AppendEntries) < kinds.index(Commit)


# not a follower


def test_a_node_that_does_not_follow_yet_says_so() -> None:
    one = OneNode([1])
    assert one.push(COMPARE, entry(0, 1)).code is RaftCode.NOT_FOLLOWER


def test_a_push_of_an_earlier_term_is_refused_with_the_present_one() -> None:
    one = OneNode([1], SavedState(3)).follow()
    answer = one.receive("n1", Push(COMPARE, 2, (entry(0, 1),), -1))
    assert (answer.code, answer.term) == (RaftCode.EXPIRED_TERM, 3)


def test_a_push_of_a_later_term_makes_the_node_enter_it() -> None:
    one = OneNode([1]).follow()
    assert one.receive("n2", Push(COMPARE, 5, (entry(0, 1),), -1)).code is RaftCode.NOT_FOLLOWER
    assert one.node.term == 5


def test_a_push_of_another_member_than_the_leader_is_refused() -> None:
    one = OneNode([1]).follow("n1")
    assert one.push(COMPARE, entry(0, 1), sender="n2").code is RaftCode.INCONSISTENT_LEADER


def test_everything_that_waits_is_answered_when_the_role_ends() -> None:
    one = compared([1], 0, syncs=False)
    one.push(APPEND, entry(1, 9))
    one.push(APPEND, entry(3, 9))
    effects = one.step(Received(99, "n2", VoteRequest(12, 5, 9)))
    answers = {respond.request_id: respond.answer for respond in only(effects, Respond)}
    assert len(answers) == 3
    assert [getattr(answer, "code", None) for answer in answers.values()].count(RaftCode.NOT_FOLLOWER) == 2


def test_a_lost_connection_is_of_no_interest_to_a_follower() -> None:
    assert compared([1], 0).step(PeerUnreachable("n1")) == []
