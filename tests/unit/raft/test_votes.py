"""Who gets the vote of a node, and in which order that is decided."""

import pytest
from tests.unit.raft.kit import OneNode, only, saves_before_answers

from turbopump.raft import Received, Role, RoleChanged, Save, SavedState
from turbopump.raft.messages import NO_TERM, VoteRequest, VoteResult


def vote(one: OneNode, term: int, end_index: int, end_term: int, candidate: str = "n1") -> VoteResult:
    result: VoteResult = one.receive(candidate, VoteRequest(term, end_index, end_term)).result
    return result


def test_a_vote_is_on_disk_before_it_is_answered() -> None:
    one = OneNode([1, 1])
    effects = one.step(Received(1, "n1", VoteRequest(1, 1, 1)))
    assert only(effects, Save) == [Save(1, "n1")]
    assert saves_before_answers(effects)


def test_a_repeated_vote_is_granted_again_and_not_saved_again() -> None:
    one = OneNode([1, 1])
    assert vote(one, 1, 1, 1) is VoteResult.ACCEPT
    one.effects.clear()
    assert vote(one, 1, 1, 1) is VoteResult.ACCEPT
    assert not only(one.effects, Save)


def test_a_node_votes_once_in_a_term_also_after_a_restart() -> None:
    assert vote(OneNode([1], SavedState(1, "n2")), 1, 0, 1) is VoteResult.REJECT_ALREADY_VOTED


def test_a_stranger_gets_no_vote() -> None:
    assert vote(OneNode([1]), 1, 0, 1, candidate="n9") is VoteResult.REJECT_UNKNOWN_LEADER


def test_a_request_in_the_own_name_gets_no_vote() -> None:
    assert vote(OneNode([1]), 1, 0, 1, candidate="n0") is VoteResult.REJECT_UNEXPECTED_LEADER


@pytest.mark.parametrize(
    ("end_index", "end_term", "result"),
    [
        (9, 1, VoteResult.REJECT_EXPIRED_LEDGER_TERM),
        (0, 2, VoteResult.REJECT_SMALL_LEDGER_END_INDEX),
        (1, 2, VoteResult.ACCEPT),
        (0, 3, VoteResult.ACCEPT),
    ],
)
def test_the_candidates_log_must_be_as_long_as_all_of_the_own_log(
    end_index: int, end_term: int, result: VoteResult
) -> None:
    assert vote(OneNode([1, 2], SavedState(3)), 3, end_index, end_term) is result


def test_a_shorter_log_is_refused_before_its_larger_term_is_looked_at() -> None:
    one = OneNode([1, 2])
    assert vote(one, 7, 0, 2) is VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    assert one.node.term == 2


def test_an_earlier_term_gets_no_vote_and_is_told_the_present_one() -> None:
    answer = OneNode([1], SavedState(4)).receive("n1", VoteRequest(3, 0, 1))
    assert (answer.result, answer.term) == (VoteResult.REJECT_EXPIRED_VOTE_TERM, 4)


def test_a_larger_term_is_entered_and_refused_with_the_old_one_then_granted() -> None:
    one = OneNode([1])
    answer = one.receive("n1", VoteRequest(5, 0, 1))
    assert (answer.result, answer.term) == (VoteResult.REJECT_TERM_NOT_READY, 1)
    assert only(one.effects, Save) == [Save(5, None)]
    assert vote(one, 5, 0, 1) is VoteResult.ACCEPT


def test_a_leader_that_sees_a_larger_term_in_a_request_leads_no_longer() -> None:
    one = OneNode([1]).lead()
    end, term = one.log.end_index, one.node.term
    assert vote(one, term + 1, end, term) is VoteResult.REJECT_TERM_NOT_READY
    assert only(one.effects, RoleChanged)[-1] == RoleChanged(Role.CANDIDATE, term + 1, None)


def test_a_follower_that_voted_for_its_leader_says_that_there_is_one() -> None:
    one = OneNode([1], SavedState(1, "n1")).follow("n1")
    assert vote(one, 1, 0, 1, candidate="n2") is VoteResult.REJECT_ALREADY_HAS_LEADER


def test_the_question_for_a_term_is_never_granted() -> None:
    question = VoteRequest(NO_TERM, -1, NO_TERM)
    assert OneNode([1]).receive("n1", question).result is VoteResult.REJECT_EXPIRED_LEDGER_TERM
    assert OneNode().receive("n1", question).result is VoteResult.REJECT_EXPIRED_VOTE_TERM
