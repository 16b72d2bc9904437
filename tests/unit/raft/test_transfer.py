"""Handing over the leadership."""

from typing import Any

import pytest
from tests.unit.raft.kit import OneNode, accepted, only, sent
from tests.unit.raft.memory_log import entry

from turbopump.raft import PeerUnreachable, Received, Respond, Role, SavedState, Transfer
from turbopump.raft.messages import (
    NO_INDEX,
    Heartbeat,
    HeartbeatAnswer,
    PushKind,
    PushOrder,
    RaftCode,
    TransferAnswer,
    TransferRequest,
    VoteAnswer,
    VoteRequest,
    VoteResult,
)


def leading(**settings: Any) -> OneNode:
    """A leader that n1 follows and n2 does not."""
    one = OneNode(**settings).lead()
    compare = next(order for peer, order in sent(one.effects, PushOrder) if peer == "n1")
    one.answer("n1", compare, accepted(0))
    one.answer("n1", Heartbeat(one.node.term), HeartbeatAnswer(RaftCode.SUCCESS))
    return one


def outcome(one: OneNode, request_id: int) -> TransferAnswer | None:
    answers = [respond.answer for respond in only(one.effects, Respond) if respond.request_id == request_id]
    assert len(answers) <= 1
    answer = answers[0] if answers else None
    assert answer is None or isinstance(answer, TransferAnswer)
    return answer


# the leader


def test_the_leader_asks_the_member_and_takes_no_appends_until_it_is_answered() -> None:
    one = leading()
    one.step(Transfer("n1", 7))
    (peer, request), *_ = sent(one.effects, TransferRequest)
    assert (peer, request) == ("n1", TransferRequest(0, "n0", "n1", 0))
    assert one.node.transferring_to == "n1"
    one.answer("n1", request, TransferAnswer(RaftCode.INCONSISTENT_LEADER, 0))
    assert one.node.transferring_to is None
    assert outcome(one, 7) == TransferAnswer(RaftCode.INCONSISTENT_LEADER, 0)


def test_the_outcome_is_told_although_the_leader_has_become_a_follower() -> None:
    one = leading()
    one.step(Transfer("n1", 7))
    request = sent(one.effects, TransferRequest)[0][1]
    one.follow("n1", term=1)
    assert one.node.transferring_to is None
    one.answer("n1", request, TransferAnswer(RaftCode.SUCCESS, 1))
    assert outcome(one, 7) == TransferAnswer(RaftCode.SUCCESS, 1)


def test_an_offer_that_is_not_answered_ends_after_three_seconds() -> None:
    one = leading()
    one.step(Transfer("n1", 7))
    one.tick(2999)
    assert outcome(one, 7) is None
    one.tick(1)
    assert outcome(one, 7) == TransferAnswer(RaftCode.TAKE_LEADERSHIP_FAILED, 0)


def test_an_offer_to_a_member_that_cannot_be_reached_ends_at_once() -> None:
    one = leading()
    one.step(Transfer("n1", 7))
    one.step(PeerUnreachable("n2"))
    assert outcome(one, 7) is None
    one.step(PeerUnreachable("n1"))
    assert outcome(one, 7) is not None


@pytest.mark.parametrize(
    ("to_member", "code"),
    [
        ("n9", RaftCode.UNKNOWN_MEMBER),
        ("n0", RaftCode.UNEXPECTED_ARGUMENT),
        ("n2", RaftCode.FALL_BEHIND_TOO_MUCH),
    ],
)
def test_strangers_the_leader_itself_and_members_that_lag_are_refused(to_member: str, code: RaftCode) -> None:
    one = leading(max_transfer_lag=1)
    one.step(Transfer(to_member, 7))
    assert outcome(one, 7) == TransferAnswer(code, 0)


def test_a_second_transfer_is_refused_while_one_is_under_way() -> None:
    one = leading()
    one.step(Transfer("n1", 7))
    one.step(Transfer("n2", 8))
    assert outcome(one, 8) == TransferAnswer(RaftCode.LEADER_TRANSFERRING, 0)


def test_a_follower_has_no_leadership_to_give() -> None:
    one = OneNode([1]).follow()
    one.step(Transfer("n2", 7))
    assert outcome(one, 7) == TransferAnswer(RaftCode.NOT_LEADER, 1)


def test_a_tool_may_ask_the_leader_by_a_request() -> None:
    one = leading()
    assert one.receive("tool", TransferRequest(0, "n0", "n1", -1)) is None
    assert one.node.transferring_to == "n1"


def test_a_request_for_two_others_is_refused() -> None:
    answer = leading().receive("tool", TransferRequest(0, "n1", "n2", -1))
    assert answer.code is RaftCode.UNEXPECTED_ARGUMENT


# preferred leaders


def test_a_preferred_member_that_follows_is_asked_each_second_until_it_leads() -> None:
    one = leading(preferred_leaders=("n1",))
    assert not sent(one.tick(999), TransferRequest)
    asked = sent(one.tick(1), TransferRequest)
    assert [peer for peer, _ in asked] == ["n1"]
    one.answer("n1", asked[0][1], TransferAnswer(RaftCode.INCONSISTENT_LEADER, 0))
    assert len(sent(one.tick(1000), TransferRequest)) == 1


def test_a_preferred_member_that_does_not_follow_is_not_asked() -> None:
    assert not sent(leading(preferred_leaders=("n2",)).tick(3000), TransferRequest)


def test_a_preferred_member_that_is_silent_is_not_asked() -> None:
    one = leading(preferred_leaders=("n1",), transfer_interval_ms=4000)
    assert not sent(one.tick(4000), TransferRequest)


def test_a_preferred_leader_asks_nobody() -> None:
    assert not sent(leading(preferred_leaders=("n0", "n1")).tick(3000), TransferRequest)


# the member that takes over


def taking(verified: int = 1) -> OneNode:
    """A follower of term 1 that was asked to lead from index 1 on (request 50)."""
    one = OneNode([1, 1], SavedState(1, "n1")).follow("n1")
    one.push(PushKind.COMPARE, entry(verified, 1))
    one.step(Received(50, "n1", TransferRequest(1, "n1", "n0", 1)))
    return one


def votes(one: OneNode, result: VoteResult = VoteResult.ACCEPT) -> None:
    request = sent(one.effects, VoteRequest)[-1][1]
    for peer in ("n1", "n2"):
        one.answer(peer, request, VoteAnswer(request.term, result))


def test_a_member_that_has_the_log_stands_at_once_in_the_next_term_and_answers_when_it_leads() -> None:
    one = taking()
    assert [request.term for _, request in sent(one.effects, VoteRequest)] == [2, 2]
    assert outcome(one, 50) is None
    votes(one)
    assert one.node.role is Role.LEADER
    assert outcome(one, 50) == TransferAnswer(RaftCode.SUCCESS, 2)


def test_a_member_that_lacks_entries_waits_for_them() -> None:
    one = taking(verified=0)
    assert not sent(one.effects, VoteRequest)
    one.push(PushKind.APPEND, entry(1, 1))
    assert [request.term for _, request in sent(one.effects, VoteRequest)] == [2, 2]


def test_an_empty_log_of_the_leader_is_not_waited_for() -> None:
    """An Apache leader writes no first entry: nothing is compared, and it takes no appends meanwhile."""
    one = OneNode().follow("n1")
    one.receive("n1", TransferRequest(one.node.term, "n1", "n0", NO_INDEX))
    assert [request.term for _, request in sent(one.effects, VoteRequest)] == [one.node.term] * 2


def test_entries_that_do_not_come_in_time_end_the_takeover() -> None:
    one = taking(verified=0)
    for _ in range(3):
        one.tick(999)
        one.receive("n1", Heartbeat(1))
    assert outcome(one, 50) is None
    one.tick(3)
    assert outcome(one, 50) == TransferAnswer(RaftCode.TAKE_LEADERSHIP_FAILED, 1)


def test_another_leader_of_that_term_ends_the_takeover() -> None:
    one = taking()
    one.receive("n2", Heartbeat(2))
    assert outcome(one, 50) == TransferAnswer(RaftCode.TAKE_LEADERSHIP_FAILED, 2)


def test_a_later_term_ends_the_takeover() -> None:
    one = taking()
    one.receive("n2", Heartbeat(5))
    assert outcome(one, 50) == TransferAnswer(RaftCode.EXPIRED_TERM, 5)


def test_a_candidate_that_was_asked_to_lead_votes_for_nobody_with_the_same_log() -> None:
    one = OneNode([1, 1], SavedState(1, "n1")).follow("n1")
    one.push(PushKind.COMPARE, entry(1, 1))
    one.node._member.taking_term = 2  # asked, and not yet voted for itself
    one.receive("n2", VoteRequest(2, 1, 1))
    assert one.receive("n2", VoteRequest(2, 1, 1)).result is VoteResult.REJECT_TAKING_LEADERSHIP
    assert one.receive("n2", VoteRequest(2, 2, 1)).result is VoteResult.ACCEPT


def test_one_that_does_not_follow_that_leader_refuses_with_409() -> None:
    candidate = OneNode([1])
    assert candidate.receive("n1", TransferRequest(1, "n1", "n0", 0)).code is RaftCode.INCONSISTENT_LEADER
    follower = OneNode([1]).follow("n2")
    assert follower.receive("n1", TransferRequest(1, "n1", "n0", 0)).code is RaftCode.INCONSISTENT_LEADER


def test_a_request_of_another_term_is_refused() -> None:
    follower = OneNode([1], SavedState(3)).follow("n1")
    assert follower.receive("n1", TransferRequest(2, "n1", "n0", 0)).code is RaftCode.INCONSISTENT_TERM


def test_a_second_request_answers_the_first() -> None:
    one = taking(verified=0)
    one.step(Received(51, "n1", TransferRequest(1, "n1", "n0", 1)))
    assert outcome(one, 50) == TransferAnswer(RaftCode.TAKE_LEADERSHIP_FAILED, 1)
    assert outcome(one, 51) is None
