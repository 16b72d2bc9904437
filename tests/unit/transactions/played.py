"""Plays a machine with answers that a property test draws, one event at a time, to its end."""

from typing import Any

from hypothesis import strategies as st

from turbopump.protocol.global_transactions import GlobalDecision
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
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

MAX_FAILURES = 6
"""Bad answers in one run; then all is well, so that it ends."""
VOTES = (Phase.PREPARE,)
FIRST_PHASES = (Phase.PREPARE, Phase.TRY, Phase.DO, Phase.COMMIT_ONE_PHASE, Phase.CAN_COMMIT)


class Played:
    """A run of a machine: what it did, in order, as lines; and what came of its calls."""

    def __init__(self, machine: Machine, data: Any) -> None:
        self.machine = machine
        self.data = data
        self.lines: list[str] = []
        self.read_only: set[str] = set()
        """Branches that have voted so: what becomes of them does not matter."""
        self.finish: Finish | None = None
        self.ends: dict[str, BranchVerdict] = {}
        """By branch, the last answer."""
        self.calls: list[CallBranch] = []
        self.timers: list[str] = []
        self._bad = 0

    def run(self, events: list[MachineEvent]) -> None:
        self._do(self.machine.begin())
        for event in events:
            self._do(self.machine.step(event))
        while self.finish is None:
            waiting = len(self.calls) + len(self.timers)
            assert waiting, f"it waits for nothing: {self.lines}"
            number = self.data.draw(st.integers(0, waiting - 1))
            if number < len(self.calls):
                self._do(self.machine.step(self._answer(self.calls.pop(number))))
            else:
                self._do(self.machine.step(Due(self.timers.pop(number - len(self.calls)))))

    def _do(self, actions: list[MachineAction]) -> None:
        for action in actions:
            assert self.finish is None, "something comes after the end"
            match action:
                case CallBranch(branch, phase):
                    assert all(one.branch != branch for one in self.calls), f"{branch} has two calls at once"
                    self.calls.append(action)
                    self.lines.append(f"call {phase} {branch}")
                case Keep(records, state):
                    self.lines += [f"keep {one.event} {one.branch}" for one in records]
                    if state:
                        self.lines.append(f"keep {state}")
                case Wait(_, of):
                    self.timers.append(of)
                case Decide():
                    self._decide(action)
                case Finish():
                    self.finish = action

    def _decide(self, action: Decide) -> None:
        kind = self.data.draw(st.sampled_from(["as asked", "as asked", "as asked", "abort", "unknown"]))
        if kind == "unknown":
            event: MachineEvent = DecisionUnknown("away")
        else:
            event = Decided(action.decision if kind == "as asked" else GlobalDecision.ABORT, "x")
            self.lines.append(f"decided {event.decision}")
        self._do(self.machine.step(event))

    def _answer(self, call: CallBranch) -> BranchAnswered:
        verdict = BranchVerdict.DONE
        if self._bad < MAX_FAILURES:
            kinds = [BranchVerdict.DONE, BranchVerdict.DONE, BranchVerdict.FAILED, BranchVerdict.LATER]
            if call.phase in FIRST_PHASES:
                kinds.append(BranchVerdict.REFUSED)
            if call.phase in VOTES:
                kinds.append(BranchVerdict.READ_ONLY)
            verdict = self.data.draw(st.sampled_from(kinds))
        self._bad += verdict is not BranchVerdict.DONE
        if verdict is BranchVerdict.READ_ONLY:
            self.read_only.add(call.branch)
        self.ends[call.branch] = verdict
        self.lines.append(f"{verdict.value} {call.phase} {call.branch}")
        return BranchAnswered(call.branch, call.phase, verdict, f"result of {call.branch}", "why", 0.5)
