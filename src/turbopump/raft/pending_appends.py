"""Appends of a leader that wait until they are committed. Pure: no socket, no clock, no file."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

MAX_PENDING_APPENDS = 10_000
"""DLedger's bound: a leader without its followers must not gather requests without end."""


class AppendOutcome(StrEnum):
    """What became of an append."""

    COMMITTED = "committed"
    TIMED_OUT = "timed out"
    """No majority in time: whether it will be committed is not known."""
    ROLE_LOST = "role lost"
    """The node leads no longer: whether it will be committed is not known."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The one answer of a pending append."""

    outcome: AppendOutcome
    term: int
    index: int


AppendDone = Callable[[AppendResult], None]


class PendingAppends:
    """Waiters by index and deadline; each is called exactly once."""

    def wait(self, term: int, index: int, deadline_ms: int, done: AppendDone) -> None:
        """Calls `done` once: when `index` is committed, at the deadline, or when the role is lost."""
        raise NotImplementedError

    def committed(self, index: int) -> None:
        """Answers the waiters up to `index`: they are committed."""
        raise NotImplementedError

    def expire(self, now_ms: int) -> None:
        """Answers the waiters whose deadline has passed."""
        raise NotImplementedError

    def role_lost(self) -> None:
        """Answers all waiters: this node leads no longer."""
        raise NotImplementedError

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` has to be called next; None: no append waits."""
        raise NotImplementedError
