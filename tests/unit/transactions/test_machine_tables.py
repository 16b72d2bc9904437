"""Every state of every machine against every event: what cannot come raises, and no pair is missing."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args

import pytest
from tests.unit.transactions.machine_kit import ABORT, COMMIT, EVENTS, FAILED, REFUSED, answer

from turbopump.protocol.global_transactions import GlobalKind, GlobalRecord, GlobalTransaction
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchRegistered,
    Decided,
    DecisionUnknown,
    Due,
    MachineEvent,
    Phase,
)
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.distributed.saga import SagaMachine, SagaState, SagaStep, sequence
from turbopump.transactions.distributed.tcc import TccMachine, TccState
from turbopump.transactions.distributed.three_phase import ACKS, ThreePhaseMachine, ThreePhaseState
from turbopump.transactions.distributed.three_phase_agent import (
    AgentEvent,
    AgentState,
    BookTold,
    PeerAsked,
    PeersTold,
    PhaseAsked,
    ThreePhaseAgent,
)
from turbopump.transactions.distributed.xa import XaMachine, XaState

LEFT, FAILS = BlockLeft(True), BlockLeft(False, "it fails")
YES = answer("a", Phase.PREPARE)


@dataclass(frozen=True)
class Row:
    """How to bring a machine into a state, and the sample events that it takes there."""

    state: Enum
    make: Callable[[], Any]
    events: tuple[MachineEvent, ...]
    takes: frozenset[str]


def row(state: Enum, make: Callable[[], Any], *events: MachineEvent, takes: str = "") -> Row:
    return Row(state, make, events, frozenset(takes.split()))


def name_of(event: MachineEvent) -> str:
    """Returns a short name: the type, with the phase or what a timer was for."""
    more = getattr(event, "phase", None) or getattr(event, "of", None)
    if isinstance(event, BlockLeft):
        more = "well" if event.commit else "failed"
    return type(event).__name__ + (f":{str(more).replace(' ', '_')}" if more else "")


def xa(*branches: str, **more: Any) -> Callable[[], XaMachine]:
    return lambda: XaMachine(branches, timeout_s=5, **more)


def tcc() -> TccMachine:
    return TccMachine(timeout_s=5)


def saga() -> SagaMachine:
    return SagaMachine(sequence([SagaStep("a"), SagaStep("b")]), timeout_s=5)


def three_phase() -> ThreePhaseMachine:
    return ThreePhaseMachine(["a", "b"], timeout_s=5)


def recovered_with_last() -> XaMachine:
    return XaMachine.resumed(GlobalTransaction("g", "bank", GlobalKind.XA), ["b"], last="a")


TRIED = (BranchRegistered("a"), answer("a", Phase.TRY))
STEP_A, STEP_B = answer("a", Phase.DO), answer("b", Phase.DO)
VOTES = (LEFT, answer("a", Phase.CAN_COMMIT), answer("b", Phase.CAN_COMMIT))
ACKED = (*VOTES, answer("a", Phase.PRE_COMMIT), answer("b", Phase.PRE_COMMIT))
UNDO_A = (STEP_A, answer("b", Phase.DO, REFUSED), Decided(ABORT), answer("b", Phase.UNDO))

ROWS = [
    row(XaState.NEW, xa("a", "b"), takes="BlockLeft:well BlockLeft:failed"),
    row(
        XaState.PREPARING,
        xa("a", "b"),
        LEFT,
        takes="BranchAnswered:prepare Due:deadline BlockLeft:failed",
    ),
    row(XaState.ONE_PHASE, xa("a"), LEFT, takes="BranchAnswered:commit_one_phase"),
    row(
        XaState.LAST,
        xa("b", last="a"),
        LEFT,
        answer("b", Phase.PREPARE),
        takes="BranchAnswered:commit_one_phase Due:deadline",
    ),
    row(XaState.ASKING_LAST, recovered_with_last, takes="BranchAnswered:roll_back"),
    row(XaState.DECIDING, xa("a", is_open=True), LEFT, YES, takes="Decided DecisionUnknown"),
    row(
        XaState.ENDING,
        xa("a", is_open=True),
        LEFT,
        YES,
        Decided(COMMIT),
        takes="BranchAnswered:commit Due:deadline",
    ),
    row(
        XaState.ENDING,
        xa("a", is_open=True),
        LEFT,
        YES,
        Decided(COMMIT),
        answer("a", Phase.COMMIT, FAILED),
        takes="Due:a Due:deadline",
    ),
    row(XaState.FINISHED, xa("a"), LEFT, answer("a", Phase.COMMIT_ONE_PHASE)),
    row(
        TccState.TRYING,
        tcc,
        BranchRegistered("a"),
        takes="BranchAnswered:try Due:deadline BranchRegistered BlockLeft:well BlockLeft:failed",
    ),
    row(TccState.DECIDING, tcc, *TRIED, LEFT, takes="Decided DecisionUnknown"),
    row(
        TccState.DECIDING,
        tcc,
        *TRIED,
        Due("deadline"),
        takes="Decided DecisionUnknown BranchRegistered BlockLeft:well BlockLeft:failed",
    ),
    row(TccState.CONFIRMING, tcc, *TRIED, LEFT, Decided(COMMIT), takes="BranchAnswered:confirm Due:deadline"),
    row(TccState.CANCELLING, tcc, *TRIED, FAILS, Decided(ABORT), takes="BranchAnswered:cancel Due:deadline"),
    row(
        TccState.CANCELLING,
        tcc,
        *TRIED,
        Due("deadline"),
        Decided(ABORT),
        takes="BranchAnswered:cancel Due:deadline BranchRegistered BlockLeft:well BlockLeft:failed",
    ),
    row(TccState.FINISHED, tcc, LEFT, DecisionUnknown()),
    row(SagaState.RUNNING, saga, takes="BranchAnswered:do Due:deadline"),
    row(SagaState.RUNNING, saga, answer("a", Phase.DO, FAILED), takes="Due:a Due:deadline"),
    row(SagaState.DECIDING, saga, STEP_A, STEP_B, takes="Decided DecisionUnknown"),
    row(SagaState.COMPENSATING, saga, *UNDO_A, takes="BranchAnswered:undo Due:deadline"),
    row(
        SagaState.COMPENSATING,
        saga,
        *UNDO_A,
        answer("a", Phase.UNDO, FAILED),
        takes="Due:a Due:deadline",
    ),
    row(SagaState.FINISHED, saga, STEP_A, STEP_B, Decided(COMMIT)),
    row(ThreePhaseState.NEW, three_phase, takes="BlockLeft:well BlockLeft:failed"),
    row(ThreePhaseState.WAITING, three_phase, LEFT, takes="BranchAnswered:CanCommit Due:deadline"),
    row(
        ThreePhaseState.PRE_COMMIT,
        three_phase,
        *VOTES,
        takes="BranchAnswered:CanCommit BranchAnswered:PreCommit Due:deadline",
    ),
    row(ThreePhaseState.DECIDING, three_phase, *ACKED, takes="Decided DecisionUnknown"),
    row(
        ThreePhaseState.ENDING,
        three_phase,
        *ACKED,
        Decided(COMMIT),
        takes="BranchAnswered:CanCommit BranchAnswered:PreCommit BranchAnswered:DoCommit Due:deadline",
    ),
    row(ThreePhaseState.FINISHED, three_phase, LEFT, Due("deadline"), DecisionUnknown()),
]

CELLS = [
    pytest.param(one, event, id=f"{one.state}-{'-'.join(map(name_of, one.events))}-{name_of(event)}")
    for one in ROWS
    for event in EVENTS
]


@pytest.mark.parametrize(("one", "event"), CELLS)
def test_a_machine_takes_what_can_come_and_raises_for_all_else(one: Row, event: MachineEvent) -> None:
    machine = one.make()
    machine.begin()
    for before in one.events:
        machine.step(before)
    assert machine.state is one.state
    if name_of(event) in one.takes:
        machine.step(event)
    else:
        with pytest.raises(AssertionError, match="cannot come"):
            machine.step(event)


@pytest.mark.parametrize("states", [XaState, TccState, SagaState, ThreePhaseState])
def test_every_state_has_a_row(states: type[Enum]) -> None:
    never_waits = {TccState.NEW, SagaState.NEW}  # they begin with their first event
    assert {one.state for one in ROWS if isinstance(one.state, states)} == set(states) - never_waits


@pytest.mark.parametrize("machine", [XaMachine, TccMachine, SagaMachine, ThreePhaseMachine])
def test_every_entry_of_a_table_is_reached_by_a_row(machine: Any) -> None:
    reached = {
        (one.state, type(event)) for one in ROWS for event in EVENTS if name_of(event) in one.takes
    } | {(TccState.CONFIRMING, BranchRegistered), (TccState.CONFIRMING, BlockLeft)}
    reached |= {(TccState.FINISHED, BranchRegistered), (TccState.FINISHED, BlockLeft)}
    assert set(machine._STEPS) <= reached


@pytest.mark.parametrize("make", [xa("a", "b"), tcc, saga, three_phase])
def test_a_machine_begins_once(make: Callable[[], Any]) -> None:
    machine = make()
    machine.begin()
    if machine.state in (XaState.NEW, ThreePhaseState.NEW):
        machine.step(LEFT)
    with pytest.raises(AssertionError, match="cannot come"):
        machine.begin()


def test_a_wrong_branch_phase_or_repeated_answer_cannot_come() -> None:
    machine = XaMachine(["a", "b"])
    machine.step(LEFT)
    with pytest.raises(AssertionError):
        machine.step(answer("c", Phase.PREPARE))
    machine.step(YES)
    with pytest.raises(AssertionError):
        machine.step(YES)
    machine = TccMachine()  # type: ignore[assignment]
    machine.begin()
    machine.step(BranchRegistered("a"))
    with pytest.raises(AssertionError):
        machine.step(BranchRegistered("a"))


# the agent of 3PC

AGENT_EVENTS: tuple[AgentEvent, ...] = (
    *(PhaseAsked(phase) for phase in (Phase.CAN_COMMIT, Phase.PRE_COMMIT, Phase.DO_COMMIT, Phase.DO_ABORT)),
    PeerAsked("peer"),
    PeerAsked("peer", pre_commit=True),
    BookTold(COMMIT),
    PeersTold((AgentState.READY,)),
    Decided(COMMIT),
    DecisionUnknown(),
    Due("none"),
    answer("a", Phase.PREPARE),
    answer("a", Phase.COMMIT),
)
READY, BEYOND, COMMITTED, ABORTED, INIT = (
    AgentState.READY,
    AgentState.PRECOMMITTED,
    AgentState.COMMITTED,
    AgentState.ABORTED,
    AgentState.INIT,
)
AFTER: dict[AgentState, tuple[AgentState | None, ...]] = {
    # CanCommit, PreCommit, DoCommit, DoAbort, a peer asks, with a PreCommit, then six that nothing waits for
    INIT: (INIT, None, None, ABORTED, ABORTED, ABORTED, INIT, INIT, INIT, INIT, INIT, None, None),
    READY: (READY, BEYOND, COMMITTED, ABORTED, READY, BEYOND, READY, READY, READY, READY, READY, None, None),
    BEYOND: (BEYOND, BEYOND, COMMITTED, ABORTED, BEYOND, BEYOND, *(BEYOND,) * 5, None, None),
    COMMITTED: (*(COMMITTED,) * 11, None, COMMITTED),
    ABORTED: (*(ABORTED,) * 11, None, ABORTED),
}
"""The state of an agent after each of AGENT_EVENTS; None: it cannot come."""


@pytest.mark.parametrize("state", AgentState)
@pytest.mark.parametrize("number", range(len(AGENT_EVENTS)))
def test_an_agent_in_a_state_takes_an_event(state: AgentState, number: int) -> None:
    agent = ThreePhaseAgent("a", 5, state)
    expected = AFTER[state][number]
    if expected is None:
        with pytest.raises(AssertionError, match="cannot come"):
            agent.step(AGENT_EVENTS[number])
    else:
        agent.step(AGENT_EVENTS[number])
        assert agent.state is expected


def test_the_table_of_the_agent_has_every_cell() -> None:
    assert set(AFTER) == set(AgentState)
    assert {len(row) for row in AFTER.values()} == {len(AGENT_EVENTS)}
    assert {type(event) for event in AGENT_EVENTS} == set(get_args(AgentEvent))
    assert set(ThreePhaseAgent._STEPS) == set(get_args(AgentEvent))


def test_samples_have_every_type_of_event() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(MachineEvent))
    assert {ACKS, "deadline"} >= {event.of for event in EVENTS if isinstance(event, Due)} - {"a"}
    assert Retry().attempts == 5
    assert GlobalRecord("done").event == "done"
