"""Heartbeats of a leader, and what it may commit."""

import pytest
from tests.unit.raft.kit import OneNode, accepted, only, sent

from turbopump.raft import AppendNoOp, Commit, Role, RoleChanged, SavedState
from turbopump.raft.messages import Heartbeat, HeartbeatAnswer, PushKind, PushOrder, RaftCode

FIVE = ("n0", "n1", "n2", "n3", "n4")


def holds(one: OneNode, peer: str, index: int) -> None:
    """Lets a follower acknowledge everything up to `index`."""
    if one.node.followers[peer].stage is PushKind.COMPARE:
        first = next(order for to, order in sent(one.effects, PushOrder) if to == peer)
        one.answer(peer, first, accepted(first.first_index))
    order = [order for to, order in sent(one.effects, PushOrder) if to == peer and order.last_index == index][
        -1
    ]
    one.answer(peer, order, accepted(index))


# heartbeats


def test_a_leader_says_so_at_once_and_every_two_seconds() -> None:
    one = OneNode([1]).lead()
    assert [peer for peer, _ in sent(one.effects, Heartbeat)] == ["n1", "n2"]
    assert not sent(one.tick(1999), Heartbeat)
    assert len(sent(one.tick(1), Heartbeat)) == 2


def test_a_member_that_was_not_ready_hears_the_leader_again_soon() -> None:
    one = OneNode([1]).lead()
    beat = Heartbeat(one.node.term)
    one.answer("n1", beat, HeartbeatAnswer(RaftCode.TERM_NOT_READY))
    assert sent(one.tick(10), Heartbeat) == [("n1", beat)]


def test_a_larger_term_in_an_answer_ends_the_leadership() -> None:
    one = OneNode([1]).lead()
    one.answer("n1", Heartbeat(one.node.term), HeartbeatAnswer(RaftCode.EXPIRED_TERM, 8))
    assert only(one.effects, RoleChanged)[-1] == RoleChanged(Role.CANDIDATE, 8, None)


def test_another_leader_of_the_term_ends_the_leadership() -> None:
    one = OneNode([1]).lead()
    term = one.node.term
    one.answer("n1", Heartbeat(term), HeartbeatAnswer(RaftCode.INCONSISTENT_LEADER))
    assert (one.node.role, one.node.term) == (Role.CANDIDATE, term)


def test_answers_to_heartbeats_of_an_earlier_term_change_nothing() -> None:
    one = OneNode([1], SavedState(5)).lead()
    one.answer("n1", Heartbeat(4), HeartbeatAnswer(RaftCode.EXPIRED_TERM, 5))
    one.answer("n1", Heartbeat(4), HeartbeatAnswer(RaftCode.INCONSISTENT_LEADER))
    assert one.node.role is Role.LEADER


def test_without_answers_of_a_majority_a_leader_steps_down_after_six_seconds() -> None:
    one = OneNode([1], members=FIVE).lead()
    term = one.node.term
    one.tick(3000)
    for peer in ("n1", "n2"):
        one.answer(peer, Heartbeat(term), HeartbeatAnswer(RaftCode.SUCCESS))
    one.tick(6000)
    assert one.node.role is Role.LEADER
    one.tick(1)
    assert (one.node.role, one.node.term) == (Role.CANDIDATE, term)


def test_with_answers_of_a_minority_it_steps_down_too() -> None:
    one = OneNode([1], members=FIVE).lead()
    for _ in range(4):
        one.answer("n1", Heartbeat(one.node.term), HeartbeatAnswer(RaftCode.SUCCESS))
        one.tick(1600)
    assert one.node.role is Role.CANDIDATE


# commits


def test_a_new_leader_asks_for_an_entry_of_its_term() -> None:
    one = OneNode([1]).lead()
    assert only(one.effects, AppendNoOp) == [AppendNoOp(one.node.term)]


def test_what_a_majority_holds_is_committed() -> None:
    one = OneNode(members=FIVE).lead()
    one.append(2)
    holds(one, "n1", 2)
    assert one.node.committed_index == -1
    holds(one, "n2", 1)
    assert one.node.committed_index == 1
    holds(one, "n3", 2)
    assert one.node.committed_index == 2


def test_a_slow_follower_delays_nobody() -> None:
    one = OneNode().lead()
    one.append(500)
    holds(one, "n1", 500)
    assert one.node.committed_index == 500


def test_entries_of_earlier_terms_are_committed_with_one_of_the_own_term_only() -> None:
    one = OneNode([1, 1], SavedState(3)).lead()
    compare = next(order for peer, order in sent(one.effects, PushOrder) if peer == "n1")
    one.answer("n1", compare, accepted(1))
    assert one.node.committed_index == -1
    holds(one, "n1", 2)
    assert one.node.committed_index == 2


def test_the_leader_counts_what_it_has_synced_only() -> None:
    one = OneNode(syncs=False).lead()
    holds(one, "n1", 0)
    assert one.node.committed_index == -1
    assert only(one.sync(), Commit) == [Commit(0)]


def test_two_followers_are_a_majority_without_the_leaders_disk() -> None:
    one = OneNode(syncs=False).lead()
    holds(one, "n1", 0)
    holds(one, "n2", 0)
    assert one.node.committed_index == 0


@pytest.mark.parametrize("members", [2, 4])
def test_half_of_an_even_group_is_no_majority(members: int) -> None:
    names = tuple(f"n{n}" for n in range(members))
    one = OneNode(members=names).lead()
    for peer in names[1 : members // 2]:
        holds(one, peer, 0)
    assert one.node.committed_index == -1
    holds(one, names[members // 2], 0)
    assert one.node.committed_index == 0


def test_an_acknowledgement_of_an_earlier_term_does_not_count() -> None:
    one = OneNode([1], SavedState(4)).lead()
    one.answer("n1", PushOrder(PushKind.APPEND, 3, 1, 1, -1, attempt=0), accepted(1))
    assert one.node.committed_index == -1


def test_a_commit_of_an_earlier_life_is_kept() -> None:
    assert OneNode([1, 1], SavedState(1, committed_index=1)).lead().node.committed_index == 1
