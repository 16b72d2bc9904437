"""XA: two-phase commit with presumed abort, as a state machine of the client that opened it (TM).

    new ──PREPARE all──▶ preparing ──all Yes──▶ deciding ──Decided──▶ ending ──HaveCommitted──▶ finished
     │                      │    │                                      ▲       from all           ▲
     │                      │    └─last resource: its commit decides────┤                          │
     │                      └─a No, a fault, the deadline: ROLL_BACK────┘                          │
     └─one branch: COMMIT_ONE_PHASE, nobody decides but the branch─────────────────────────────────┘

A branch is prepared before the decision is asked for, and the decision is on the broker's disk before the
first branch commits. An abort by the TM itself is not written, unless the transaction was opened: what
nobody has decided is aborted by whoever finds its branches, by writing an abort. When the answer of the
journal is lost, nothing is rolled back: the transaction is in doubt, and recovery asks again.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar, Self

from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalState, GlobalTransaction
from turbopump.transactions.distributed.machine import (
    DEADLINE,
    BlockLeft,
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Decide,
    Decided,
    DecisionUnknown,
    Due,
    Finish,
    GlobalOutcome,
    Keep,
    MachineAction,
    MachineEvent,
    Phase,
    RecordEvent,
    Wait,
    impossible,
)
from turbopump.transactions.distributed.retries import FOR_EVER, Retry
from turbopump.transactions.distributed.second_phase import SecondPhase

MAX_UNRECORDED_TRIES = 3
"""Calls of a branch to roll back when nothing is written of the transaction: the sweep finds the rest."""


class XaState(Enum):
    """How far an XA transaction is, for its TM."""

    NEW = "new"
    PREPARING = "preparing"
    ONE_PHASE = "one phase"
    """The only branch commits: nobody else decides."""
    LAST = "last resource"
    """The last resource commits, and with that decides."""
    ASKING_LAST = "asking the last resource"
    """Recovery: the last resource says what was decided, or takes an abort."""
    DECIDING = "deciding"
    ENDING = "ending"
    FINISHED = "finished"


class XaMachine:
    """Two-phase commit of the branches of one transaction."""

    kind = GlobalKind.XA

    def __init__(
        self,
        branches: Sequence[str],
        *,
        last: str = "",
        is_open: bool = False,
        timeout_s: float = 0.0,
        retry: Retry = FOR_EVER,
    ) -> None:
        """`last`: the last resource, which cannot prepare. `is_open`: the journal knows the transaction."""
        self.branches = tuple(branches)
        self.last = last
        self.is_recorded = is_open
        self.timeout_s = timeout_s
        self.retry = retry
        self.state = XaState.NEW
        self.decision = GlobalDecision.NONE
        self.reason = ""
        """Why it is aborted."""
        self._resumed: GlobalTransaction | None = None
        self._voting: set[str] = set()
        self._prepared: list[str] = []
        self._read_only: list[str] = []
        self._second: SecondPhase | None = None
        self._left_over: SecondPhase | None = None

    @classmethod
    def resumed(
        cls, known: GlobalTransaction, resources: Sequence[str], *, last: str = "", retry: Retry = FOR_EVER
    ) -> Self:
        """Returns the machine of a transaction that was claimed: it is decided, or will be aborted.

        `resources`: all that the group has, for an abort of which nobody knows the branches.
        """
        machine = cls(known.branches or resources, last=last, is_open=True, retry=retry)
        machine._resumed = known
        return machine

    # face of the driver

    def begin(self) -> list[MachineAction]:
        if self.state is not XaState.NEW:
            impossible(self.state, "begin")
        if self._resumed is not None:
            return self._resume(self._resumed)
        return []

    def step(self, event: MachineEvent) -> list[MachineAction]:
        handle = self._STEPS.get((self.state, type(event)))
        if handle is None:
            impossible(self.state, event)
        return handle(self, event)

    # the block has ended

    def _left(self, event: BlockLeft) -> list[MachineAction]:
        if not event.commit:
            return self._abort(event.reason)
        count = len(self.branches) + bool(self.last)
        if count == 0:
            return self._decide(GlobalDecision.COMMIT) if self.is_recorded else self._finish_committed()
        if count == 1 and not self.is_recorded:
            self.state = XaState.ONE_PHASE
            return [CallBranch(self.last or self.branches[0], Phase.COMMIT_ONE_PHASE)]
        if not self.branches:
            return self._commit_last()
        self.state = XaState.PREPARING
        self._voting = set(self.branches)
        calls: list[MachineAction] = [CallBranch(branch, Phase.PREPARE) for branch in self.branches]
        return [Wait(self.timeout_s, DEADLINE), *calls] if self.timeout_s else calls

    # votes

    def _voted(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not Phase.PREPARE or event.branch not in self._voting:
            impossible(self.state, event)
        self._voting.discard(event.branch)
        match event.verdict:
            case BranchVerdict.DONE:
                self._prepared.append(event.branch)
            case BranchVerdict.READ_ONLY:
                self._read_only.append(event.branch)
            case _:
                self.reason = self.reason or event.reason or f"{event.branch} votes No"
        # All votes are waited for: a branch has one call at a time.
        if self._voting:
            return []
        return self._abort(self.reason) if self.reason else self._all_voted()

    def _given_up(self, event: BlockLeft) -> list[MachineAction]:
        """The caller was cancelled while branches vote: aborts when they have."""
        if event.commit:
            impossible(self.state, event)
        self.reason = self.reason or event.reason or "the caller was cancelled"
        return []

    def _timed_out(self, event: Due) -> list[MachineAction]:
        if event.of != DEADLINE:
            impossible(self.state, event)
        self.reason = self.reason or f"not all branches have voted in {self.timeout_s:g} s"
        return []

    def _all_voted(self) -> list[MachineAction]:
        if self.last:
            return self._commit_last()
        if self._prepared or self.is_recorded:
            return self._decide(GlobalDecision.COMMIT)
        self.decision = GlobalDecision.COMMIT
        return self._end()

    # deciding

    def _decide(self, decision: GlobalDecision) -> list[MachineAction]:
        self.state = XaState.DECIDING
        branches = self._prepared if decision is GlobalDecision.COMMIT else self.branches
        return [Decide(decision, tuple(branches))]

    def _decided(self, event: Decided) -> list[MachineAction]:
        asked_last = self.decision  # what the last resource has committed or refused
        if asked_last is not GlobalDecision.NONE and asked_last is not event.decision:
            self.state = XaState.FINISHED
            reason = f"the last resource {self.last} has decided {asked_last}, the broker {event.decision}"
            return [Keep(state=GlobalState.PARKED, error=reason), Finish(GlobalOutcome.PARKED, reason)]
        self.decision = event.decision
        if event.decision is GlobalDecision.COMMIT:
            self.is_recorded = True
        elif not self.reason:
            self.reason = f"decided by {event.by}" if event.by else "decided by another client"
        return self._end()

    def _in_doubt(self, event: DecisionUnknown) -> list[MachineAction]:
        if self.decision is not GlobalDecision.NONE:  # by the last resource: it stands
            return self._end()
        self.state = XaState.FINISHED
        return [Finish(GlobalOutcome.IN_DOUBT, event.reason)]

    def _abort(self, reason: str) -> list[MachineAction]:
        """Aborts: written only if the journal knows the transaction."""
        self.reason = reason or "the block has failed"
        if self.is_recorded:
            return self._decide(GlobalDecision.ABORT)
        self.decision = GlobalDecision.ABORT
        return self._end()

    # one branch, and the last resource

    def _one_phase_answered(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not Phase.COMMIT_ONE_PHASE:
            impossible(self.state, event)
        self.state = XaState.FINISHED
        match event.verdict:
            case BranchVerdict.DONE | BranchVerdict.READ_ONLY:
                return self._finish_committed()
            case BranchVerdict.REFUSED:
                return [Finish(GlobalOutcome.ABORTED, event.reason)]
            case _:
                return [Finish(GlobalOutcome.IN_DOUBT, event.reason)]

    def _commit_last(self) -> list[MachineAction]:
        self.state = XaState.LAST
        return [CallBranch(self.last, Phase.COMMIT_ONE_PHASE)]

    def _last_answered(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not Phase.COMMIT_ONE_PHASE or event.branch != self.last:
            impossible(self.state, event)
        match event.verdict:
            case BranchVerdict.DONE | BranchVerdict.READ_ONLY:
                return self._last_decided(GlobalDecision.COMMIT)
            case BranchVerdict.REFUSED:
                self.reason = event.reason or f"{self.last} refuses to commit"
                return self._last_decided(GlobalDecision.ABORT)
            case _:
                return self._in_doubt(DecisionUnknown(event.reason))

    def _ask_last(self) -> list[MachineAction]:
        self.state = XaState.ASKING_LAST
        return [CallBranch(self.last, Phase.ROLL_BACK)]

    def _last_told(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not Phase.ROLL_BACK or event.branch != self.last:
            impossible(self.state, event)
        match event.verdict:
            case BranchVerdict.DONE | BranchVerdict.READ_ONLY:
                self.reason = self.reason or f"{self.last} has not committed"
                return self._last_decided(GlobalDecision.ABORT)
            case BranchVerdict.REFUSED:
                return self._last_decided(GlobalDecision.COMMIT)
            case _:
                return self._in_doubt(DecisionUnknown(event.reason))

    def _last_decided(self, decision: GlobalDecision) -> list[MachineAction]:
        """Follows the last resource; the journal is told only if it knows the transaction."""
        self.decision = decision
        if not self.is_recorded:
            return self._end()
        self.state = XaState.DECIDING
        return [Decide(decision, self._committing() if decision is GlobalDecision.COMMIT else self.branches)]

    def _committing(self) -> tuple[str, ...]:
        return self.branches if self._resumed is not None else tuple(self._prepared)

    # phase 2

    def _end(self) -> list[MachineAction]:
        """Calls all branches to carry out the decision; those that were only read are rolled back."""
        self.state = XaState.ENDING
        commits = self.decision is GlobalDecision.COMMIT
        if commits:
            phase, branches = Phase.COMMIT, self._committing()
            rolled_back: Sequence[str] = self._read_only
        else:
            phase, branches = Phase.ROLL_BACK, self.branches
            rolled_back = ()
            if self.last and self._resumed is None:
                branches = (*branches, self.last)
        retry = self.retry if commits or self.is_recorded else _few(self.retry)
        self._second = SecondPhase(phase, _plain(branches), retry, is_recorded=self.is_recorded)
        self._left_over = SecondPhase(
            Phase.ROLL_BACK, _plain(rolled_back), _few(self.retry), is_recorded=False
        )
        return self._unless_over(self._second.begin() + self._left_over.begin())

    def _part(self, branch: str) -> SecondPhase:
        assert self._second is not None
        assert self._left_over is not None
        return self._left_over if branch in self._read_only and self.commits else self._second

    @property
    def commits(self) -> bool:
        """Tells whether the decision is known, and is to commit."""
        return self.decision is GlobalDecision.COMMIT

    def _branch_ended(self, event: BranchAnswered) -> list[MachineAction]:
        return self._unless_over(self._part(event.branch).answered(event))

    def _pause_ended(self, event: Due) -> list[MachineAction]:
        return [] if event.of == DEADLINE else self._part(event.of).due(event.of)

    def _unless_over(self, actions: list[MachineAction]) -> list[MachineAction]:
        assert self._second is not None
        assert self._left_over is not None
        if not (self._second.is_over and self._left_over.is_over):
            return actions
        self.state = XaState.FINISHED
        outcome = GlobalOutcome.COMMITTED if self.commits else GlobalOutcome.ABORTED
        error = self._second.error
        if self._second.parked and (self.is_recorded or self.commits):
            if self.is_recorded:
                actions.append(Keep(state=GlobalState.PARKED, error=error))
            return [*actions, Finish(GlobalOutcome.PARKED, error)]
        if self.is_recorded:
            actions.append(Keep(state=GlobalState.ENDED, outcome=outcome))
        words = "" if self.commits else "; ".join(filter(None, (self.reason, error)))
        return [*actions, Finish(outcome, words)]

    def _finish_committed(self) -> list[MachineAction]:
        self.state = XaState.FINISHED
        return [Finish(GlobalOutcome.COMMITTED)]

    # recovery

    def _resume(self, known: GlobalTransaction) -> list[MachineAction]:
        """Carries out what is decided; aborts what is not, by asking for it."""
        done = {one.branch for one in known.records if one.event == RecordEvent.RESOLVED_DONE}
        self.branches = tuple(branch for branch in self.branches if branch not in done)
        if self.last and self.last not in done and known.decision is not GlobalDecision.COMMIT:
            return self._ask_last()
        if known.decision is not GlobalDecision.NONE:
            self.decision = known.decision
            self.reason = "" if self.commits else f"decided by {known.decided_by}"
            return self._end()
        self.reason = "its owner did not decide"
        return self._decide(GlobalDecision.ABORT)

    def _nothing(self, event: Due) -> list[MachineAction]:
        if event.of != DEADLINE:
            impossible(self.state, event)
        return []

    _STEPS: ClassVar[dict[tuple[XaState, type], Callable[..., list[MachineAction]]]] = {
        (XaState.NEW, BlockLeft): _left,
        (XaState.PREPARING, BranchAnswered): _voted,
        (XaState.PREPARING, Due): _timed_out,
        (XaState.PREPARING, BlockLeft): _given_up,
        (XaState.ONE_PHASE, BranchAnswered): _one_phase_answered,
        (XaState.LAST, BranchAnswered): _last_answered,
        (XaState.LAST, Due): _nothing,
        (XaState.ASKING_LAST, BranchAnswered): _last_told,
        (XaState.DECIDING, Decided): _decided,
        (XaState.DECIDING, DecisionUnknown): _in_doubt,
        (XaState.ENDING, BranchAnswered): _branch_ended,
        (XaState.ENDING, Due): _pause_ended,
    }


def _plain(branches: Sequence[str]) -> list[tuple[str, str]]:
    return [(branch, "") for branch in branches]


def _few(retry: Retry) -> Retry:
    return Retry(MAX_UNRECORDED_TRIES, retry.first, retry.factor, retry.longest)
