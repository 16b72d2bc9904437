"""The rule of a DLedger group: a message is answered when a majority of the members has it.

In: the member's driver, which says what became of an entry. Out: a `Safety` with the term of the leader. Each
object belongs to one leadership: when that ends, everything that waits is answered SERVICE_NOT_AVAILABLE at
once, so that clients try the next leader. Whether such a message is stored is not known; nor is it after a
time-out, which is answered SYSTEM_ERROR.
"""

from collections.abc import Callable
from typing import Protocol

from turbopump.broker.acknowledgement import Acknowledgement, Safety, Syncs
from turbopump.protocol.codes import ResponseCode
from turbopump.raft import AppendOutcome, AppendResult

MAYBE = "it may be stored all the same"


class CommittedLog(Protocol):
    """Interface of the group's log: where it ends, how far it is committed, which entry holds an offset."""

    @property
    def end(self) -> int: ...
    @property
    def committed(self) -> int: ...
    def index_at(self, offset: int) -> int: ...


class AppendWaits(Protocol):
    """Interface of the member's driver: what became of an entry."""

    def when_committed(self, index: int, timeout_ms: int, done: Callable[[AppendResult], None]) -> None: ...


class QuorumAcknowledgement(Acknowledgement):
    """The rule of one leadership: a message is answered when a majority has it, or with why not."""

    immediate = None

    def __init__(
        self,
        syncs: Syncs,
        log: CommittedLog,
        waits: AppendWaits,
        timeout_ms: Callable[[], int],
        term: int,
        quorum: int,
        on_disk: bool,
        promise: str,
    ) -> None:
        """`on_disk`: members count a message when it is synced (flushDiskType=SYNC_FLUSH)."""
        super().__init__(syncs)
        self._log = log
        self._waits = waits
        self._timeout_ms = timeout_ms
        self._is_over = False
        self.promise = promise
        self.unawaited = Safety("memory")
        self.expected = self._committed = Safety("quorum", quorum, quorum if on_disk else 0, term=term)
        self._timed_out = Safety(
            "memory",
            code=ResponseCode.SYSTEM_ERROR,
            is_safe=False,
            remark=f"no majority of the group had the message in time; {MAYBE}",
        )
        self._role_lost = Safety(
            "memory",
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
            is_safe=False,
            remark=f"this broker does not lead its group any longer; {MAYBE}",
        )

    def end_leadership(self) -> None:
        """Answers everything from now on that this broker does not lead."""
        self._is_over = True

    def when_safe(self, end: int, done: Callable[[Safety], None]) -> None:
        if self._is_over:
            done(self._role_lost)
        elif end <= self._log.committed:
            done(self._committed)
        else:
            # Not simply the last entry: others may have been appended behind this one meanwhile.
            index = self._log.index_at(end - 1)
            self._waits.when_committed(index, self._timeout_ms(), lambda result: done(self._safety(result)))

    def _safety(self, result: AppendResult) -> Safety:
        if result.outcome is AppendOutcome.COMMITTED:
            return self._committed
        return self._timed_out if result.outcome is AppendOutcome.TIMED_OUT else self._role_lost

    async def disk_code(self, end: int) -> ResponseCode:
        """Waits until records below `end` are on this disk and committed; returns OK, or what failed."""
        own = await super().disk_code(end)
        return own if own is not ResponseCode.SUCCESS else (await self.safe(end)).code

    @property
    def unsafe_bytes(self) -> int:
        return self._log.end - self._log.committed


def promise_of(group: str, members: int, on_disk: bool) -> str:
    """Returns in words what an acknowledgement of a group means."""
    quorum = members // 2 + 1
    where = "on disk" if on_disk else "in memory"
    words = f"{quorum} of the {members} brokers of group {group} have the message {where}"
    if members == 1:
        words = f"the only broker of group {group} has the message {where}"
    elif members > quorum:
        words += f": it survives the loss of {members - quorum} of them"
    return words if on_disk else f"{words}. To survive a power cut of all, set flushDiskType=SYNC_FLUSH"
