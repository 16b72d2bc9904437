"""3PC in random simulations: a coordinator that is the TC too, three participants, one fault.

Messages take 1 to 20 units of time, every timeout is 100, the real coordinator and the real agents run. Who
dies starts again with what it had kept, the coordinator only after all others have had time to decide.
Counted is what the participants have done by then: a SPLIT is one that committed and one that aborted, or one
that did not do what the TC has decided; blocked is one that lives and has decided nothing. The variants leave
out parts of the protocol, as a table in docs shows them.

    python -m tests.simulation.globals.three_phase_counts --seeds 1000
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, ClassVar

from turbopump.protocol.global_transactions import GlobalDecision
from turbopump.transactions.distributed.machine import (
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
    Wait,
)
from turbopump.transactions.distributed.three_phase import ACKS, ThreePhaseMachine, ThreePhaseState
from turbopump.transactions.distributed.three_phase_agent import (
    AgentAction,
    AgentState,
    AskBook,
    AskPeers,
    BookTold,
    KeepState,
    PeerAsked,
    PeersTold,
    PhaseAsked,
    ReplyToCoordinator,
    ReplyToPeer,
    TellAlone,
    ThreePhaseAgent,
)

TIMEOUT = 100.0
MIN_DELAY, MAX_DELAY = 1.0, 20.0
BETWEEN_SENDS = 5.0
ROUND_TRIP = 2.5 * MAX_DELAY
FAULT_UNTIL = 160.0
DEAD_FOR = 900.0
BACK_AT = 3_000.0
"""When the coordinator starts again: the participants have done by then what they do without it."""
END = 8_000.0
BRANCHES = "p1", "p2", "p3"
COORDINATOR = "tc"
TERMINATION = "with the termination protocol"


class Fault(StrEnum):
    """What goes wrong."""

    NONE = "nothing"
    COORDINATOR = "coordinator dies"
    PARTICIPANT = "participant dies"
    BOTH = "both die"
    PARTITION = "partition"


class TwoPhaseCoordinator(ThreePhaseMachine):
    """Decides when all have voted."""

    def _all_yes(self) -> list[Any]:
        return self._decide(GlobalDecision.COMMIT)


class WaitingAgent(ThreePhaseAgent):
    """Asks the TC for ever: two-phase commit."""

    def _book_told(self, event: BookTold) -> list[AgentAction]:
        known = event.decision is not GlobalDecision.NONE
        return super()._book_told(event) if known else [self._wait()]

    _STEPS: ClassVar[Any] = {**ThreePhaseAgent._STEPS, BookTold: _book_told}


class CarefulCoordinator(ThreePhaseMachine):
    """Aborts when an Ack is missing."""

    def _acks_over(self, event: Due) -> list[Any]:
        return super()._acks_over(event) if event.of != ACKS else self._abort("an Ack is missing")

    _STEPS: ClassVar[Any] = {**ThreePhaseMachine._STEPS, (ThreePhaseState.PRE_COMMIT, Due): _acks_over}


class LonelyAgent(ThreePhaseAgent):
    """Goes by its own state when it hears nothing."""

    def _ask_book(self) -> list[AgentAction]:
        is_beyond = self.state is AgentState.PRECOMMITTED
        self._conclusion = GlobalDecision.COMMIT if is_beyond else GlobalDecision.ABORT
        return self._decide_alone()


_DONE = {AgentState.COMMITTED: GlobalDecision.COMMIT, AgentState.ABORTED: GlobalDecision.ABORT}

VARIANTS: dict[str, tuple[type[ThreePhaseMachine], type[ThreePhaseAgent]]] = {
    "2PC": (TwoPhaseCoordinator, WaitingAgent),
    "each decides alone, abort without all Acks": (CarefulCoordinator, LonelyAgent),
    "each decides alone, commit without all Acks": (ThreePhaseMachine, LonelyAgent),
    TERMINATION: (ThreePhaseMachine, ThreePhaseAgent),
}


@dataclass(frozen=True, slots=True)
class Outcome3PC:
    """What came of one seed."""

    split: bool
    blocked: bool
    found: bool
    """The coordinator has found the split, and parks the transaction."""


class ThreePhaseWorld:
    """One transaction, one fault."""

    def __init__(self, seed: int, variant: str, fault: Fault) -> None:
        self.chance = random.Random(f"{seed} {fault}")
        self.kind, self.agent_kind = VARIANTS[variant]
        self.now = 0.0
        self.alone = 0
        self._numbers = count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._lives = dict.fromkeys((COORDINATOR, *BRANCHES), 1)
        """0: it is dead; else the number of its life."""
        self._births = dict(self._lives)
        self._sides: dict[str, int] = {}
        self.kept = dict.fromkeys(BRANCHES, AgentState.INIT)
        self.decision = GlobalDecision.NONE
        self._calls = set[tuple[str, str]]()
        self._peers: dict[str, list[AgentState]] = {}
        self._asked: dict[str, int] = dict.fromkeys(BRANCHES, 0)
        self.coordinator = self.kind(BRANCHES, timeout_s=TIMEOUT)
        self.agents = {name: self.agent_kind(name, TIMEOUT) for name in BRANCHES}
        self.finish: Finish | None = None
        self._plan(fault)

    def run(self) -> Outcome3PC:
        self._coordinate(self.coordinator.begin() + self.coordinator.step(BlockLeft(True)))
        blocked, split = self._advance(BACK_AT)
        self._advance(END)
        found = self.finish is not None and self.finish.outcome is GlobalOutcome.PARKED
        return Outcome3PC(split or self._is_split, blocked, found)

    def _advance(self, until: float) -> tuple[bool, bool]:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, do = heapq.heappop(self._heap)
            do()
        undecided = (AgentState.READY, AgentState.PRECOMMITTED)
        blocked = any(self._lives[name] and one.state in undecided for name, one in self.agents.items())
        return blocked, self._is_split

    @property
    def _is_split(self) -> bool:
        done = {_DONE[state] for state in self.kept.values() if state in _DONE}
        return len(done | {self.decision} - {GlobalDecision.NONE}) > 1

    # time, network, faults

    def _at(self, seconds: float, node: str, do: Callable[[], None]) -> None:
        """Does something at a node later, if it lives the same life then."""
        life = self._lives[node]

        def at_time() -> None:
            if life and self._lives[node] == life:
                do()

        heapq.heappush(self._heap, (self.now + seconds, next(self._numbers), at_time))

    def _send(self, source: str, target: str, do: Callable[[], None]) -> None:
        delay = self.chance.uniform(MIN_DELAY, MAX_DELAY)

        def arrive() -> None:
            if self._lives[target] and self._sides.get(source) == self._sides.get(target):
                do()

        heapq.heappush(self._heap, (self.now + delay, next(self._numbers), arrive))

    def _plan(self, fault: Fault) -> None:
        moment = self.chance.uniform(0, FAULT_UNTIL)
        later = self.chance.uniform(0, FAULT_UNTIL)
        victim = self.chance.choice(BRANCHES)
        if fault in (Fault.COORDINATOR, Fault.BOTH):
            self._when(moment, lambda: self._kill(COORDINATOR))
            self._when(BACK_AT, self._start_coordinator)
        if fault in (Fault.PARTICIPANT, Fault.BOTH):
            self._when(later, lambda: self._kill(victim))
            self._when(later + DEAD_FOR, lambda: self._start_agent(victim))
        if fault is Fault.PARTITION:
            sides = {name: self.chance.randrange(2) for name in self._lives}
            self._when(moment, lambda: self._sides.update(sides))
            self._when(moment + self.chance.uniform(200.0, 1_000.0), self._sides.clear)

    def _when(self, moment: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (moment, next(self._numbers), do))

    def _kill(self, node: str) -> None:
        self._lives[node] = 0

    def _reborn(self, node: str) -> None:
        self._births[node] += 1
        self._lives[node] = self._births[node]

    def _start_agent(self, name: str) -> None:
        self._reborn(name)
        self.agents[name] = self.agent_kind(name, TIMEOUT, self.kept[name])
        self._act(name, self.agents[name].begin())

    def _start_coordinator(self) -> None:
        """Only tells what it had decided: without a decision, those that have one keep it."""
        self._reborn(COORDINATOR)
        if self.decision is not GlobalDecision.NONE and self.finish is None:
            machine = self.coordinator = self.kind(BRANCHES, timeout_s=TIMEOUT)
            self._coordinate(machine._decided(Decided(self.decision)))

    # the coordinator

    def _coordinate(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case CallBranch(branch, phase):
                    self._call(branch, phase)
                case Wait(seconds, of):
                    self._at(seconds, COORDINATOR, lambda of=of: self._step(Due(of)))
                case Decide(decision):
                    self._step(Decided(self._decide(decision)))
                case Finish() as finish:
                    self.finish = finish

    def _step(self, event: Any) -> None:
        if self.finish is None:
            self._coordinate(self.coordinator.step(event))

    def _decide(self, decision: GlobalDecision) -> GlobalDecision:
        if self.decision is GlobalDecision.NONE:
            self.decision = decision
        return self.decision

    def _call(self, branch: str, phase: Any) -> None:
        """Sends to one participant after the other: a coordinator that dies has reached only some."""
        self._calls.add((branch, phase))
        send = lambda: self._send(COORDINATOR, branch, lambda: self._agent(branch, PhaseAsked(phase)))  # noqa: E731
        self._at(BETWEEN_SENDS * BRANCHES.index(branch), COORDINATOR, send)
        if phase in ("DoCommit", "DoAbort"):  # the phases before have timeouts of the protocol
            silence = BranchAnswered(branch, phase, BranchVerdict.FAILED, reason="no answer")
            self._at(TIMEOUT, COORDINATOR, lambda: self._answered(silence))

    def _answered(self, event: BranchAnswered) -> None:
        key = event.branch, event.phase
        if key in self._calls:
            self._calls.discard(key)
            self._step(event)

    # participants

    def _agent(self, name: str, event: Any) -> None:
        self._act(name, self.agents[name].step(event))

    def _act(self, name: str, actions: list[AgentAction]) -> None:
        for action in actions:
            match action:
                case KeepState(state):
                    self.kept[name] = state
                case ReplyToCoordinator(phase, verdict, data, reason):
                    answer = BranchAnswered(name, phase, verdict, data, reason)
                    self._send(name, COORDINATOR, lambda answer=answer: self._answered(answer))
                case ReplyToPeer(peer, state):
                    self._send(name, peer, lambda peer=peer, state=state: self._told(peer, state))
                case CallBranch(branch, phase):
                    done = BranchAnswered(branch, phase, BranchVerdict.DONE)
                    self._at(MIN_DELAY, name, lambda done=done: self._agent(name, done))
                case Wait(seconds, of):
                    self._at(seconds, name, lambda of=of: self._agent(name, Due(of)))
                case AskBook():
                    self._ask_book(name)
                case AskPeers(pre_commit):
                    self._ask_peers(name, pre_commit)
                case Decide(decision):
                    self._propose(name, decision)
                case TellAlone():
                    self.alone += 1

    def _ask_book(self, name: str) -> None:
        self._asked[name] += 1
        number = self._asked[name]

        def told(decision: GlobalDecision, is_reachable: bool) -> None:
            if self._asked[name] == number:
                self._asked[name] += 1
                self._agent(name, BookTold(decision, is_reachable))

        answer = lambda: self._send(COORDINATOR, name, lambda: told(self.decision, True))  # noqa: E731
        self._send(name, COORDINATOR, answer)
        self._at(ROUND_TRIP, name, lambda: told(GlobalDecision.NONE, False))

    def _propose(self, name: str, decision: GlobalDecision) -> None:
        def at_tc() -> None:
            counts = self._decide(decision)
            self._send(COORDINATOR, name, lambda: self._agent(name, Decided(counts)))

        self._send(name, COORDINATOR, at_tc)
        self._at(ROUND_TRIP, name, lambda: self._agent(name, DecisionUnknown("no answer")))

    def _ask_peers(self, name: str, pre_commit: bool) -> None:
        self._peers[name] = []
        for peer in BRANCHES:
            if peer != name:
                asked = PeerAsked(name, pre_commit)
                self._send(name, peer, lambda peer=peer, asked=asked: self._agent(peer, asked))
        self._at(ROUND_TRIP, name, lambda: self._agent(name, PeersTold(tuple(self._peers[name]))))

    def _told(self, name: str, state: AgentState) -> None:
        self._peers.setdefault(name, []).append(state)


def counted(variant: str, fault: Fault, seeds: range) -> tuple[int, int]:
    """Returns the number of seeds with a split, and with a participant that is blocked."""
    outcomes = [ThreePhaseWorld(seed, variant, fault).run() for seed in seeds]
    return sum(one.split for one in outcomes), sum(one.blocked for one in outcomes)
