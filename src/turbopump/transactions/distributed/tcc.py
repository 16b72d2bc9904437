"""TCC: Try, then Confirm or Cancel, as a state machine of the client that opened the transaction (TM).

    trying ──block left well, every Try done──▶ deciding ──commit──▶ confirming ──all──▶ finished
      │  ▲ registered, then its Try is called     ▲  └──abort──▶ cancelling (in reverse order) ──all──┘
      │                                           │
      └─ a Try refused or unknown, the block failed, the deadline ┘

A branch is registered in the journal before its Try is called: otherwise nobody would cancel it. The
decision is stored before the first Confirm or Cancel. Ends of branches are stored together, at the latest
with the end: one that is lost is asked for again. Confirm and Cancel may not be refused: they are tried
again, and parked when the policy gives up. A Cancel goes to every registered branch, also to one whose
Try was refused or may never have come: the participant's fence makes it empty, and bars a Try that comes
later.
"""

from collections.abc import Callable
from enum import Enum
from typing import ClassVar, Self

from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalRecord,
    GlobalState,
    GlobalTransaction,
)
from turbopump.transactions.distributed.machine import (
    DEADLINE,
    BlockLeft,
    BranchAnswered,
    BranchRegistered,
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
from turbopump.transactions.distributed.retries import CONFIRM, Retry
from turbopump.transactions.distributed.second_phase import SecondPhase


class TccState(Enum):
    """How far a TCC transaction is, for its TM."""

    NEW = "new"
    TRYING = "trying"
    DECIDING = "deciding"
    CONFIRMING = "confirming"
    CANCELLING = "cancelling"
    FINISHED = "finished"


class TccMachine:
    """Try, Confirm and Cancel of the branches of one transaction, which is open in the journal."""

    kind = GlobalKind.TCC

    def __init__(self, *, timeout_s: float = 0.0, retry: Retry = CONFIRM) -> None:
        """`retry`: of Confirm and Cancel. A Try is called again only if it answers LATER."""
        self.timeout_s = timeout_s
        self.retry = retry
        self.state = TccState.NEW
        self.branches: dict[str, str] = {}
        """Registered branches in order, with the data of their Try."""
        self.reason = ""
        """Why it is aborted."""
        self._resumed: GlobalTransaction | None = None
        self._ended: set[str] = set()
        self._trying: set[str] = set()
        self._paused: set[str] = set()
        self._is_left = False
        self._is_late = False
        """It was aborted while the user's block still ran."""
        self._second: SecondPhase | None = None

    @classmethod
    def resumed(cls, known: GlobalTransaction, *, retry: Retry = CONFIRM) -> Self:
        """Returns the machine of a transaction that was claimed: it is decided, or will be aborted."""
        machine = cls(retry=retry)
        machine._resumed = known
        for one in known.records:
            if one.event == RecordEvent.REGISTERED:
                machine.branches[one.branch] = one.data
            elif one.event in _ENDS:
                machine._ended.add(one.branch)
        return machine

    @property
    def takes_branches(self) -> bool:
        """Tells whether another branch can still be registered."""
        return self.state is TccState.TRYING and not self._is_left and not self.reason

    # face of the driver

    def begin(self) -> list[MachineAction]:
        if self.state is not TccState.NEW:
            impossible(self.state, "begin")
        if self._resumed is None:
            self.state = TccState.TRYING
            return [Wait(self.timeout_s, DEADLINE)] if self.timeout_s else []
        decision = self._resumed.decision
        if decision is GlobalDecision.NONE:
            self.reason = "its owner did not decide"
            return self._decide()
        self.reason = "" if decision is GlobalDecision.COMMIT else f"decided by {self._resumed.decided_by}"
        return self._end(decision)

    def step(self, event: MachineEvent) -> list[MachineAction]:
        handle = self._STEPS.get((self.state, type(event)))
        if handle is None:
            impossible(self.state, event)
        return handle(self, event)

    # Try

    def _register(self, event: BranchRegistered) -> list[MachineAction]:
        if self._is_left or event.branch in self.branches:
            impossible(self.state, event)
        if self.reason:
            return []  # it is being aborted: nothing is called, so nothing need be cancelled
        self.branches[event.branch] = event.data
        self._trying.add(event.branch)
        record = GlobalRecord(RecordEvent.REGISTERED, event.branch, event.data)
        return [Keep((record,)), CallBranch(event.branch, Phase.TRY, event.data)]

    def _tried(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not Phase.TRY or event.branch not in self._trying:
            impossible(self.state, event)
        self._trying.discard(event.branch)
        if event.verdict is BranchVerdict.LATER and not self.reason:
            self._paused.add(event.branch)
            pause = self.retry.first if event.after_s is None else event.after_s
            return [Wait(pause, _TRY + event.branch)]
        if event.verdict not in (BranchVerdict.DONE, BranchVerdict.READ_ONLY):
            self._fail(event.reason or f"the Try of {event.branch} was {event.verdict.value}")
        return self._when_tried()

    def _try_again(self, event: Due) -> list[MachineAction]:
        if event.of == DEADLINE:
            self._is_late = not self._is_left
            self._fail(f"not decided in {self.timeout_s:g} s")
            return self._when_tried()
        branch = event.of.removeprefix(_TRY)
        if branch in self._paused:
            self._paused.discard(branch)
            self._trying.add(branch)
            return [CallBranch(branch, Phase.TRY, self.branches[branch])]
        if not self.reason:  # otherwise the pause was given up
            impossible(self.state, event)
        return []

    def _left(self, event: BlockLeft) -> list[MachineAction]:
        if self._is_left:
            impossible(self.state, event)
        self._is_left = True
        if not event.commit:
            self._fail(event.reason or "the block has failed")
        return self._when_tried()

    def _fail(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._paused.clear()

    def _when_tried(self) -> list[MachineAction]:
        """Decides when no Try runs, and nothing more can come."""
        is_closed = self._is_left or self._is_late
        return self._decide() if is_closed and not self._trying and not self._paused else []

    # deciding

    def _decide(self) -> list[MachineAction]:
        self.state = TccState.DECIDING
        return [Decide(GlobalDecision.ABORT if self.reason else GlobalDecision.COMMIT, tuple(self.branches))]

    def _decided(self, event: Decided) -> list[MachineAction]:
        if event.decision is GlobalDecision.ABORT and not self.reason:
            self.reason = f"decided by {event.by}" if event.by else "decided by another client"
        return self._end(event.decision)

    def _in_doubt(self, event: DecisionUnknown) -> list[MachineAction]:
        self.state = TccState.FINISHED
        return [Finish(GlobalOutcome.IN_DOUBT, event.reason)]

    # Confirm or Cancel

    def _end(self, decision: GlobalDecision) -> list[MachineAction]:
        branches = [(name, data) for name, data in self.branches.items() if name not in self._ended]
        if decision is GlobalDecision.COMMIT:
            self.state = TccState.CONFIRMING
            self._second = SecondPhase(Phase.CONFIRM, branches, self.retry, ended_as=RecordEvent.CONFIRMED)
        else:
            self.state = TccState.CANCELLING
            self._second = SecondPhase(
                Phase.CANCEL,
                reversed(branches),
                self.retry,
                ended_as=RecordEvent.CANCELLED,
                is_ordered=True,
            )
        return self._unless_over(self._second, self._second.begin())

    def _branch_ended(self, event: BranchAnswered) -> list[MachineAction]:
        assert self._second is not None
        return self._unless_over(self._second, self._second.answered(event))

    def _pause_ended(self, event: Due) -> list[MachineAction]:
        assert self._second is not None
        if event.of == DEADLINE or event.of.startswith(_TRY):
            return []
        return self._second.due(event.of)

    def _unless_over(self, second: SecondPhase, actions: list[MachineAction]) -> list[MachineAction]:
        if not second.is_over:
            return actions
        is_commit = self.state is TccState.CONFIRMING
        self.state = TccState.FINISHED
        if second.parked:
            keep = Keep(second.unkept(), GlobalState.PARKED, error=second.error)
            return [*actions, keep, Finish(GlobalOutcome.PARKED, second.error)]
        outcome = GlobalOutcome.COMMITTED if is_commit else GlobalOutcome.ABORTED
        return [*actions, Keep(second.unkept(), GlobalState.ENDED, outcome), Finish(outcome, self.reason)]

    def _too_late(self, event: BlockLeft | BranchRegistered) -> list[MachineAction]:
        """The block goes on after the deadline: what it does is not done any more."""
        if not self._is_late or self._is_left:
            impossible(self.state, event)
        self._is_left = isinstance(event, BlockLeft)
        return []

    _STEPS: ClassVar[dict[tuple[TccState, type], Callable[..., list[MachineAction]]]] = {
        (TccState.TRYING, BranchRegistered): _register,
        (TccState.TRYING, BranchAnswered): _tried,
        (TccState.TRYING, Due): _try_again,
        (TccState.TRYING, BlockLeft): _left,
        (TccState.DECIDING, BranchRegistered): _too_late,
        (TccState.DECIDING, BlockLeft): _too_late,
        (TccState.DECIDING, Decided): _decided,
        (TccState.DECIDING, DecisionUnknown): _in_doubt,
        (TccState.CONFIRMING, BranchAnswered): _branch_ended,
        (TccState.CONFIRMING, Due): _pause_ended,
        (TccState.CONFIRMING, BranchRegistered): _too_late,
        (TccState.CONFIRMING, BlockLeft): _too_late,
        (TccState.FINISHED, BranchRegistered): _too_late,
        (TccState.FINISHED, BlockLeft): _too_late,
        (TccState.CANCELLING, BranchAnswered): _branch_ended,
        (TccState.CANCELLING, Due): _pause_ended,
        (TccState.CANCELLING, BranchRegistered): _too_late,
        (TccState.CANCELLING, BlockLeft): _too_late,
    }


_TRY = "try "
"""What a Try that was answered LATER waits for begins with this; names of branches have no space."""
_ENDS = (RecordEvent.CONFIRMED, RecordEvent.CANCELLED, RecordEvent.RESOLVED_DONE)
