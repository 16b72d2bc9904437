"""Carries out a decision at the branches of a transaction: calls, retries, and what must be parked.

Used by the machines of XA, 3PC and TCC; like them without clock and network. A decision is never turned
into the other one: a branch that fails is asked again until it is done, or until the policy says that an
operator must look.
"""

from collections import Counter
from collections.abc import Iterable

from turbopump.protocol.global_transactions import GlobalRecord
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Keep,
    MachineAction,
    Phase,
    RecordEvent,
    Wait,
    impossible,
)
from turbopump.transactions.distributed.retries import Retry


class SecondPhase:
    """Has every branch carry out one phase, all at once or in order.

    In order, the next branch is called when the one before has ended or has failed once: one that cannot be
    reached keeps nobody waiting.
    """

    def __init__(
        self,
        phase: Phase,
        branches: Iterable[tuple[str, str]],
        retry: Retry,
        *,
        ended_as: RecordEvent | None = None,
        is_recorded: bool = True,
        is_ordered: bool = False,
    ) -> None:
        """`branches`: names and the data of their calls. `ended_as`: the record of each branch that ends.

        Records of ends wait for the next thing that must be stored: one that is lost costs a call.
        """
        self.phase = phase
        self._todo = dict(branches)
        self._data = dict(self._todo)
        self._retry = retry
        self._ended_as = ended_as
        self._is_recorded = is_recorded
        self._is_ordered = is_ordered
        self._called: set[str] = set()
        self._pauses: dict[str, float] = {}
        self._failures: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._unkept: list[GlobalRecord] = []
        self.parked: dict[str, str] = {}
        """Branches that need an operator, with the reasons."""

    @property
    def is_over(self) -> bool:
        """Tells whether every branch has ended or is parked."""
        return not (self._todo or self._called or self._pauses)

    @property
    def failures(self) -> int:
        """The highest number of failures of a branch."""
        return max(self._failures.values(), default=0)

    @property
    def error(self) -> str:
        """Why branches have not ended, for operators."""
        return "; ".join(f"{branch}: {reason}" for branch, reason in self._reasons.items())

    def begin(self) -> list[MachineAction]:
        count = 1 if self._is_ordered else len(self._todo)
        return [self._call(branch) for branch in list(self._todo)[:count]]

    def answered(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not self.phase or event.branch not in self._called:
            impossible(f"second phase ({self.phase})", event)
        self._called.discard(event.branch)
        match event.verdict:
            case BranchVerdict.DONE | BranchVerdict.READ_ONLY:
                return self._end(event.branch) + self._next()
            case BranchVerdict.LATER:
                pause = self._retry.first if event.after_s is None else event.after_s
                return self._pause(event, pause) + self._next()
            case BranchVerdict.FAILED:
                return self._fail(event) + self._next()
            case BranchVerdict.REFUSED | BranchVerdict.PARK:
                return self._park(event) + self._next()

    def due(self, branch: str) -> list[MachineAction]:
        """Calls a branch again whose pause has ended."""
        if branch not in self._pauses:
            impossible(f"second phase ({self.phase})", f"the end of a pause of {branch}")
        del self._pauses[branch]
        return [self._call(branch)]

    def unkept(self) -> tuple[GlobalRecord, ...]:
        """Returns the records that were not stored yet, once."""
        records = tuple(self._unkept)
        self._unkept.clear()
        return records

    def _call(self, branch: str) -> CallBranch:
        self._todo.pop(branch, None)
        self._called.add(branch)
        return CallBranch(branch, self.phase, self._data[branch])

    def _next(self) -> list[MachineAction]:
        return [self._call(next(iter(self._todo)))] if self._todo and not self._called else []

    def _end(self, branch: str) -> list[MachineAction]:
        self._reasons.pop(branch, None)
        if self._ended_as is not None:
            self._unkept.append(GlobalRecord(self._ended_as, branch))
        return []

    def _fail(self, event: BranchAnswered) -> list[MachineAction]:
        self._failures[event.branch] += 1
        pause = self._retry.pause(self._failures[event.branch])
        return self._park(event) if pause is None else self._pause(event, pause)

    def _pause(self, event: BranchAnswered, pause: float) -> list[MachineAction]:
        self._reasons[event.branch] = event.reason
        self._pauses[event.branch] = pause
        wait = Wait(pause, event.branch)
        if not self._is_recorded:
            return [wait]
        is_idle = not (self._called or self._todo)
        pause_s = min(self._pauses.values()) if is_idle else 0.0
        return [Keep(self.unkept(), error=self.error, next_try_s=pause_s), wait]

    def _park(self, event: BranchAnswered) -> list[MachineAction]:
        self.parked[event.branch] = self._reasons[event.branch] = event.reason
        if not self._is_recorded:
            return []
        record = GlobalRecord(RecordEvent.PARKED, event.branch, event.reason)
        return [Keep((*self.unkept(), record), error=self.error)]
