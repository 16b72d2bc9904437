"""3PC: three-phase commit, as a state machine of its coordinator. For learning, and for networks you trust.

    new ──CanCommit──▶ waiting ──all Yes──▶ pre-commit ──all Acks, or a timeout──▶ deciding ──▶ ending
                          └─ a No, a fault, the timeout ─────────────────────────▶ deciding (abort)

A participant (`three_phase_agent.py`) that hears nothing decides with its peers, or alone: so nobody is
blocked when the coordinator dies. The price is paid when the network is cut, or a process stops for
longer than the timeouts: then two sides may decide differently. That is found when they meet again,
counted as a SPLIT, and parked.
"""

from collections.abc import Callable, Sequence
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

ACKS = "acks"
"""What the coordinator waits `of` after its PreCommit."""


class ThreePhaseState(Enum):
    """How far a transaction by 3PC is, for its coordinator."""

    NEW = "new"
    WAITING = "waiting"
    """For the votes."""
    PRE_COMMIT = "pre-commit"
    DECIDING = "deciding"
    ENDING = "ending"
    FINISHED = "finished"


class ThreePhaseMachine:
    """The coordinator of three-phase commit; the transaction is open in the journal."""

    kind = GlobalKind.THREE_PHASE

    def __init__(self, branches: Sequence[str], *, timeout_s: float, retry: Retry = FOR_EVER) -> None:
        self.branches = tuple(branches)
        self.timeout_s = timeout_s
        self.retry = retry
        self.state = ThreePhaseState.NEW
        self.decision = GlobalDecision.NONE
        self.reason = ""
        self.splits: dict[str, str] = {}
        """Participants that had decided otherwise by themselves, with what they say."""
        self._resumed: GlobalTransaction | None = None
        self._voting: set[str] = set()
        self._acking: set[str] = set()
        self._has_precommitted = False
        self._second: SecondPhase | None = None

    @classmethod
    def resumed(cls, known: GlobalTransaction, branches: Sequence[str], *, timeout_s: float) -> Self:
        """Returns the machine of a transaction that was claimed; undecided, it asks participants first."""
        done = {one.branch for one in known.records if one.event == RecordEvent.RESOLVED_DONE}
        names = known.branches or branches
        machine = cls([branch for branch in names if branch not in done], timeout_s=timeout_s)
        machine._resumed = known
        machine._has_precommitted = any(one.event == RecordEvent.PRE_COMMIT for one in known.records)
        return machine

    # face of the driver

    def begin(self) -> list[MachineAction]:
        if self.state is not ThreePhaseState.NEW:
            impossible(self.state, "begin")
        if self._resumed is None:
            return []
        if self._resumed.decision is not GlobalDecision.NONE:
            return self._decided(Decided(self._resumed.decision, self._resumed.decided_by))
        return self._ask_for_votes()

    def step(self, event: MachineEvent) -> list[MachineAction]:
        handle = self._STEPS.get((self.state, type(event)))
        if handle is None:
            impossible(self.state, event)
        return handle(self, event)

    # votes

    def _left(self, event: BlockLeft) -> list[MachineAction]:
        return self._ask_for_votes() if event.commit else self._abort(event.reason or "the block has failed")

    def _ask_for_votes(self) -> list[MachineAction]:
        self.state = ThreePhaseState.WAITING
        self._voting = set(self.branches)
        calls = [CallBranch(branch, Phase.CAN_COMMIT) for branch in self.branches]
        return [Wait(self.timeout_s, DEADLINE), *calls] if calls else self._all_yes()

    def _voted(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not Phase.CAN_COMMIT or event.branch not in self._voting:
            impossible(self.state, event)
        self._voting.discard(event.branch)
        if event.verdict not in (BranchVerdict.DONE, BranchVerdict.READ_ONLY):
            if self._has_precommitted and event.verdict is not BranchVerdict.REFUSED:
                return [] if self._voting else self._all_yes()  # it is away: all had voted Yes before
            return self._abort(event.reason or f"{event.branch} votes No")
        if event.data in _BEYOND_READY:  # after a recovery: it has a PreCommit
            self._has_precommitted = True
        return [] if self._voting else self._all_yes()

    def _too_few_votes(self, event: Due) -> list[MachineAction]:
        if event.of != DEADLINE:
            impossible(self.state, event)
        if self._has_precommitted:
            return self._all_yes()
        return self._abort(f"not all participants have voted in {self.timeout_s:g} s")

    def _all_yes(self) -> list[MachineAction]:
        self.state = ThreePhaseState.PRE_COMMIT
        self._acking = set(self.branches)
        calls: list[MachineAction] = [CallBranch(branch, Phase.PRE_COMMIT) for branch in self.branches]
        if not calls:
            return self._decide(GlobalDecision.COMMIT)
        return [Keep((GlobalRecord(RecordEvent.PRE_COMMIT),)), Wait(self.timeout_s, ACKS), *calls]

    # PreCommit

    def _acked(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is Phase.CAN_COMMIT:
            return []  # of a resumed coordinator that did not wait for it
        if event.phase is not Phase.PRE_COMMIT or event.branch not in self._acking:
            impossible(self.state, event)
        self._acking.discard(event.branch)
        if event.verdict is BranchVerdict.REFUSED:
            return self._abort(event.reason or f"{event.branch} has aborted")
        return [] if self._acking else self._decide(GlobalDecision.COMMIT)

    def _acks_over(self, event: Due) -> list[MachineAction]:
        """Goes on without the missing Acks: all have voted Yes, and those with a PreCommit may commit."""
        if event.of == DEADLINE:
            return []
        if event.of != ACKS:
            impossible(self.state, event)
        return self._decide(GlobalDecision.COMMIT)

    # deciding

    def _abort(self, reason: str) -> list[MachineAction]:
        self.reason = reason
        return self._decide(GlobalDecision.ABORT)

    def _decide(self, decision: GlobalDecision) -> list[MachineAction]:
        self.state = ThreePhaseState.DECIDING
        return [Decide(decision, self.branches)]

    def _decided(self, event: Decided) -> list[MachineAction]:
        self.decision = event.decision
        commits = event.decision is GlobalDecision.COMMIT
        self.reason = "" if commits else self.reason or f"decided by {event.by}"
        self.state = ThreePhaseState.ENDING
        self._second = SecondPhase(
            Phase.DO_COMMIT if commits else Phase.DO_ABORT,
            [(branch, "") for branch in self.branches],
            self.retry,
            ended_as=RecordEvent.COMMITTED if commits else RecordEvent.ABORTED,
        )
        return self._unless_over(self._second, self._second.begin())

    def _in_doubt(self, event: DecisionUnknown) -> list[MachineAction]:
        self.state = ThreePhaseState.FINISHED
        return [Finish(GlobalOutcome.IN_DOUBT, event.reason)]

    # DoCommit or DoAbort

    def _branch_ended(self, event: BranchAnswered) -> list[MachineAction]:
        assert self._second is not None
        if event.phase in (Phase.CAN_COMMIT, Phase.PRE_COMMIT):
            return []  # too late: it was not waited for
        actions: list[MachineAction] = []
        if event.verdict is BranchVerdict.REFUSED:
            self.splits[event.branch] = event.reason
            actions.append(Keep((GlobalRecord(RecordEvent.SPLIT, event.branch, event.reason),)))
        return self._unless_over(self._second, [*actions, *self._second.answered(event)])

    def _pause_ended(self, event: Due) -> list[MachineAction]:
        assert self._second is not None
        return [] if event.of in (DEADLINE, ACKS) else self._second.due(event.of)

    def _unless_over(self, second: SecondPhase, actions: list[MachineAction]) -> list[MachineAction]:
        if not second.is_over:
            return actions
        self.state = ThreePhaseState.FINISHED
        if second.parked:
            error = f"SPLIT: {second.error}" if self.splits else second.error
            keep = Keep(second.unkept(), GlobalState.PARKED, error=error)
            return [*actions, keep, Finish(GlobalOutcome.PARKED, error)]
        commits = self.decision is GlobalDecision.COMMIT
        outcome = GlobalOutcome.COMMITTED if commits else GlobalOutcome.ABORTED
        return [*actions, Keep(second.unkept(), GlobalState.ENDED, outcome), Finish(outcome, self.reason)]

    _STEPS: ClassVar[dict[tuple[ThreePhaseState, type], Callable[..., list[MachineAction]]]] = {
        (ThreePhaseState.NEW, BlockLeft): _left,
        (ThreePhaseState.WAITING, BranchAnswered): _voted,
        (ThreePhaseState.WAITING, Due): _too_few_votes,
        (ThreePhaseState.PRE_COMMIT, BranchAnswered): _acked,
        (ThreePhaseState.PRE_COMMIT, Due): _acks_over,
        (ThreePhaseState.DECIDING, Decided): _decided,
        (ThreePhaseState.DECIDING, DecisionUnknown): _in_doubt,
        (ThreePhaseState.ENDING, BranchAnswered): _branch_ended,
        (ThreePhaseState.ENDING, Due): _pause_ended,
    }


_BEYOND_READY = ("precommitted", "committed")
