"""Errors that are planted into machines, driver, recovery, fence and book, each by a small patch.

A judge that finds nothing proves nothing: each must be found within a stated number of seeds.

    python -m tests.simulation.globals.bugs "forget the lease"
    python -m tests.simulation.globals.bugs --measure
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.simulation.globals import run
from tests.simulation.globals.clients import Client, SimulatedJournal
from tests.simulation.globals.databases import Database
from tests.simulation.globals.world import GlobalsWorld

from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.book.requests import GlobalTransactionHandler
from turbopump.protocol import global_transactions as wire
from turbopump.protocol.errors import Fenced
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalState,
    GlobalTransaction,
)
from turbopump.remoting.router import Answer
from turbopump.transactions.distributed import gids, recovery
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Decide,
    Decided,
    DecisionUnknown,
    Machine,
    MachineAction,
    MachineEvent,
    Phase,
)
from turbopump.transactions.distributed.recovery import GroupRecovery
from turbopump.transactions.distributed.saga import SagaMachine, SagaStep
from turbopump.transactions.distributed.tcc import TccMachine, TccState
from turbopump.transactions.distributed.three_phase_agent import AgentAction, ThreePhaseAgent, concluded
from turbopump.transactions.distributed.xa import XaMachine, XaState

Plant = Callable[[], contextlib.AbstractContextManager[Any]]

STARTS = range(0, 40_000, 10_000)
"""First seeds of the runs by which the bounds were found."""
MAX_WORLDS = 2_000


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A planted error, and within how many seeds the judge must find it."""

    name: str
    plant: Plant
    within: int


def hunt(bug: PlantedBug, first: int = 0, most: int = 0) -> int | None:
    """Returns how many seeds it took to find a planted error; None: none of them has shown it."""
    with bug.plant():
        for number in range(most or bug.within):
            try:
                run(first + number)
            except AssertionError:
                return number + 1
    return None


def _replaced(owner: object, name: str, by: Any) -> Plant:
    return lambda: mock.patch.object(owner, name, by)


def _both(first: Plant, second: Plant) -> Plant:
    @contextlib.contextmanager
    def plant() -> Iterator[None]:
        with first(), second():
            yield

    return plant


def _stepped(machine: Any, state: Any, event: type, by: Any) -> Plant:
    """Replaces what a machine does with an event."""
    return lambda: mock.patch.dict(machine._STEPS, {(state, event): by})


# act, then decide


class ActsFirst:
    """A machine that calls participants before what they rest on is stored, and decides afterwards."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.kind = machine.kind
        self._has_acted = False

    def begin(self) -> list[MachineAction]:
        return self._reordered(self._machine.begin())

    def step(self, event: MachineEvent) -> list[MachineAction]:
        if isinstance(event, Decided | DecisionUnknown) and self._has_acted:
            self._has_acted = False
            return []
        return self._reordered(self._machine.step(event))

    def _reordered(self, actions: list[MachineAction]) -> list[MachineAction]:
        found: list[MachineAction] = []
        for action in actions:
            found.append(action)
            if isinstance(action, Decide):
                self._has_acted = True
                found += self._machine.step(Decided(action.decision))
        return sorted(found, key=lambda one: not isinstance(one, CallBranch))


def _acts_first(kind: GlobalKind) -> Plant:
    def made(self: GlobalsWorld, machine: Machine) -> Machine:
        return ActsFirst(machine) if machine.kind is kind else machine

    return _replaced(GlobalsWorld, "made", made)


# leases and recovery


_append = SimulatedJournal.append


async def _append_always(self: SimulatedJournal, known: GlobalTransaction, records: Any, *more: Any) -> None:
    """Goes on as if the record were stored, although another client has the transaction."""
    with contextlib.suppress(Fenced):
        await _append(self, known, records, *more)


async def _abort_by_age(self: Client | GroupRecovery, gid: str) -> GlobalDecision:
    """Rolls back what is old, and asks nobody."""
    return GlobalDecision.ABORT


def _never(_: str) -> bool:
    return False


def _roll_back_in_doubt(self: XaMachine, event: DecisionUnknown) -> list[MachineAction]:
    """Takes a lost answer for an abort."""
    self.decision, self.reason = GlobalDecision.ABORT, event.reason
    return self._end()


_voted = XaMachine._voted


def _take_silence_for_yes(self: XaMachine, event: BranchAnswered) -> list[MachineAction]:
    if event.phase is Phase.PREPARE and event.verdict is BranchVerdict.FAILED:
        event = BranchAnswered(event.branch, event.phase, BranchVerdict.DONE)
    return _voted(self, event)


# TCC and SAGA


_tried = TccMachine._tried


def _forget_unknown_tries(self: TccMachine, event: BranchAnswered) -> list[MachineAction]:
    """Cancels only what is known to be tried."""
    if event.verdict is BranchVerdict.FAILED:
        del self.branches[event.branch]
    return _tried(self, event)


def _confirm_without_fence(self: Database, gid: str, branch: str) -> None:
    cents = max(0, self.frozen.pop((gid, branch), 0))
    self.cents += cents
    self.noted.note(gid, branch, "confirm", cents)


def _cancel_without_mark(self: Database, gid: str, branch: str) -> None:
    """Leaves no mark where nothing was tried: a Try that comes later hangs."""
    if (gid, branch, "try") in self.fence and self._insert(gid, branch, "cancel", "cancel"):
        cents = -min(0, self.frozen.pop((gid, branch)))
        self.cents += cents
        self.noted.note(gid, branch, "cancel", cents)


def _any_to_undo(self: SagaMachine) -> SagaStep | None:
    """Calls compensations without waiting for those that must come before."""
    waiting = self._begun - self._undone - self._running - self._paused - set(self.parked)
    return next((step for step in self.graph.steps if step.name in waiting), None)


_read = SagaMachine._read


def _forget_what_may_have_begun(self: SagaMachine, known: GlobalTransaction) -> None:
    """Compensates only what has a record."""
    _read(self, known)
    self._begun = set(self.results) | self._refused


# 3PC


def _go_by_own_state(self: ThreePhaseAgent) -> list[AgentAction]:
    """Decides alone where nothing was heard, and asks nobody."""
    self._conclusion = concluded(self.state, ())
    return self._decide_alone()


# the coordinator


_snapshot = GlobalBook.snapshot


def _forget_decided(self: GlobalBook, gid: str) -> Any:
    """Leaves out what is decided and has not ended when the book is written again."""
    return [] if self.transactions[gid].state is GlobalState.DECIDED else _snapshot(self, gid)


async def _answer_before_the_disk(
    self: GlobalTransactionHandler, gid: str, change: Any, owner: str
) -> Answer:
    if change is not None:
        self._log.write(change)
        self._noticed(self.book.transactions[gid])
    return Answer(body=wire.encode(self.book.known(gid)))


_decide = GlobalBook.decide


def _take_every_decision(self: GlobalBook, gid: str, *more: Any) -> Any:
    """Lets the last decision count."""
    known = self.transactions.get(gid)
    if known is not None and known.state is GlobalState.DECIDED:
        self.transactions[gid] = wire.read_transaction(wire.encode(known))
        self.transactions[gid].decision = GlobalDecision.NONE
    return _decide(self, gid, *more)


BUGS: Sequence[PlantedBug] = (
    PlantedBug("XA acts, then decides", _acts_first(GlobalKind.XA), 20),
    PlantedBug("TCC acts, then decides", _acts_first(GlobalKind.TCC), 40),
    PlantedBug("SAGA acts, then decides", _acts_first(GlobalKind.SAGA), 50),
    PlantedBug("forget the lease", _replaced(SimulatedJournal, "append", _append_always), 250),
    PlantedBug(
        "abort by age without asking",
        _both(
            _replaced(Client, "ask_for_abort", _abort_by_age),
            _replaced(GroupRecovery, "_decision", _abort_by_age),
        ),
        370,
    ),
    PlantedBug(
        "do not ask the last resource",
        _both(
            _replaced(gids, "may_last_resource_decide", _never),
            _replaced(recovery, "may_last_resource_decide", _never),
        ),
        480,
    ),
    PlantedBug(
        "roll back when in doubt",
        _stepped(XaMachine, XaState.DECIDING, DecisionUnknown, _roll_back_in_doubt),
        280,
    ),
    PlantedBug(
        "take silence for Yes",
        _stepped(XaMachine, XaState.PREPARING, BranchAnswered, _take_silence_for_yes),
        20,
    ),
    PlantedBug(
        "cancel only known tries",
        _stepped(TccMachine, TccState.TRYING, BranchAnswered, _forget_unknown_tries),
        30,
    ),
    PlantedBug("confirm without the fence", _replaced(Database, "confirm", _confirm_without_fence), 30),
    PlantedBug("cancel without a mark", _replaced(Database, "cancel", _cancel_without_mark), 100),
    PlantedBug("compensate in any order", _replaced(SagaMachine, "_next_to_undo", _any_to_undo), 50),
    PlantedBug(
        "compensate only what has a record", _replaced(SagaMachine, "_read", _forget_what_may_have_begun), 40
    ),
    PlantedBug("3PC goes by its own state", _replaced(ThreePhaseAgent, "_ask_book", _go_by_own_state), 30),
    PlantedBug("TC forgets before the end", _replaced(GlobalBook, "snapshot", _forget_decided), 30),
    PlantedBug(
        "TC answers before the disk",
        _replaced(GlobalTransactionHandler, "_answered", _answer_before_the_disk),
        130,
    ),
    PlantedBug("TC lets the last decision count", _replaced(GlobalBook, "decide", _take_every_decision), 160),
)
"""All planted errors. Bounds: three times the most of four runs from STARTS, at least 20."""


def main(arguments: Sequence[str]) -> int:
    logging.disable(logging.CRITICAL)
    if arguments[0] != "--measure":
        [bug] = [one for one in BUGS if one.name == arguments[0]]
        found = hunt(bug)
        print(f"{bug.name}: {f'not found in {bug.within} seeds' if found is None else f'{found} seeds'}")
        return found is None
    for bug in BUGS:
        found_in = [hunt(bug, first, MAX_WORLDS) for first in STARTS]
        print(f"{bug.name}: {found_in}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
