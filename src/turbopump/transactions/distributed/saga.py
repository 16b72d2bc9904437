"""SAGA: declared steps, each with its compensation, as a state machine of the client that works on it (TM).

    running ──all steps done──▶ deciding ──commit──▶ finished
       │                          ▲   │ abort
       ├─ the pivot is done ──────┘   ▼
       └─ a step is refused ──▶ compensating, in reverse of the graph ──▶ finished

A step begins when all that it comes after are done; its result is stored before what comes after it
begins. The turn is a decision: stored before the first compensation, or, behind the pivot, the one after
which nothing is compensated. A step is called at least once, and so is its compensation: whoever goes on
with a saga calls what has no record. A compensation goes to every step that may have begun, also to one
that was refused: the participant's fence makes it empty, and bars a call that comes later.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Self

from turbopump.client.errors import InvalidArgument
from turbopump.protocol.global_transactions import (
    MAX_BRANCHES,
    GlobalDecision,
    GlobalKind,
    GlobalRecord,
    GlobalState,
    GlobalTransaction,
)
from turbopump.transactions.distributed.machine import (
    DEADLINE,
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
from turbopump.transactions.distributed.retries import CONFIRM, STEP, Retry

MAX_STEPS = MAX_BRANCHES
"""Of one saga: as many branches as a decision can name."""


@dataclass(frozen=True, slots=True)
class SagaStep:
    """One declared step, without its functions."""

    name: str
    after: tuple[str, ...] = ()
    """The steps that must be done before."""
    has_undo: bool = True
    is_pivot: bool = False
    """When it is done, the saga can only go forward."""
    retry: Retry = STEP
    undo_retry: Retry = CONFIRM


@dataclass(frozen=True, slots=True)
class SagaGraph:
    """The steps of a saga in the order of their declaration, each after steps that were declared before."""

    steps: tuple[SagaStep, ...]
    by_name: dict[str, SagaStep] = field(init=False, repr=False, compare=False)
    _before: dict[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.steps) <= MAX_STEPS:
            raise InvalidArgument(f"a saga must have 1 to {MAX_STEPS} steps, got {len(self.steps)}")
        before: dict[str, frozenset[str]] = {}
        for step in self.steps:
            if step.name in before:
                raise InvalidArgument(f"step {step.name} is declared twice: each needs a name of its own")
            if unknown := [name for name in step.after if name not in before]:
                raise InvalidArgument(
                    f"step {step.name} must come after steps that are declared before it, "
                    f"got {', '.join(unknown)}"
                )
            before[step.name] = frozenset(step.after).union(*(before[name] for name in step.after))
        object.__setattr__(self, "by_name", {step.name: step for step in self.steps})
        self._add_pivot(before)
        object.__setattr__(self, "_before", before)

    def _add_pivot(self, before: dict[str, frozenset[str]]) -> None:
        """Has the pivot wait for every step that does not come after it; checks those that do."""
        pivots = [step.name for step in self.steps if step.is_pivot]
        if len(pivots) > 1:
            raise InvalidArgument(f"a saga must have at most one pivot, got {', '.join(pivots)}")
        if not pivots:
            return
        behind = [name for name in before if pivots[0] in before[name]]
        if wrong := [name for name in behind if self.by_name[name].has_undo]:
            raise InvalidArgument(
                f"step {wrong[0]} comes after the pivot {pivots[0]}, where nothing is compensated: "
                "declare it without undo"
            )
        first = frozenset(before) - set(behind) - {pivots[0]}
        for name in (pivots[0], *behind):
            before[name] |= first

    @property
    def pivot(self) -> str:
        """The name of the pivot, or an empty string."""
        return next((step.name for step in self.steps if step.is_pivot), "")

    def before(self, name: str) -> frozenset[str]:
        """Returns all steps that must be done before this one."""
        return self._before[name]

    def is_behind_pivot(self, name: str) -> bool:
        return bool(self.pivot) and self.pivot in self._before[name]

    def ready(self, done: set[str]) -> list[str]:
        """Returns the steps that can begin when these are done."""
        return [step.name for step in self.steps if step.name not in done and self._before[step.name] <= done]


class SagaState(Enum):
    """How far a saga is, for its TM."""

    NEW = "new"
    RUNNING = "running"
    DECIDING = "deciding"
    COMPENSATING = "compensating"
    FINISHED = "finished"


class SagaMachine:
    """The steps of one saga, which is open in the journal: forward, or back."""

    kind = GlobalKind.SAGA

    def __init__(
        self, graph: SagaGraph, *, known: GlobalTransaction | None = None, timeout_s: float = 0.0
    ) -> None:
        """`known`: what the journal has of it, if it goes on. `timeout_s`: until the pivot, 0: no limit."""
        self.graph = graph
        self.timeout_s = timeout_s
        self.state = SagaState.NEW
        self.decision = GlobalDecision.NONE
        self.reason = ""
        """Why it is compensated."""
        self.results: dict[str, str] = {}
        """What the steps that are done have returned."""
        self.parked: dict[str, str] = {}
        """Steps that need an operator, with the reasons."""
        self._resumed = known
        self._begun: set[str] = set()
        """Steps that were called, or may have been by a former owner."""
        self._refused: set[str] = set()
        """Steps of which it is certain that they were not done."""
        self._undone: set[str] = set()
        self._running: set[str] = set()
        self._paused: set[str] = set()
        self._given_up: set[str] = set()
        """Steps whose pauses have no meaning any more, although their timers still run."""
        self._unkept: tuple[GlobalRecord, ...] = ()
        """The result of the last step, which is stored with the end: until then it can be asked for again."""
        self._failures: Counter[str] = Counter()
        self._errors: dict[str, str] = {}
        if known is not None:
            self._read(known)

    @classmethod
    def resumed(cls, known: GlobalTransaction, graph: SagaGraph) -> Self:
        """Returns the machine of a saga that was claimed: it goes on after the last record."""
        return cls(graph, known=known)

    def _read(self, known: GlobalTransaction) -> None:
        self.decision = known.decision
        for one in known.records:
            match one.event:
                case RecordEvent.DONE:
                    self.results[one.branch] = one.data
                case RecordEvent.REFUSED | RecordEvent.FAILED:
                    self.reason = self.reason or one.data
                    self._begun.add(one.branch)
                    if one.event == RecordEvent.REFUSED:
                        self._refused.add(one.branch)
                case RecordEvent.BEGUN:
                    self._begun.add(one.branch)
                case RecordEvent.UNDONE:
                    self._undone.add(one.branch)
                case RecordEvent.RESOLVED_DONE:
                    self._resolve(one.branch)
        # A former owner may have called those that could begin, and nothing is known of what came of it.
        ready = self.graph.ready(set(self.results))
        self._begun |= {name for name in ready if not self.graph.by_name[name].is_pivot} | set(self.results)

    def _resolve(self, name: str) -> None:
        """Takes an operator's word that what a step needed was done by hand."""
        if self.decision is GlobalDecision.ABORT:
            self._undone.add(name)
        else:
            self.results.setdefault(name, "")

    # face of the driver

    def begin(self) -> list[MachineAction]:
        if self.state is not SagaState.NEW:
            impossible(self.state, "begin")
        if self.decision is GlobalDecision.ABORT:
            return self._compensate("decided by the broker or an operator")
        self.state = SagaState.RUNNING
        timer: list[MachineAction] = [Wait(self.timeout_s, DEADLINE)] if self.timeout_s else []
        return timer + self._go_on()

    def step(self, event: MachineEvent) -> list[MachineAction]:
        handle = self._STEPS.get((self.state, type(event)))
        if handle is None:
            impossible(self.state, event)
        return handle(self, event)

    # forward

    def _go_on(self) -> list[MachineAction]:
        """Calls the steps that can begin; decides when there is nothing left, or the turn has come."""
        if self.reason and self._may_turn:
            return [] if self._running else self._decide(GlobalDecision.ABORT)
        done = set(self.results)
        if len(done) == len(self.graph.steps) and self.decision is GlobalDecision.COMMIT:
            return self._finish(GlobalOutcome.COMMITTED)
        has_turned = self.graph.pivot in done if self.graph.pivot else len(done) == len(self.graph.steps)
        if has_turned and self.decision is GlobalDecision.NONE:
            return self._decide(GlobalDecision.COMMIT)
        busy = self._running | self._paused | set(self.parked)
        calls: list[MachineAction] = []
        for name in self.graph.ready(done):
            if name not in busy:
                calls += self._do(name)
        if not calls and not self._running and not self._paused:
            return self._park()
        return calls

    @property
    def _may_turn(self) -> bool:
        return self.decision is not GlobalDecision.COMMIT

    def _do(self, name: str) -> list[MachineAction]:
        self._running.add(name)
        call = CallBranch(name, Phase.DO)
        if self.graph.by_name[name].is_pivot and name not in self._begun:
            self._begun.add(name)
            return [Keep((GlobalRecord(RecordEvent.BEGUN, name),), error=self.error), call]
        self._begun.add(name)
        return [call]

    def _done(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not Phase.DO or event.branch not in self._running:
            impossible(self.state, event)
        self._running.discard(event.branch)
        match event.verdict:
            case BranchVerdict.DONE | BranchVerdict.READ_ONLY:
                self.results[event.branch] = event.data
                self._errors.pop(event.branch, None)
                record = GlobalRecord(RecordEvent.DONE, event.branch, event.data)
                if len(self.results) == len(self.graph.steps):
                    self._unkept = (record,)
                    return self._go_on()
                return [Keep((record,), error=self.error), *self._go_on()]
            case BranchVerdict.LATER:
                if self.reason and self._may_turn:
                    return self._go_on()
                pause = self.graph.by_name[event.branch].retry.first
                return self._pause(event, pause if event.after_s is None else event.after_s)
            case BranchVerdict.FAILED:
                return self._failed(event)
            case BranchVerdict.REFUSED:
                self._refused.add(event.branch)
                return self._give_up(event)
            case BranchVerdict.PARK:
                return self._give_up(event)

    def _failed(self, event: BranchAnswered) -> list[MachineAction]:
        self._failures[event.branch] += 1
        if self.reason and self._may_turn:
            return self._go_on()
        pause = self.graph.by_name[event.branch].retry.pause(self._failures[event.branch])
        return self._give_up(event) if pause is None else self._pause(event, pause)

    def _pause(self, event: BranchAnswered, pause: float) -> list[MachineAction]:
        self._paused.add(event.branch)
        wait = Wait(pause, event.branch)
        if event.verdict is BranchVerdict.LATER:
            return [wait]
        self._errors[event.branch] = event.reason
        return [Keep(error=self.error, next_try_s=0.0 if self._running else pause), wait]

    def _give_up(self, event: BranchAnswered) -> list[MachineAction]:
        """Turns to compensation; behind the pivot, where that cannot be, an operator must look."""
        if not self._may_turn:
            return self._parked(event)
        reason = f"{event.branch}: {event.reason or event.verdict.value}"
        self._turn(reason)
        is_refused = event.verdict is BranchVerdict.REFUSED
        record = GlobalRecord(RecordEvent.REFUSED if is_refused else RecordEvent.FAILED, event.branch, reason)
        return [Keep((record,), error=self.error), *self._go_on()]

    def _turn(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._given_up |= self._paused
        self._paused.clear()

    def _parked(self, event: BranchAnswered) -> list[MachineAction]:
        self.parked[event.branch] = self._errors[event.branch] = event.reason
        record = GlobalRecord(RecordEvent.PARKED, event.branch, event.reason)
        after = self._go_on() if self.state is SagaState.RUNNING else self._go_back()
        return [Keep((record,), error=self.error), *after]

    def _do_again(self, event: Due) -> list[MachineAction]:
        if event.of == DEADLINE:
            return self._timed_out()
        return self._do(event.of) if self._has_ended_pause(event) else []

    def _has_ended_pause(self, event: Due) -> bool:
        """Tells whether a step is to be called again; False: its pause was given up."""
        if event.of in self._given_up:
            self._given_up.discard(event.of)
            return False
        if event.of not in self._paused:
            impossible(self.state, event)
        self._paused.discard(event.of)
        return True

    def _timed_out(self) -> list[MachineAction]:
        """Turns to compensation before the pivot; later it can only be shown."""
        words = f"not done in {self.timeout_s:g} s"
        if not self._may_turn or self.graph.pivot in self._begun:
            self._errors[DEADLINE] = words
            return [Keep(error=self.error)]
        self._turn(words)
        return self._go_on()

    # deciding

    def _decide(self, decision: GlobalDecision) -> list[MachineAction]:
        self.state = SagaState.DECIDING
        names = self.results if decision is GlobalDecision.COMMIT else self._begun
        return [Decide(decision, tuple(step.name for step in self.graph.steps if step.name in names))]

    def _decided(self, event: Decided) -> list[MachineAction]:
        self.decision = event.decision
        if event.decision is GlobalDecision.ABORT:
            kept = [Keep(self._unkept)] if self._unkept else []
            self._unkept = ()
            return [*kept, *self._compensate(f"decided by {event.by}")]
        self.reason = ""
        self._failures.clear()
        self.state = SagaState.RUNNING
        return self._go_on()

    def _in_doubt(self, event: DecisionUnknown) -> list[MachineAction]:
        self.state = SagaState.FINISHED
        return [Finish(GlobalOutcome.IN_DOUBT, event.reason)]

    # back

    def _compensate(self, reason: str) -> list[MachineAction]:
        self.state = SagaState.COMPENSATING
        self.reason = self.reason or reason
        self._errors.clear()
        self._failures.clear()
        return self._go_back()

    def _go_back(self) -> list[MachineAction]:
        """Calls the compensations whose turn it is: of what nothing that has begun comes after any more."""
        actions: list[MachineAction] = []
        while (ready := self._next_to_undo()) is not None:
            actions += self._undo(ready)
        if self._running or self._paused:
            return actions
        left = self._begun - self._undone
        return [*actions, *(self._park() if left else self._finish(GlobalOutcome.ABORTED))]

    def _next_to_undo(self) -> SagaStep | None:
        """Returns a step whose compensation can be called now; None: there is none."""
        left = self._begun - self._undone
        busy = self._running | self._paused | set(self.parked)
        for step in reversed(self.graph.steps):
            is_free = step.name in left and step.name not in busy
            if is_free and not any(step.name in self.graph.before(other) for other in left):
                return step
        return None

    def _undo(self, step: SagaStep) -> list[MachineAction]:
        if step.has_undo:
            self._running.add(step.name)
            return [CallBranch(step.name, Phase.UNDO, self.results.get(step.name, ""))]
        if step.is_pivot and step.name not in self._refused:
            reason = "the pivot may be done, and has no undo"
            self.parked[step.name] = self._errors[step.name] = reason
            return [Keep((GlobalRecord(RecordEvent.PARKED, step.name, reason),), error=self.error)]
        self._undone.add(
            step.name
        )  # it leaves nothing behind: it has no undo, or is a pivot that was refused
        return []

    def _undone_or_not(self, event: BranchAnswered) -> list[MachineAction]:
        if event.phase is not Phase.UNDO or event.branch not in self._running:
            impossible(self.state, event)
        self._running.discard(event.branch)
        retry = self.graph.by_name[event.branch].undo_retry
        match event.verdict:
            case BranchVerdict.DONE | BranchVerdict.READ_ONLY:
                self._undone.add(event.branch)
                self._errors.pop(event.branch, None)
                record = GlobalRecord(RecordEvent.UNDONE, event.branch)
                return [Keep((record,), error=self.error), *self._go_back()]
            case BranchVerdict.LATER:
                return self._pause(event, retry.first if event.after_s is None else event.after_s)
            case BranchVerdict.FAILED:
                self._failures[event.branch] += 1
                pause = retry.pause(self._failures[event.branch])
                return self._parked(event) if pause is None else self._pause(event, pause)
            case BranchVerdict.REFUSED | BranchVerdict.PARK:
                return self._parked(event)

    def _undo_again(self, event: Due) -> list[MachineAction]:
        if event.of == DEADLINE or not self._has_ended_pause(event):
            return []
        return self._undo(self.graph.by_name[event.of])

    # the end

    @property
    def error(self) -> str:
        """Why it could not go on, for operators."""
        return "; ".join(f"{name}: {reason}" for name, reason in self._errors.items())

    def _park(self) -> list[MachineAction]:
        self.state = SagaState.FINISHED
        error = self.error or self.reason
        return [Keep(state=GlobalState.PARKED, error=error), Finish(GlobalOutcome.PARKED, error)]

    def _finish(self, outcome: GlobalOutcome) -> list[MachineAction]:
        self.state = SagaState.FINISHED
        return [Keep(self._unkept, GlobalState.ENDED, outcome), Finish(outcome, self.reason)]

    _STEPS: ClassVar[dict[tuple[SagaState, type], Callable[..., list[MachineAction]]]] = {
        (SagaState.RUNNING, BranchAnswered): _done,
        (SagaState.RUNNING, Due): _do_again,
        (SagaState.DECIDING, Decided): _decided,
        (SagaState.DECIDING, DecisionUnknown): _in_doubt,
        (SagaState.COMPENSATING, BranchAnswered): _undone_or_not,
        (SagaState.COMPENSATING, Due): _undo_again,
    }


def sequence(steps: Sequence[SagaStep]) -> SagaGraph:
    """Returns the graph of steps that come one after another."""
    names = ["", *(step.name for step in steps)]
    return SagaGraph(
        tuple(
            SagaStep(
                step.name,
                (before,) if before else (),
                step.has_undo,
                step.is_pivot,
                step.retry,
                step.undo_retry,
            )
            for step, before in zip(steps, names, strict=False)
        )
    )
