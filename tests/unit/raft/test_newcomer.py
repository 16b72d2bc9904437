"""A node with an empty disk: when it may vote."""

from tests.unit.raft.kit import OneNode, only, sent
from tests.unit.raft.memory_log import entry

from turbopump.raft import PeerUnreachable, Role, Save, SavedState, Truncate
from turbopump.raft.messages import (
    Heartbeat,
    PushKind,
    RaftCode,
    TransferRequest,
    VoteAnswer,
    VoteRequest,
    VoteResult,
)
from turbopump.raft.newcomer import QUESTION

NEW = SavedState(joined=False)
HAS_ENTRIES, IS_EMPTY = VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_EXPIRED_VOTE_TERM


def told(one: OneNode, peer: str, term: int, result: VoteResult = HAS_ENTRIES) -> None:
    one.answer(peer, QUESTION, VoteAnswer(term, result))


def test_it_asks_all_others_for_their_terms_until_they_answer() -> None:
    one = OneNode(saved=NEW)
    assert sent(one.effects, VoteRequest) == [("n1", QUESTION), ("n2", QUESTION)]
    told(one, "n1", 4)
    assert sent(one.tick(500), VoteRequest) == [("n2", QUESTION)]
    told(one, "n2", 4)
    assert not sent(one.tick(5000), VoteRequest)


def test_it_neither_votes_nor_stands() -> None:
    one = OneNode(saved=NEW)
    assert one.receive("n1", VoteRequest(3, 5, 2)).result is VoteResult.UNKNOWN
    assert one.node.term == 0
    one.tick(30_000)
    assert (one.node.role, one.node.term) == (Role.CANDIDATE, 0)


def test_it_takes_entries_and_acknowledges_them_when_all_have_told_their_terms() -> None:
    one = OneNode(saved=NEW).follow("n1", term=3)
    told(one, "n1", 3)
    told(one, "n2", 3)
    assert one.push(PushKind.TRUNCATE, entry(0, 1), commit=1).code is RaftCode.SUCCESS
    assert not one.node.joined
    assert one.push(PushKind.APPEND, entry(1, 3)).code is RaftCode.SUCCESS


def test_it_takes_no_entries_while_another_member_may_lead_in_a_later_term() -> None:
    one = OneNode(saved=NEW).follow("n1", term=3)
    told(one, "n1", 3)
    assert one.push(PushKind.TRUNCATE, entry(0, 1)).code is RaftCode.NOT_FOLLOWER
    told(one, "n2", 4)
    assert one.push(PushKind.TRUNCATE, entry(0, 1)).code is RaftCode.NOT_FOLLOWER
    assert not only(one.effects, Truncate)


def test_it_joins_when_all_have_told_their_terms_and_it_has_what_the_leader_has() -> None:
    one = OneNode(saved=NEW).follow("n1", term=3)
    told(one, "n1", 3)
    told(one, "n2", 2)
    assert one.push(PushKind.COMPARE, entry(2, 3)).code is RaftCode.INCONSISTENT_STATE
    one.push(PushKind.TRUNCATE, entry(0, 1))
    one.push(PushKind.APPEND, entry(1, 1))
    assert not one.node.joined
    one.push(PushKind.APPEND, entry(2, 3))
    assert one.node.joined
    assert only(one.effects, Save)[-1] == Save(3, "n1", joined=True)


def test_it_does_not_join_before_its_entries_are_safe() -> None:
    one = OneNode(saved=NEW, syncs=False).follow("n1", term=3)
    told(one, "n1", 3)
    told(one, "n2", 3)
    one.push(PushKind.TRUNCATE, entry(0, 3))
    assert not one.node.joined
    one.sync()
    assert one.node.joined


def test_the_commit_index_of_the_leader_counts_as_mentioned() -> None:
    one = OneNode(saved=NEW).follow("n1", term=3)
    told(one, "n1", 3)
    told(one, "n2", 3)
    one.push(PushKind.TRUNCATE, entry(0, 1), commit=1)
    assert not one.node.joined
    one.push(PushKind.APPEND, entry(1, 3))
    assert one.node.joined


def test_one_member_that_was_not_heard_keeps_it_from_joining() -> None:
    one = OneNode(saved=NEW).follow("n1", term=3)
    told(one, "n1", 3)
    one.push(PushKind.TRUNCATE, entry(0, 3))
    assert not one.node.joined
    one.step(PeerUnreachable("n2"))
    assert not one.node.joined


def test_a_leader_of_an_earlier_term_than_it_was_told_is_not_enough() -> None:
    one = OneNode(saved=NEW).follow("n1", term=3)
    told(one, "n1", 3)
    told(one, "n2", 4)
    one.push(PushKind.TRUNCATE, entry(0, 3))
    assert not one.node.joined


def test_after_joining_it_has_voted_for_its_leader_in_that_term() -> None:
    one = OneNode(saved=NEW).follow("n1", term=3)
    told(one, "n1", 3)
    told(one, "n2", 3)
    one.push(PushKind.TRUNCATE, entry(0, 3))
    assert one.receive("n2", VoteRequest(3, 5, 3)).result is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert one.receive("n2", VoteRequest(4, 5, 3)).result is VoteResult.REJECT_TERM_NOT_READY
    assert one.receive("n2", VoteRequest(4, 5, 3)).result is VoteResult.ACCEPT


def test_when_all_logs_are_empty_it_begins_in_a_term_later_than_all() -> None:
    one = OneNode(saved=NEW)
    told(one, "n1", 0, IS_EMPTY)
    told(one, "n2", 2, IS_EMPTY)
    assert one.node.joined
    assert only(one.effects, Save) == [Save(3, None, joined=True)]
    assert sent(one.tick(500), VoteRequest)[0][1].term == 3


def test_one_log_with_entries_is_not_a_first_start() -> None:
    one = OneNode(saved=NEW)
    told(one, "n1", 1, IS_EMPTY)
    told(one, "n2", 1, HAS_ENTRIES)
    assert not one.node.joined


def test_an_answer_of_another_newcomer_that_is_unknown_is_no_answer() -> None:
    one = OneNode(saved=NEW)
    told(one, "n1", 1, VoteResult.UNKNOWN)
    told(one, "n2", 1, IS_EMPTY)
    assert not one.node.joined


def test_a_group_of_one_has_nobody_to_ask() -> None:
    one = OneNode(saved=NEW, members=("n0",))
    assert one.node.joined
    assert one.node.role is Role.LEADER


def test_a_term_that_is_older_than_the_log_is_a_lost_vote() -> None:
    one = OneNode([1, 4], SavedState(2, "n1"))
    assert not one.node.joined
    assert one.receive("n1", VoteRequest(4, 9, 4)).result is VoteResult.UNKNOWN
    assert OneNode([1, 4], SavedState(4)).node.joined


def test_it_does_not_take_the_leadership() -> None:
    one = OneNode(saved=NEW).follow("n1", term=3)
    assert one.receive("n1", TransferRequest(3, "n1", "n0", -1)).code is RaftCode.TAKE_LEADERSHIP_FAILED


def test_it_says_that_it_has_not_joined_whenever_it_saves() -> None:
    one = OneNode(saved=NEW)
    one.receive("n1", Heartbeat(5))
    assert only(one.effects, Save) == [Save(5, None, joined=False)]
    assert not only(one.effects, Truncate)
