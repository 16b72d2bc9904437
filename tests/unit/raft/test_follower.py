"""Heartbeats, and a leader that is silent."""

from tests.unit.raft.kit import OneNode, only, saves_before_answers, sent

from turbopump.raft import Received, Role, RoleChanged, Save, SavedState
from turbopump.raft.messages import NO_TERM, Heartbeat, HeartbeatAnswer, RaftCode, VoteRequest


def test_a_heartbeat_of_the_same_term_makes_a_follower() -> None:
    one = OneNode([1])
    assert one.receive("n1", Heartbeat(1)) == HeartbeatAnswer(RaftCode.SUCCESS, NO_TERM)
    assert only(one.effects, RoleChanged) == [RoleChanged(Role.FOLLOWER, 1, "n1")]


def test_a_heartbeat_of_an_earlier_term_is_refused_with_the_present_one() -> None:
    one = OneNode([1], SavedState(3))
    assert one.receive("n1", Heartbeat(2)) == HeartbeatAnswer(RaftCode.EXPIRED_TERM, 3)
    assert one.node.role is Role.CANDIDATE


def test_a_heartbeat_of_a_later_term_is_entered_and_followed_the_next_time() -> None:
    one = OneNode([1])
    effects = one.step(Received(1, "n1", Heartbeat(4)))
    assert only(effects, Save) == [Save(4, None)]
    assert saves_before_answers(effects)
    assert one.receive("n1", Heartbeat(4)).code is RaftCode.SUCCESS
    assert one.node.leader == "n1"


def test_a_second_leader_of_a_term_is_refused() -> None:
    one = OneNode([1]).follow("n1")
    assert one.receive("n2", Heartbeat(1)).code is RaftCode.INCONSISTENT_LEADER
    assert one.node.leader == "n1"


def test_a_leader_refuses_another_leader_of_its_term() -> None:
    one = OneNode([1]).lead()
    assert one.receive("n2", Heartbeat(one.node.term)).code is RaftCode.INCONSISTENT_LEADER


def test_strangers_and_the_own_name_are_refused() -> None:
    one = OneNode([1])
    assert one.receive("n9", Heartbeat(1)).code is RaftCode.UNKNOWN_MEMBER
    assert one.receive("n0", Heartbeat(1)).code is RaftCode.UNEXPECTED_MEMBER


def test_a_follower_waits_three_heartbeats_and_asks_in_the_same_term_at_once() -> None:
    one = OneNode([1], SavedState(1, "n1")).follow("n1")
    assert not sent(one.tick(6000), VoteRequest)
    assert one.node.role is Role.FOLLOWER
    asked = sent(one.tick(1), VoteRequest)
    assert [request.term for _, request in asked] == [1, 1]


def test_each_heartbeat_begins_the_wait_again() -> None:
    one = OneNode([1]).follow("n1")
    for _ in range(5):
        one.tick(5999)
        one.receive("n1", Heartbeat(1))
    assert one.node.role is Role.FOLLOWER
