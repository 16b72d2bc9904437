"""Appends of the owner that wait for their commit, with the timer of the earliest deadline."""

from turbopump.raft import PendingAppends
from turbopump.raft.pending_appends import AppendDone
from turbopump.replication.dledger.alarm import Alarm
from turbopump.runtime.clock import Clock


class CommitWaits:
    """`PendingAppends` on a clock: every waiter is called exactly once, at its deadline at the latest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending = PendingAppends()
        self._alarm = Alarm(self._expire)
        self._rings_at_ms: int | None = None
        """When the alarm rings: no later than the first deadline. It is not moved for each append."""

    @property
    def waiting(self) -> int:
        return self._pending.waiting

    @property
    def is_full(self) -> bool:
        """Whether the leader takes no more appends for now."""
        return self._pending.is_full

    def wait(self, term: int, index: int, timeout_ms: int, done: AppendDone) -> None:
        deadline_ms = self._now_ms() + timeout_ms
        self._pending.wait(term, index, deadline_ms, done)
        if self._rings_at_ms is None or deadline_ms < self._rings_at_ms:
            self._set_alarm()

    def committed(self, index: int) -> None:
        self._pending.committed(index)

    def role_lost(self) -> None:
        self._pending.role_lost()
        self._set_alarm()

    def _expire(self) -> None:
        self._pending.expire(self._now_ms())
        self._set_alarm()

    def _set_alarm(self) -> None:
        self._rings_at_ms = self._pending.next_deadline_ms
        delay_ms = None if self._rings_at_ms is None else self._rings_at_ms - self._now_ms()
        self._alarm.set(delay_ms)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)
