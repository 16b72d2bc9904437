import logging

import pytest
from tests.unit.store.kit import HandClock

from turbopump.remoting.unread import UnreadAnswers
from turbopump.runtime.rate_limited_log import RateLimitedLog


class Peer:
    """A connection whose peer leaves `unread` bytes."""

    def __init__(self, unread: int, answers: UnreadAnswers) -> None:
        self.unread = unread
        self.aborted = False
        self._answers = answers

    def abort(self) -> None:
        self.aborted = True
        self._answers.forget(self)

    def __str__(self) -> str:
        return f"peer of {self.unread}"


def bounded(max_bytes: int) -> UnreadAnswers:
    return UnreadAnswers(max_bytes, HandClock(), RateLimitedLog(logging.getLogger("unread"), 0.0))


def test_at_the_bound_nothing_is_closed_and_beyond_it_the_reader_that_was_slow_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = bounded(100)
    first, second, third = (Peer(unread, answers) for unread in (40, 60, 1))
    answers.count(first)
    answers.count(second)
    assert (first.aborted, second.aborted) == (False, False)
    answers.count(third)
    assert (first.aborted, second.aborted, third.aborted) == (True, False, False)
    assert caplog.messages == [
        "Closing peer of 40: too many answers are left unread, and it has not read for longest"
    ]


def test_what_was_read_since_the_last_write_is_counted_before_anything_is_closed() -> None:
    answers = bounded(100)
    first, second = Peer(80, answers), Peer(50, answers)
    answers.count(first)
    first.unread = 50
    answers.count(second)
    assert (first.aborted, second.aborted) == (False, False)


def test_a_reader_that_reads_again_no_longer_counts() -> None:
    answers = bounded(100)
    first, second = Peer(90, answers), Peer(90, answers)
    answers.count(first)
    answers.forget(first)
    answers.forget(first)
    answers.count(second)
    answers.count(second)
    assert (first.aborted, second.aborted) == (False, False)


def test_connections_that_leave_little_are_closed_largest_first_when_they_are_too_many() -> None:
    answers = bounded(100)
    peers = [Peer(unread, answers) for unread in (30, 50, 10, 40)]
    answers.bound(peers, 0.0)
    assert [peer.aborted for peer in peers] == [False, True, False, False]
    answers.bound([peer for peer in peers if not peer.aborted], 0.0)
    assert sum(peer.aborted for peer in peers) == 1
