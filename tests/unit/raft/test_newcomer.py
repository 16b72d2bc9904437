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


