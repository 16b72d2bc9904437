"""Shared by the tests of the machines of global transactions: transcripts, and sample events."""

from collections.abc import Iterable

from turbopump.protocol.global_transactions import GlobalDecision
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
    Keep,
    Machine,
    MachineAction,
    MachineEvent,
    Phase,
    Wait,
)

COMMIT, ABORT, NONE = GlobalDecision.COMMIT, GlobalDecision.ABORT, GlobalDecision.NONE
DONE, REFUSED, LATER = BranchVerdict.DONE, BranchVerdict.REFUSED, BranchVerdict.LATER
FAILED, PARK, READ_ONLY = BranchVerdict.FAILED, BranchVerdict.PARK, BranchVerdict.READ_ONLY

EVENTS: tuple[MachineEvent, ...] = (
    Decided(COMMIT, "tm"),
    DecisionUnknown("away"),
    *(BranchAnswered("a", phase, DONE) for phase in Phase),
    Due(DEADLINE),
    Due("a"),
    BranchRegistered("new"),
    BlockLeft(True),
    BlockLeft(False),
)
"""An event of each type, and of each phase."""


def answer(branch: str, phase: Phase, verdict: BranchVerdict = DONE, **more: object) -> BranchAnswered:
    return BranchAnswered(branch, phase, verdict, **more)  # type: ignore[arg-type]


def words(actions: Iterable[MachineAction]) -> list[str]:
    """Returns actions as short lines."""
    return [_word(action) for action in actions]


def _word(action: MachineAction) -> str:
    match action:
        case Keep(records, state, outcome, error):
            parts = [f"{one.event} {one.branch}".strip() for one in records]
            parts += [part for part in (state, outcome, error and f"because {error}") if part]
            return f"keep {', '.join(parts)}".strip()
        case Decide(decision, branches):
            return f"decide {decision} {' '.join(branches)}".strip()
        case CallBranch(branch, phase, data):
            return f"{phase} {branch} {data}".strip()
        case Wait(seconds, of):
            return f"wait {seconds:g} s of {of}"
        case Finish(outcome, error):
            return f"finish {outcome}: {error}" if error else f"finish {outcome}"


def play(machine: Machine, *events: MachineEvent) -> list[str]:
    """Begins a machine, gives it these events, and returns what it does after the last one."""
    actions = machine.begin()
    for event in events:
        actions = machine.step(event)
    return words(actions)


def transcript(machine: Machine, *events: MachineEvent) -> list[str]:
    """Begins a machine, gives it these events, and returns all that it does, in order."""
    lines = words(machine.begin())
    for event in events:
        lines += words(machine.step(event))
    return lines
