"""Rounds of votes: what follows from the answers."""

import pytest
from tests.unit.raft.kit import OneNode, only, saves_before_answers, sent

from turbopump.raft import (
    Appended,
    Eligible,
    PeerUnreachable,
    Received,
    Respond,
    Role,
    Save,
    SavedState,
    Tick,
)
from turbopump.raft.candidate import Outcome, VoteCount, outcome_of
from turbopump.raft.messages import VoteAnswer, VoteRequest, VoteResult

FIVE = ("n0", "n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("count", "outcome"),
    [
        (VoteCount(2, later_term=True, has_leader=True, accepted=2), Outcome.ENTER_LATER_TERM),
        (VoteCount(2, has_leader=True, answered=2, accepted=2), Outcome.WAIT_FOR_LEADER),
        (VoteCount(2, answered=1, accepted=1), Outcome.REVOTE),
        (VoteCount(2, answered=2, longer_logs=1, accepted=1), Outcome.REVOTE_LATER),
        (VoteCount(2, answered=3, longer_logs=1, accepted=2), Outcome.LEAD),
        (VoteCount(2, answered=2, accepted=1, not_ready=1), Outcome.REVOTE_AT_ONCE),
        (VoteCount(2, answered=3, accepted=1), Outcome.VOTE_NEXT_TERM),
    ],
)
def test_the_first_row_that_fits_decides(count: VoteCount, outcome: Outcome) -> None:
    assert outcome_of(count) is outcome


def stood(one: OneNode) -> VoteRequest:
    """Lets a candidate begin a round, and returns its request."""
    requests: list[tuple[str, VoteRequest]] = []
    while not requests:  # the round before may have to end first
        requests = sent(one.tick(one.node.deadline_ms - one.now), VoteRequest)
    assert [peer for peer, _ in requests] == list(one.node._member.config.peers)
    return requests[0][1]


def answered(
    one: OneNode, request: VoteRequest, result: VoteResult, term: int | None = None
) -> list[VoteRequest]:
    """Both peers of three answer the same; returns what is asked then, at once."""
    asked: list[VoteRequest] = []
    for peer in ("n1", "n2"):
        effects = one.answer(peer, request, VoteAnswer(request.term if term is None else term, result))
        asked += [again for _, again in sent(effects, VoteRequest)]
    return asked


def test_the_own_vote_is_on_disk_before_others_are_asked() -> None:
    one = OneNode([1])
    effects = one.tick(2000)
    assert only(effects, Save)[0].voted_for == "n0"
    assert saves_before_answers(effects)


def test_a_node_that_cannot_serve_neither_stands_nor_wins_but_votes() -> None:
    one = OneNode()
    request = stood(one)
    one.step(Eligible(False))
    assert answered(one, request, VoteResult.ACCEPT) == []
    assert one.node.role is Role.CANDIDATE
    for _ in range(10):
        assert not sent(one.tick(one.node.deadline_ms - one.now), VoteRequest)
    effects = one.step(Received(7, "n1", VoteRequest(9, -1, -1)))
    assert only(effects, Respond)[-1].answer.result is VoteResult.REJECT_TERM_NOT_READY  # type: ignore[union-attr]
    effects = one.step(Received(8, "n1", VoteRequest(9, -1, -1)))
    assert only(effects, Respond)[-1].answer.result is VoteResult.ACCEPT  # type: ignore[union-attr]
    one.step(Eligible(True))
    answered(one, stood(one), VoteResult.REJECT_ALREADY_VOTED)
    one.lead()


def test_a_majority_of_votes_makes_a_leader() -> None:
    one = OneNode(members=FIVE)
    request = stood(one)
    one.answer("n1", request, VoteAnswer(0, VoteResult.ACCEPT))
    assert one.node.role is Role.CANDIDATE
    one.answer("n2", request, VoteAnswer(0, VoteResult.ACCEPT))
    assert one.node.role is Role.LEADER


def test_one_member_that_accepts_twice_is_one_vote() -> None:
    one = OneNode(members=FIVE)
    request = stood(one)
    for _ in range(2):
        one.answer("n1", request, VoteAnswer(0, VoteResult.ACCEPT))
    assert one.node.role is Role.CANDIDATE


def test_members_that_are_not_ready_are_asked_again_at_once_in_the_same_term() -> None:
    one = OneNode([1], SavedState(4))
    request = stood(one)
    again = answered(one, request, VoteResult.REJECT_TERM_NOT_READY)
    assert [vote.term for vote in again] == [4, 4]
    assert again[0].round > request.round


def test_members_that_are_still_not_ready_are_asked_again_after_a_moment() -> None:
    one = OneNode([1], SavedState(4))
    again = answered(one, stood(one), VoteResult.REJECT_TERM_NOT_READY)
    assert answered(one, again[0], VoteResult.REJECT_TERM_NOT_READY) == []
    assert one.node.deadline_ms == one.now + 10
    assert stood(one).term == 4


def test_an_answer_to_an_earlier_round_does_not_count() -> None:
    one = OneNode([1], SavedState(4))
    request = stood(one)
    answered(one, request, VoteResult.REJECT_TERM_NOT_READY)
    one.answer("n1", request, VoteAnswer(4, VoteResult.ACCEPT))
    assert one.node.role is Role.CANDIDATE


def test_a_larger_term_is_entered_at_once_and_voted_in_later() -> None:
    one = OneNode([1])
    request = stood(one)
    one.answer("n1", request, VoteAnswer(6, VoteResult.REJECT_EXPIRED_VOTE_TERM))
    assert (one.node.term, one.node.voted_for) == (6, None)
    assert stood(one).term == 6


def test_refusals_lead_to_the_next_term_after_a_wait() -> None:
    one = OneNode()
    request = stood(one)
    assert not answered(one, request, VoteResult.REJECT_ALREADY_VOTED)
    assert one.node.term == 0
    assert stood(one).term == 1


@pytest.mark.parametrize(
    ("result", "wait_ms"),
    [
        (VoteResult.REJECT_ALREADY_VOTED, 500),
        (VoteResult.REJECT_SMALL_LEDGER_END_INDEX, 500 + 1000),
        (VoteResult.REJECT_EXPIRED_LEDGER_TERM, 500 + 1000),
        (VoteResult.REJECT_ALREADY_HAS_LEADER, 500 + 3 * 2000),
    ],
)
def test_the_wait_after_a_round_depends_on_why_it_failed(result: VoteResult, wait_ms: int) -> None:
    one = OneNode()
    answered(one, stood(one), result)
    assert one.node.deadline_ms == one.now + wait_ms


@pytest.mark.parametrize(
    "result", [VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_ALREADY_HAS_LEADER]
)
def test_a_longer_log_or_a_leader_elsewhere_does_not_raise_the_term(result: VoteResult) -> None:
    one = OneNode()
    answered(one, stood(one), result, term=0)
    assert stood(one).term == 0


def test_without_a_reachable_majority_the_term_stays() -> None:
    one = OneNode()
    stood(one)
    one.step(PeerUnreachable("n1"))
    one.step(PeerUnreachable("n2"))
    assert stood(one).term == 0
    one.tick(60_000)
    assert one.node.term == 0


def test_a_round_that_is_not_answered_ends() -> None:
    one = OneNode()
    request = stood(one)
    one.tick(2000 + 500 + 1 + 500)
    one.answer("n1", request, VoteAnswer(0, VoteResult.ACCEPT))
    assert one.node.role is Role.CANDIDATE


def test_a_single_node_leads_at_once_in_term_0() -> None:
    one = OneNode(members=("n0",))
    assert (one.node.role, one.node.term) == (Role.LEADER, 0)
    assert one.node.committed_index == 0


def test_a_restarted_node_does_not_lead_in_a_term_that_it_may_have_led() -> None:
    one = OneNode([1], SavedState(1, "n0"))
    again = answered(one, stood(one), VoteResult.ACCEPT)
    assert {vote.term for vote in again} == {2}
    assert one.node.role is Role.CANDIDATE


def test_a_restarted_node_does_not_lead_its_term_although_its_log_has_nothing_of_it() -> None:
    one = OneNode([1], SavedState(4, "n0"))
    assert {vote.term for vote in answered(one, stood(one), VoteResult.ACCEPT)} == {5}


def test_a_node_that_voted_for_another_does_not_lead_that_term() -> None:
    one = OneNode([1], SavedState(4, "n1"), members=FIVE)
    request = stood(one)
    for peer in ("n2", "n3", "n4"):
        one.answer(peer, request, VoteAnswer(4, VoteResult.ACCEPT))
    assert (one.node.role, one.node.term) == (Role.CANDIDATE, 5)


def test_a_node_does_not_lead_in_a_term_that_others_have_written() -> None:
    one = OneNode([1], SavedState(1))
    assert {vote.term for vote in answered(one, stood(one), VoteResult.ACCEPT)} == {2}


def test_a_leader_that_lost_its_majority_may_lead_the_same_term_again() -> None:
    one = OneNode([1]).lead()
    term, end = one.node.term, one.log.end_index
    one.tick(6100)
    assert one.node.role is Role.CANDIDATE
    one.tick(3000)
    answered(one, stood(one), VoteResult.ACCEPT)
    assert (one.node.role, one.node.term) == (Role.LEADER, term)
    assert one.log.end_index == end, "there is an entry of its term already"


def test_what_is_appended_is_of_no_interest_to_a_candidate() -> None:
    assert OneNode([1]).step(Appended(0)) == []


def test_fast_settings_elect_within_a_second_and_a_half() -> None:
    fast = OneNode(heartbeat_interval_ms=200, min_vote_wait_ms=50, max_vote_wait_ms=150, vote_round_ms=300)
    fast.follow("n1")
    fast.tick(200 * 3 + 1)
    assert fast.node.role is Role.CANDIDATE
    for _ in range(3):
        if fast.node.role is Role.CANDIDATE:
            request = VoteRequest(fast.node.term, -1, -1, fast.node._member.vote_round)
            result = VoteResult.ACCEPT if request.term else VoteResult.REJECT_ALREADY_VOTED
            fast.answer("n2", request, VoteAnswer(request.term, result))
            fast.step(PeerUnreachable("n1"))
            fast.tick(max(0, fast.node.deadline_ms - fast.now))
    fast.step(Tick())
    assert fast.node.role is Role.LEADER
    assert fast.now < 1500
