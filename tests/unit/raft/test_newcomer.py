"""A node on an empty disk: what it may acknowledge before it knows that no vote and no entry was lost."""

import random

from tests.unit.raft.memory_log import MemoryLog

from turbopump.raft import Answered, Node, NodeConfig, Received, Respond, SavedState, Send, Tick
from turbopump.raft.effects import Effect
from turbopump.raft.messages import (
    NO_TERM,
    Heartbeat,
    PeerAnswer,
    Push,
    PushedEntry,
    PushKind,
    RaftCode,
    VoteAnswer,
    VoteRequest,
    VoteResult,
)
from turbopump.raft.newcomer import QUESTION

FIRST = PushedEntry(0, 1, 0, 148, 0, "x")
HAS_ENTRIES = VoteResult.REJECT_EXPIRED_LEDGER_TERM


def _newcomer() -> Node:
    config = NodeConfig("n2", ("n0", "n1", "n2"))
    node = Node(config, SavedState(joined=False), MemoryLog(), random.Random(1))
    asked = [one for one in node.step(0, Tick()) if isinstance(one, Send)]
    assert {one.to for one in asked} == {"n0", "n1"}
    assert all(isinstance(one.request, VoteRequest) and one.request.term == NO_TERM for one in asked)
    return node


def _follow(node: Node, leader: str, term: int) -> None:
    for number in (1, 2):  # the first one only makes the term known
        node.step(10, Received(number, leader, Heartbeat(term)))
    assert node.leader == leader


def _pushed(node: Node, leader: str, term: int) -> list[Effect]:
    return node.step(20, Received(3, leader, Push(PushKind.TRUNCATE, term, (FIRST,), -1)))


def _answers(effects: list[Effect]) -> list[PeerAnswer]:
    return [one.answer for one in effects if isinstance(one, Respond)]


def test_a_newcomer_takes_no_entries_before_all_others_have_told_their_terms() -> None:
    node = _newcomer()
    _follow(node, "n1", 2)
    node.step(15, Answered("n1", QUESTION, VoteAnswer(2, HAS_ENTRIES)))
    effects = _pushed(node, "n1", 2)
    assert len(effects) == 1
    assert [answer.code for answer in _answers(effects)] == [RaftCode.NOT_FOLLOWER]


def test_a_newcomer_takes_no_entries_of_a_leader_of_an_earlier_term() -> None:
    node = _newcomer()
    _follow(node, "n1", 2)
    node.step(15, Answered("n1", QUESTION, VoteAnswer(2, HAS_ENTRIES)))
    node.step(15, Answered("n0", QUESTION, VoteAnswer(3, HAS_ENTRIES)))
    assert [answer.code for answer in _answers(_pushed(node, "n1", 2))] == [RaftCode.NOT_FOLLOWER]


def test_a_newcomer_takes_the_entries_of_the_leader_of_the_latest_term() -> None:
    node = _newcomer()
    _follow(node, "n1", 2)
    node.step(15, Answered("n1", QUESTION, VoteAnswer(2, HAS_ENTRIES)))
    node.step(15, Answered("n0", QUESTION, VoteAnswer(1, HAS_ENTRIES)))
    effects = _pushed(node, "n1", 2)
    assert effects
    assert _answers(effects) == []  # not before it is safe


def test_a_newcomer_is_not_counted_among_those_that_answered_a_candidate() -> None:
    node = _newcomer()
    effects = node.step(10, Received(1, "n1", VoteRequest(term=5, end_index=3, end_term=4)))
    assert _answers(effects) == [VoteAnswer(0, VoteResult.UNKNOWN)]
    assert node.voted_for is None


def test_a_candidate_with_a_shorter_log_than_all_voters_does_not_raise_the_term() -> None:
    config = NodeConfig("n0", ("n0", "n1", "n2"))
    node = Node(config, SavedState(term=4), MemoryLog([1]), random.Random(1))
    node.step(0, Tick())
    asked = [one.request for one in node.step(1000, Tick()) if isinstance(one, Send)]
    assert isinstance(asked[0], VoteRequest)
    node.step(1010, Answered("n1", asked[0], VoteAnswer(4, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)))
    node.step(1010, Answered("n2", asked[0], VoteAnswer(0, VoteResult.UNKNOWN)))
    assert node.deadline_ms >= 1010 + config.shorter_log_wait_ms + config.min_vote_wait_ms
    node.step(node.deadline_ms, Tick())
    assert node.term == 4
