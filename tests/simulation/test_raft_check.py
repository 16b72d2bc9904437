"""The checker of the simulated Raft group, on histories written by hand."""

import pytest
from msgspec.structs import replace
from tests.simulation.raft.check import MAX_ANSWER_MS, check
from tests.simulation.raft.history import (
    Accepted,
    Alone,
    Committed,
    DeadlinesPassed,
    Ended,
    Expired,
    Flushed,
    Granted,
    History,
    Occurrence,
    Outcome,
    Requested,
    Responded,
    RoleTaken,
    Saved,
    Spoke,
    Started,
    Stop,
    Stopped,
    Stuck,
    Truncated,
    Wrote,
)

from turbopump.raft.effects import Role
from turbopump.raft.messages import Heartbeat, HeartbeatAnswer, PushedEntry, RaftCode
from turbopump.raft.pending_appends import AppendOutcome

A, B, C = MEMBERS = ("n0", "n1", "n2")
X = PushedEntry(0, 1, 0, 148, 0, "x")
Y = PushedEntry(1, 1, 148, 148, 0, "y")
OTHER = PushedEntry(1, 2, 148, 148, 0, "other")


def _names(*occurrences: Occurrence, has_power_cuts: bool = False) -> set[str]:
    return {one.name for one in check(History(MEMBERS, has_power_cuts, list(occurrences)))}


def _lead(member: str, term: int, at: float = 1.0) -> list[Occurrence]:
    return [Saved(at, member, term, member, True), RoleTaken(at, member, Role.LEADER, term, member)]


def _start() -> list[Occurrence]:
    return [Started(0.0, member, 0, -1, True) for member in MEMBERS]


def _committed_x() -> list[Occurrence]:
    """Returns the beginning of most histories: A leads in term 1, and X is committed by A and B."""
    return [
        *_start(),
        *_lead(A, 1),
        Wrote(2.0, A, (X,)),
        Wrote(3.0, B, (X,)),
        Committed(4.0, A, 1, 0, True),
    ]


def test_a_history_in_order_has_no_anomaly() -> None:
    later = [Accepted(5.0, A, "y", 1, 1, 2505.0), Wrote(5.0, A, (Y,)), Wrote(6.0, C, (X, Y))]
    answered = [Committed(7.0, A, 1, 1, True), Outcome(7.0, A, "y", AppendOutcome.COMMITTED)]
    next_leader = [*_lead(C, 2, 9.0), Committed(9.5, C, 2, 1, False), Truncated(9.6, B, 0, None)]
    assert _names(*_committed_x(), *later, *answered, *next_leader, Ended(20_000.0)) == set()


def test_two_leaders_of_a_term_are_found() -> None:
    assert _names(*_start(), *_lead(A, 1), *_lead(B, 1)) == {"two leaders"}


def test_a_second_vote_is_found_also_behind_a_restart() -> None:
    first = [Saved(1.0, C, 1, A, True), Granted(1.0, C, 1, A)]
    again = [Stopped(2.0, C, Stop.KILL, -1), Started(3.0, C, 1, -1, True)]
    assert _names(*_start(), *first, *again, Granted(4.0, C, 1, A)) == set()
    assert _names(*_start(), *first, *again, Saved(4.0, C, 1, B, True), Granted(4.0, C, 1, B)) == {
        "two votes",
        "vote changed",
    }


def test_a_vote_or_a_term_that_is_not_on_disk_is_found() -> None:
    assert _names(*_start(), Saved(1.0, C, 1, None, True), Granted(1.0, C, 1, A)) == {"vote not saved"}
    assert _names(*_start(), Spoke(1.0, C, 1)) == {"term not saved"}


def test_a_term_that_falls_is_found() -> None:
    saved = Saved(1.0, C, 5, None, True)
    assert _names(*_start(), saved, Saved(2.0, C, 4, None, True)) == {"term fell"}
    assert _names(*_start(), saved, Started(2.0, C, 4, -1, True)) == {"term fell"}
    assert _names(*_start(), saved, Spoke(2.0, C, 5), Spoke(2.0, C, 4)) == {"term fell"}


def test_a_replaced_disk_begins_without_a_term_but_its_votes_count() -> None:
    first = [Saved(1.0, C, 1, A, True), Granted(1.0, C, 1, A), Stopped(2.0, C, Stop.DISK_LOST, -1)]
    again = Started(3.0, C, 0, -1, False)
    assert _names(*_start(), *first, again) == set()
    hasty = [Saved(4.0, C, 1, B, False), Granted(4.0, C, 1, B)]
    assert _names(*_start(), *first, again, *hasty) == {"vote of a newcomer", "two votes"}
    assert _names(*_start(), *first, again, RoleTaken(4.0, C, Role.LEADER, 2, C)) == {"newcomer leads"}


def test_a_new_disk_may_vote_again_for_the_one_that_leads_already() -> None:
    first = [Saved(1.0, C, 1, B, True), Granted(1.0, C, 1, B), *_lead(A, 1)]
    again = [Saved(4.0, C, 1, A, True), Granted(4.0, C, 1, A)]
    lost = [Stopped(2.0, C, Stop.DISK_LOST, -1), Started(3.0, C, 0, -1, False)]
    assert _names(*_start(), *first, *lost, *again) == set()
    assert _names(*_start(), *first, *again) == {"two votes", "vote changed"}


@pytest.mark.parametrize("other", [replace(X, body="z"), replace(X, pos=7)])
def test_two_entries_of_one_index_and_term_are_found(other: PushedEntry) -> None:
    assert _names(*_start(), Wrote(1.0, A, (X,)), Wrote(2.0, B, (other,))) == {"log matching"}


def test_the_same_entry_behind_different_ones_is_found() -> None:
    before, last = PushedEntry(0, 2, 0, 148, 0, "z"), PushedEntry(1, 3, 148, 148, 0, "y")
    assert _names(*_start(), Wrote(1.0, A, (X, last)), Wrote(2.0, B, (before, last))) == {"log matching"}


def test_an_entry_that_is_appended_twice_is_found() -> None:
    assert _names(*_start(), Wrote(1.0, A, (X,)), Wrote(2.0, A, (X,))) == {"gap"}


def test_a_committed_entry_that_is_cut_off_is_found() -> None:
    assert _names(*_committed_x(), Truncated(5.0, B, -1, None)) == {"committed entry cut off"}
    assert _names(*_committed_x(), Truncated(5.0, B, -1, X)) == set()
    assert _names(*_committed_x(), Truncated(5.0, B, -1, replace(X, body="z", term=2))) == {
        "committed entry cut off"
    }


def test_a_whole_log_may_begin_again_further_on() -> None:
    history = [*_committed_x(), Wrote(5.0, A, (Y,)), Wrote(5.0, C, (X, Y)), Committed(6.0, A, 1, 1, True)]
    assert (
        _names(*history, Expired(7.0, A, 1), Truncated(8.0, B, 0, Y), Committed(9.0, B, 1, 1, False)) == set()
    )


def test_a_leader_that_truncates_is_found() -> None:
    assert _names(*_start(), *_lead(A, 1), Wrote(2.0, A, (X,)), Truncated(3.0, A, -1, None)) == {
        "leader truncates"
    }


def test_a_later_leader_without_a_committed_entry_is_found() -> None:
    assert _names(*_committed_x(), *_lead(C, 2, 5.0)) == {"leader lacks a committed entry"}


def test_a_commit_behind_the_election_of_a_later_leader_that_lacks_it_is_found() -> None:
    history = [*_start(), *_lead(A, 1), Wrote(2.0, A, (X,)), *_lead(C, 2, 3.0), Wrote(4.0, B, (X,))]
    assert _names(*history, Committed(5.0, A, 1, 0, True)) == {"leader lacks a committed entry"}


def test_a_leader_of_an_earlier_term_may_lack_what_a_later_one_committed() -> None:
    history = [
        *_start(),
        *_lead(A, 2),
        Wrote(2.0, A, (replace(X, term=2),)),
        Wrote(3.0, B, (replace(X, term=2),)),
    ]
    assert _names(*history, Committed(4.0, A, 2, 0, True), *_lead(C, 1, 5.0)) == set()


def test_two_committed_entries_of_one_index_are_found() -> None:
    wrong = [Wrote(5.0, C, (replace(X, term=0, body="z"),)), Committed(6.0, C, 1, 0, False)]
    assert _names(*_committed_x(), *wrong) == {"two committed entries"}


def test_a_commit_that_falls_or_is_beyond_the_log_is_found() -> None:
    assert _names(*_committed_x(), Committed(5.0, A, 1, -1, False)) == {"commit index fell"}
    assert _names(*_committed_x(), Committed(5.0, B, 1, 1, False)) == {"commit beyond the log"}
    assert _names(*_committed_x(), Stopped(5.0, C, Stop.KILL, -1), Started(6.0, C, 0, 0, True)) == {
        "commit beyond the log"
    }


def test_a_commit_of_an_earlier_term_by_counting_is_found() -> None:
    history = [*_start(), *_lead(A, 1), Wrote(2.0, A, (X,)), Wrote(3.0, B, (X,)), *_lead(A, 3, 4.0)]
    assert _names(*history, Committed(5.0, A, 3, 0, True)) == {"commit of an earlier term"}


def test_a_commit_without_a_majority_is_found() -> None:
    history = [*_start(), *_lead(A, 1), Wrote(2.0, A, (X,))]
    assert _names(*history, Committed(5.0, A, 1, 0, True)) == {"commit without a majority"}
    lost = [Wrote(3.0, B, (X,)), Stopped(4.0, B, Stop.KILL, -1)]
    assert _names(*history, *lost, Committed(5.0, A, 1, 0, True)) == {"commit without a majority"}


def test_entries_that_are_not_flushed_do_not_count_where_power_is_cut() -> None:
    history = [*_start(), *_lead(A, 1), Wrote(2.0, A, (X,)), Flushed(2.1, A, 0), Wrote(3.0, B, (X,))]
    commit = Committed(5.0, A, 1, 0, True)
    assert _names(*history, commit, has_power_cuts=True) == {"commit without a majority"}
    assert _names(*history, Flushed(4.0, B, 0), commit, has_power_cuts=True) == set()


def test_the_copy_of_a_disk_that_was_replaced_later_counts() -> None:
    history = [*_start(), *_lead(A, 1), Wrote(2.0, A, (X,)), Wrote(3.0, B, (X,))]
    lost = [Stopped(4.0, B, Stop.DISK_LOST, -1), Started(4.1, B, 0, -1, False)]
    assert _names(*history, *lost, Committed(5.0, A, 1, 0, True)) == set()
    joined = Saved(4.2, B, 1, None, True)
    assert _names(*history, *lost, joined, Committed(5.0, A, 1, 0, True)) == {"commit without a majority"}


def test_an_append_without_an_answer_is_found_unless_its_process_ended() -> None:
    asked = [*_start(), *_lead(A, 1), Accepted(2.0, A, "x", 1, 0, 2502.0)]
    assert _names(*asked, Ended(2503.0)) == {"append not answered"}
    assert _names(*asked, Ended(2501.0)) == set()
    assert _names(*asked, Stopped(2400.0, A, Stop.KILL, -1), Ended(9000.0)) == set()
    assert _names(*asked, DeadlinesPassed(2600.0, A, 2502.0)) == {"append not answered"}
    assert _names(*asked, DeadlinesPassed(2600.0, A, 2501.0)) == set()


def test_a_second_answer_to_an_append_is_found() -> None:
    asked = [*_start(), *_lead(A, 1), Accepted(2.0, A, "x", 1, 0, 2502.0)]
    answer = Outcome(3.0, A, "x", AppendOutcome.ROLE_LOST)
    assert _names(*asked, answer, answer) == {"append answered twice"}


def test_an_acknowledged_append_that_is_not_committed_is_found() -> None:
    asked = [*_start(), *_lead(A, 1), Accepted(2.0, A, "x", 1, 0, 2502.0), Wrote(2.0, A, (X,))]
    assert _names(*asked, Outcome(3.0, A, "x", AppendOutcome.COMMITTED)) == {"acknowledged, not committed"}


def test_a_request_without_an_answer_and_one_with_two_are_found() -> None:
    asked = [*_start(), Requested(1.0, B, 7, A, Heartbeat(1))]
    answer = Responded(2.0, B, 7, HeartbeatAnswer(RaftCode.SUCCESS))
    assert _names(*asked, Ended(MAX_ANSWER_MS + 2.0)) == {"request not answered"}
    assert _names(*asked, answer, Ended(MAX_ANSWER_MS + 2.0)) == set()
    assert _names(*asked, answer, answer) == {"request answered twice"}
    assert _names(*asked, Stopped(2.0, B, Stop.KILL, -1), Ended(MAX_ANSWER_MS + 2.0)) == set()


def test_a_leader_without_a_majority_and_a_group_without_progress_are_found() -> None:
    assert _names(*_start(), Alone(9.0, A, 1, 13_000)) == {"leader without a majority"}
    assert _names(*_start(), Stuck(9.0, "no leader")) == {"no progress"}


def test_a_log_that_lost_its_end_in_a_crash_goes_on_from_there() -> None:
    history = [*_start(), *_lead(A, 1), Wrote(2.0, A, (X, Y)), Stopped(3.0, A, Stop.POWER_CUT, 0)]
    assert (
        _names(*history, Started(4.0, A, 1, -1, True, (X,)), Wrote(5.0, A, (OTHER,)), has_power_cuts=True)
        == set()
    )


def test_entries_that_were_cut_off_and_are_back_after_a_crash_are_found() -> None:
    last = PushedEntry(2, 1, 296, 148, 0, "z")
    history = [*_start(), Wrote(2.0, A, (X, Y, last)), Truncated(3.0, A, 0, None), Wrote(4.0, A, (OTHER,))]
    crash = Stopped(5.0, A, Stop.POWER_CUT, 2)
    assert _names(*history, crash, Started(6.0, A, 2, -1, True, (X, OTHER))) == set()
    assert _names(*history, crash, Started(6.0, A, 2, -1, True, (X, OTHER, last))) == {
        "log changed",
        "log matching",
    }
