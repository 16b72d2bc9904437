"""Data losses that others have had (known-failures), as far as a node alone can show them."""

from tests.unit.raft.kit import OneNode, accepted, only, sent
from tests.unit.raft.memory_log import entry
from tests.unit.raft.transcript import Stage

from turbopump.raft import AppendOutcome, Commit, PendingAppends, Role, RoleChanged, SavedState
from turbopump.raft.messages import PushKind, PushOrder


def played(script: str) -> Stage:
    """Runs a script and returns its stage."""
    stage = Stage()
    for line in script.strip().splitlines():
        stage.do(line)
    return stage


def test_row_10_a_restarted_node_shows_nothing_that_is_not_committed() -> None:
    one = OneNode([1, 1, 1, 1], SavedState(2, committed_index=1)).follow(term=2)
    assert one.node.committed_index == 1
    one.push(PushKind.COMMIT, commit=3)
    assert not only(one.effects, Commit)


def test_row_11_a_commit_index_beyond_the_log_is_brought_down_and_a_leader_is_not_stuck() -> None:
    one = OneNode([1, 1], SavedState(1, committed_index=9)).lead()
    assert one.node.committed_index == 1
    compare = next(order for peer, order in sent(one.effects, PushOrder) if peer == "n1")
    effects = one.answer("n1", compare, accepted(1))
    append = sent(effects, PushOrder)[0][1]
    one.answer("n1", append, accepted(2))
    assert one.node.committed_index == 2


def test_row_12_a_follower_commits_only_what_its_leader_has_checked() -> None:
    one = OneNode([1, 1, 1], SavedState(2)).follow(term=2)
    one.push(PushKind.COMPARE, entry(0, 1), commit=2)
    assert one.node.committed_index == 0
    one.push(PushKind.APPEND, entry(1, 2), commit=2)
    assert (one.node.committed_index, str(one.log)) == (1, "t1 0, t2 1")


def test_row_13_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    one = OneNode([1, 2], SavedState(3), members=("n0", "n1", "n2", "n3", "n4")).lead()
    for peer, order in sent(one.effects, PushOrder):
        one.answer(peer, order, accepted(1))
    assert one.node.committed_index == -1


def test_row_14_every_pending_append_is_answered_in_an_odd_network() -> None:
    stage = played(
        """
        group n0 n1 n2
        start
        run 1400
        block n1 > n0
        block n2 > n0
        append n0 3
        run 3000
        append n0 2
        run 10000
        """
    )
    answers = [line.split(" of t")[0].split("append ")[1] for line in stage.group.lines if " append " in line]
    assert answers == ["1", "2", "3", "4", "5"]
    assert all(server.pending.waiting == 0 for server in stage.group.servers.values())


def test_row_20_logs_agree_after_fast_changes_of_leaders() -> None:
    """KIP-101 and KIP-279: leaders change before followers have caught up; tails of several terms differ."""
    stage = played(
        """
        group n0 n1 n2
        log n0 t1 0-3, t4 4-5
        log n1 t1 0-3, t2 4-8
        log n2 t1 0-3, t3 4-6
        saved n0 t4 vote n0 commit 3
        saved n1 t4 vote n0 commit 2
        saved n2 t4 vote n0 commit 0
        start n1 n2
        run 8000
        start n0
        run 4000
        stop n0
        run 12000
        start n0
        run 12000
        """
    )
    logs = {str(server.log) for server in stage.group.servers.values()}
    assert len(logs) == 1
    assert logs.pop().startswith("t1 0-3, ")
    assert len({server.node.committed_index for server in stage.group.servers.values() if server.node}) == 1


def test_row_28_appends_that_wait_are_answered_when_the_role_is_lost() -> None:
    stage = played(
        """
        group n0 n1 n2
        start
        run 5000
        stop n1 n2
        run 5000
        append n0 2
        run 2000
        """
    )
    lines = [line.split(maxsplit=1)[1] for line in stage.group.lines]
    assert "n0 append 1 of t0: role lost" in lines
    assert "n0 append 2 of t0: role lost" in lines


def test_row_29_an_append_that_timed_out_may_be_committed_later_and_is_not_answered_again() -> None:
    answers: list[AppendOutcome] = []
    pending = PendingAppends()
    pending.wait(0, 1, 2500, lambda result: answers.append(result.outcome))
    one = OneNode().lead()
    one.append()
    pending.expire(2500)
    for peer, order in sent(one.effects, PushOrder):
        for _, append in sent(one.answer(peer, order, accepted(order.last_index)), PushOrder):
            one.answer(peer, append, accepted(append.last_index))
    assert one.node.committed_index == 1
    pending.committed(one.node.committed_index)
    assert answers == [AppendOutcome.TIMED_OUT]


def test_a_role_is_told_before_anything_that_follows_from_it() -> None:
    one = OneNode([1]).lead()
    kinds = [type(effect) for effect in one.effects]
    roles = only(one.effects, RoleChanged)
    assert roles[-1].role is Role.LEADER
    assert kinds.index(RoleChanged) < max(
        index for index, kind in enumerate(kinds) if kind.__name__ == "Send"
    )
