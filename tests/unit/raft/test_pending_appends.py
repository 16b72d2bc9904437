"""Every append that waits gets exactly one answer."""

import pytest

from turbopump.raft import AppendOutcome, AppendResult, PendingAppends
from turbopump.raft import pending_appends as module

COMMITTED, TIMED_OUT, ROLE_LOST = AppendOutcome.COMMITTED, AppendOutcome.TIMED_OUT, AppendOutcome.ROLE_LOST


class Waiters:
    """Appends 0 to n - 1 of term 7, with deadlines 100, 200, …"""

    def __init__(self, count: int) -> None:
        self.pending = PendingAppends()
        self.answers: list[AppendResult] = []
        for index in range(count):
            self.pending.wait(7, index, 100 * (index + 1), self.answers.append)

    @property
    def outcomes(self) -> list[tuple[int, AppendOutcome]]:
        return [(answer.index, answer.outcome) for answer in self.answers]


def test_a_commit_answers_up_to_its_index_with_term_and_index() -> None:
    waiters = Waiters(3)
    waiters.pending.committed(1)
    assert waiters.answers == [AppendResult(COMMITTED, 7, 0), AppendResult(COMMITTED, 7, 1)]


def test_a_deadline_answers_that_the_outcome_is_unknown() -> None:
    waiters = Waiters(2)
    waiters.pending.expire(99)
    assert waiters.outcomes == []
    waiters.pending.expire(100)
    assert waiters.outcomes == [(0, TIMED_OUT)]


def test_a_lost_role_answers_all_at_once() -> None:
    waiters = Waiters(3)
    waiters.pending.role_lost()
    assert waiters.outcomes == [(0, ROLE_LOST), (1, ROLE_LOST), (2, ROLE_LOST)]
    assert waiters.pending.waiting == 0


def test_each_waiter_is_answered_once_whatever_happens_later() -> None:
    waiters = Waiters(3)
    waiters.pending.expire(100)
    waiters.pending.committed(1)
    waiters.pending.role_lost()
    waiters.pending.expire(10_000)
    waiters.pending.committed(10)
    assert waiters.outcomes == [(0, TIMED_OUT), (1, COMMITTED), (2, ROLE_LOST)]


def test_the_next_deadline_is_that_of_the_oldest_that_still_waits() -> None:
    waiters = Waiters(2)
    assert waiters.pending.next_deadline_ms == 100
    waiters.pending.committed(0)
    assert waiters.pending.next_deadline_ms == 200
    waiters.pending.committed(1)
    assert waiters.pending.next_deadline_ms is None


def test_a_waiter_that_fails_does_not_keep_others_from_their_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiters = Waiters(1)

    def fail(result: AppendResult) -> None:
        raise ConnectionError("the client is gone")

    waiters.pending.wait(7, 1, 100, fail)
    waiters.pending.wait(7, 2, 100, waiters.answers.append)
    waiters.pending.committed(2)
    assert [index for index, _ in waiters.outcomes] == [0, 2]
    assert "the client is gone" in caplog.text


def test_a_waiter_may_wait_again_while_it_is_answered() -> None:
    waiters = Waiters(0)

    def again(result: AppendResult) -> None:
        waiters.pending.wait(7, 5, 500, waiters.answers.append)

    waiters.pending.wait(7, 1, 100, again)
    waiters.pending.role_lost()
    assert waiters.pending.waiting == 1


def test_it_is_full_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING_APPENDS", 3)
    waiters = Waiters(2)
    assert not waiters.pending.is_full
    waiters.pending.wait(7, 2, 100, waiters.answers.append)
    assert waiters.pending.is_full


def test_answered_waiters_do_not_gather() -> None:
    waiters = Waiters(5000)
    for index in range(5000):
        waiters.pending.committed(index)
    assert len(waiters.pending._by_deadline) <= module.MAX_MARKS + 2
