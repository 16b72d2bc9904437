"""What a leader pushes to one follower."""

from tests.unit.raft.kit import OneNode, accepted, refused, sent

from turbopump.raft import Effect, PeerTakesBatches, PeerUnreachable, Role, SavedState
from turbopump.raft.messages import PushAnswer, PushKind, PushOrder, RaftCode

COMPARE, TRUNCATE, APPEND, COMMIT = PushKind.COMPARE, PushKind.TRUNCATE, PushKind.APPEND, PushKind.COMMIT


class Peer:
    """The follower n1 of a leader, as the leader hears it."""

    def __init__(self, terms: list[int] | None = None, **settings: object) -> None:
        saved = SavedState(max(terms or [0]) + 1)
        self.one = OneNode(terms, saved, **settings).lead()  # type: ignore[arg-type]
        self.orders = self._to_peer(self.one.effects)

    @property
    def last(self) -> PushOrder:
        return self.orders[-1]

    @property
    def kinds(self) -> list[tuple[PushKind, int, int]]:
        return [(order.kind, order.first_index, order.last_index) for order in self.orders]

    def answers(self, answer: PushAnswer, order: PushOrder | None = None) -> list[tuple[PushKind, int, int]]:
        """Lets the follower answer the last push, and returns what is pushed then."""
        return self.after(self.one.answer("n1", order or self.last, answer))

    def after(self, effects: list[Effect]) -> list[tuple[PushKind, int, int]]:
        new = self._to_peer(effects)
        self.orders += new
        return [(order.kind, order.first_index, order.last_index) for order in new]

    def _to_peer(self, effects: list[Effect]) -> list[PushOrder]:
        return [order for peer, order in sent(effects, PushOrder) if peer == "n1"]


def appending(end: int = 2, **settings: object) -> Peer:
    """A follower that takes entries, with a leader's log up to `end` that it holds."""
    peer = Peer([1] * end, **settings)
    peer.answers(accepted(end - 1))
    peer.answers(accepted(end))
    peer.orders.clear()
    return peer


# comparison


def test_the_comparison_begins_at_the_end_of_the_leaders_log() -> None:
    assert Peer([1, 1, 1]).kinds == [(COMPARE, 2, 2)]


def test_a_new_leader_without_entries_compares_its_first_one() -> None:
    assert Peer().kinds == [(COMPARE, 0, 0)]


def test_a_follower_that_ends_there_gets_entries() -> None:
    assert Peer([1, 1, 1]).answers(accepted(2)) == [(APPEND, 3, 3)]


def test_a_follower_that_has_more_is_told_where_to_continue() -> None:
    peer = Peer([1, 1, 1])
    assert peer.answers(accepted(2, end=7)) == [(TRUNCATE, 2, 2)]
    assert peer.answers(accepted(2)) == [(APPEND, 3, 3)]


def test_a_shorter_log_is_compared_at_its_end() -> None:
    assert Peer([1] * 9).answers(refused(RaftCode.INCONSISTENT_STATE, 8, 0, 4)) == [(COMPARE, 4, 4)]


def test_a_different_entry_is_followed_by_the_one_before() -> None:
    assert Peer([1] * 9).answers(refused(RaftCode.INCONSISTENT_STATE, 8, 0, 11)) == [(COMPARE, 7, 7)]


def test_entries_of_the_own_term_are_passed_over_at_once() -> None:
    peer = appending(3)
    peer.after(peer.one.append(5))
    peer.answers(refused(RaftCode.INCONSISTENT_STATE, 8, 0, 11), peer.orders[-1])
    assert peer.last.first_index == peer.one.log.end_index
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, 8, 0, 11)) == [(COMPARE, 2, 2)]


def test_logs_without_a_common_entry_begin_with_the_leaders_first() -> None:
    peer = Peer([1, 1], first=5)
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, 6, 0, 9)) == [(COMPARE, 5, 5)]
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, 5, 0, 9)) == [(TRUNCATE, 5, 5)]


def test_an_empty_follower_begins_with_the_leaders_first() -> None:
    assert Peer([1] * 4).answers(refused(RaftCode.INCONSISTENT_STATE, 3)) == [(TRUNCATE, 0, 0)]


def test_a_follower_behind_the_begin_index_begins_with_the_leaders_first() -> None:
    assert Peer([1, 1], first=40).answers(refused(RaftCode.INCONSISTENT_STATE, 41, 0, 30)) == [
        (TRUNCATE, 40, 40)
    ]


def test_a_follower_that_begins_above_the_compared_entry_begins_anew() -> None:
    peer = Peer([1] * 4)
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, 3, 3, 9)) == [(TRUNCATE, 0, 0)]


def test_one_that_does_not_follow_yet_is_asked_the_same_after_half_a_second() -> None:
    peer = Peer([1] * 4)
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, 3, 0, 1)) == [(COMPARE, 1, 1)]
    assert peer.answers(refused(RaftCode.NOT_FOLLOWER, 1, 0, 1)) == []
    assert peer.after(peer.one.tick(499)) == []
    assert peer.after(peer.one.tick(1)) == [(COMPARE, 1, 1)]


def test_a_refused_truncate_leads_to_a_comparison_after_a_pause() -> None:
    peer = Peer([1] * 4)
    peer.answers(accepted(3, end=9))
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, 3, 0, 9)) == []
    assert peer.after(peer.one.tick(500)) == [(COMPARE, 4, 4)]


def test_old_entries_that_were_deleted_meanwhile_are_not_compared() -> None:
    peer = Peer([1] * 4)
    peer.answers(refused(RaftCode.INCONSISTENT_STATE, 3, 0, 1))
    peer.one.log.expire(3)
    assert peer.answers(refused(RaftCode.NOT_FOLLOWER, 1, 0, 1)) == []
    assert peer.after(peer.one.tick(500)) == [(COMPARE, 4, 4)]


# entries


def test_entries_are_pushed_one_by_one_without_waiting() -> None:
    peer = appending()
    assert peer.after(peer.one.append(3)) == [(APPEND, 3, 3), (APPEND, 4, 4), (APPEND, 5, 5)]


def test_a_peer_that_takes_batches_gets_many_in_one_push_within_bounds() -> None:
    peer = appending(max_batch_entries=4, max_batch_bytes=200)
    peer.one.step(PeerTakesBatches("n1"))
    assert peer.after(peer.one.append(3)) == [(APPEND, 3, 4), (APPEND, 5, 5)]
    peer.one.step(PeerTakesBatches("n1", takes=False))
    assert peer.after(peer.one.append(2)) == [(APPEND, 6, 6), (APPEND, 7, 7)]


def test_an_entry_larger_than_a_batch_is_pushed_alone() -> None:
    peer = appending(max_batch_bytes=50)
    peer.one.step(PeerTakesBatches("n1"))
    assert peer.after(peer.one.append(2)) == [(APPEND, 3, 3), (APPEND, 4, 4)]


def test_no_more_is_outstanding_than_allowed() -> None:
    peer = appending(max_outstanding_pushes=2)
    assert peer.after(peer.one.append(3)) == [(APPEND, 3, 3), (APPEND, 4, 4)]
    assert peer.answers(accepted(3), peer.orders[0]) == [(APPEND, 5, 5)]


def test_no_more_bytes_are_outstanding_than_allowed_but_always_one_push() -> None:
    peer = appending(max_outstanding_bytes=50)
    assert peer.after(peer.one.append(2)) == [(APPEND, 3, 3)]
    assert peer.answers(accepted(3)) == [(APPEND, 4, 4)]


def test_a_follower_that_is_far_behind_gets_so_many_bytes_per_second() -> None:
    # Entries have 100 bytes: after two of them the quota of the second is used up.
    peer = appending(far_behind_bytes=250, far_behind_bytes_per_s=200)
    peer.one.tick(1000)  # the comparison was counted in the second before
    peer.orders.clear()
    assert peer.after(peer.one.append(6)) == [(APPEND, 3, 3), (APPEND, 4, 4)]
    assert peer.answers(accepted(4)) == []
    assert peer.after(peer.one.tick(999)) == []
    # Behind the next two it lacks no more than 250 bytes.
    assert peer.after(peer.one.tick(1)) == [(APPEND, n, n) for n in range(5, 9)]


def test_a_follower_that_is_not_far_behind_is_not_throttled() -> None:
    peer = appending(far_behind_bytes=600, far_behind_bytes_per_s=200)
    assert len(peer.after(peer.one.append(6))) == 6


def test_a_throttled_follower_that_is_lost_is_not_waited_for() -> None:
    peer = appending(far_behind_bytes=250, far_behind_bytes_per_s=200)
    peer.one.tick(1000)
    peer.after(peer.one.append(6))
    peer.one.step(PeerUnreachable("n1"))
    assert peer.one.node.deadline_ms > peer.one.now


def test_the_oldest_push_is_repeated_after_a_second() -> None:
    peer = appending()
    peer.after(peer.one.append(2))
    assert peer.after(peer.one.tick(999)) == []
    assert peer.after(peer.one.tick(1)) == [(APPEND, 3, 3)]


def test_a_gap_leads_to_a_comparison_from_the_end() -> None:
    peer = appending()
    peer.after(peer.one.append(2))
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, 4, 0, 2)) == [(COMPARE, 4, 4)]


def test_answers_to_pushes_before_a_comparison_change_nothing() -> None:
    peer = appending()
    peer.after(peer.one.append(2))
    first, second = peer.orders
    peer.answers(refused(RaftCode.INCONSISTENT_STATE, 4, 0, 2), second)
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, 3, 0, 2), first) == []
    assert peer.answers(accepted(4), second) == []


def test_a_repeated_answer_to_an_earlier_comparison_changes_nothing() -> None:
    peer = Peer([1] * 9)
    first = peer.last
    refusal = refused(RaftCode.INCONSISTENT_STATE, 8, 0, 4)
    assert peer.answers(refusal) == [(COMPARE, 4, 4)]
    assert peer.answers(refusal, first) == []
    assert peer.answers(accepted(4)) == [(APPEND, n, n) for n in range(5, 10)]


def test_a_repeated_push_that_is_refused_as_such_changes_nothing() -> None:
    peer = appending()
    peer.after(peer.one.append())
    assert peer.answers(refused(RaftCode.REPEATED_PUSH, 3, 0, 2)) == []
    assert peer.answers(accepted(3)) == []
    assert peer.one.node.committed_index == 3


def test_a_lost_connection_is_continued_behind_what_was_acknowledged() -> None:
    peer = appending()
    peer.after(peer.one.append(3))
    peer.answers(accepted(3), peer.orders[0])
    assert peer.after(peer.one.step(PeerUnreachable("n1"))) == []
    assert peer.after(peer.one.tick(500)) == [(APPEND, 4, 4), (APPEND, 5, 5)]


def test_entries_that_were_deleted_before_they_were_pushed_lead_to_a_comparison() -> None:
    peer = appending(max_outstanding_pushes=1)
    peer.after(peer.one.append(4))
    peer.one.log.expire(6)
    assert peer.answers(accepted(3), peer.orders[0]) == [(COMPARE, 6, 6)]


# commits


def test_an_idle_follower_is_told_the_commit_index_each_second() -> None:
    peer = appending()
    assert peer.after(peer.one.tick(999)) == []
    assert peer.after(peer.one.tick(1)) == [(COMMIT, -1, -1)]
    assert peer.last.commit_index == peer.one.node.committed_index
    assert peer.after(peer.one.tick(1000)) == [(COMMIT, -1, -1)]


def test_a_follower_that_has_forgotten_the_comparison_is_compared_again() -> None:
    peer = appending()
    peer.after(peer.one.tick(1000))
    assert peer.answers(refused(RaftCode.INCONSISTENT_STATE, -1, 0, 2)) == [(COMPARE, 2, 2)]


def test_a_follower_that_has_lost_entries_does_not_count_with_them() -> None:
    peer = appending(3)
    peer.after(peer.one.append(2))
    peer.answers(accepted(5), peer.orders[-1])
    assert peer.one.node.followers["n1"].match_index == 5
    peer.after(peer.one.append())
    peer.answers(refused(RaftCode.INCONSISTENT_STATE, 6, 0, 1))
    peer.answers(refused(RaftCode.INCONSISTENT_STATE, 6, 0, 1))
    assert peer.one.node.followers["n1"].match_index == 1


def test_a_later_term_in_an_answer_ends_the_leadership() -> None:
    peer = appending()
    term = peer.one.node.term
    peer.after(peer.one.append())
    peer.answers(refused(RaftCode.EXPIRED_TERM, 3, term=term + 3))
    assert (peer.one.node.role, peer.one.node.term) == (Role.CANDIDATE, term + 3)
