"""3PC: a participant, as a state machine with the termination protocol.

    init ──CanCommit, prepared──▶ ready ──PreCommit──▶ precommitted ──DoCommit──▶ committed
                                    └──────────DoAbort─────┴──────────────────▶ aborted

Databases have no third state: the PreCommit is kept here, while the branch is prepared there. When
nothing comes for the timeout, the agent asks the broker (TC) first, then its peers, and only then goes by
its own state:

    a peer has committed, or aborted      the same
    somebody has a PreCommit              commit, after every peer that answers has it too
    nobody has one                        abort

What it concludes is proposed to the TC, whose answer counts. Only an agent that cannot reach it decides
alone, and says so. If it learns later that it was decided otherwise, there is a SPLIT, for an operator.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import ClassVar

from turbopump.protocol.global_transactions import GlobalDecision
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Decide,
    Decided,
    DecisionUnknown,
    Due,
    Phase,
    Wait,
    impossible,
)


class AgentState(StrEnum):
    """How far a participant is; kept on its disk."""

    INIT = "init"
    READY = "ready"
    """It has voted Yes: its branch is prepared."""
    PRECOMMITTED = "precommitted"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Asking(Enum):
    """What an agent that has heard nothing is waiting for."""

    NOBODY = "nobody"
    BOOK = "the broker"
    PEERS = "its peers"
    PEERS_WITH_PRE_COMMIT = "its peers, to take a PreCommit"
    DECISION = "a decision of the broker"


# actions; beside them CallBranch of the local resource (PREPARE, COMMIT, ROLL_BACK), Decide and Wait


@dataclass(frozen=True, slots=True)
class KeepState:
    """Action of an agent: store its state, before what stands behind it in the list."""

    state: AgentState


@dataclass(frozen=True, slots=True)
class ReplyToCoordinator:
    """Action of an agent: answer a phase that the coordinator has asked for."""

    phase: Phase
    verdict: BranchVerdict
    data: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReplyToPeer:
    """Action of an agent: tell a peer its state."""

    peer: str
    state: AgentState


@dataclass(frozen=True, slots=True)
class AskBook:
    """Action of an agent: read the decision at the TC. Answered by BookTold."""


@dataclass(frozen=True, slots=True)
class AskPeers:
    """Action of an agent: ask all peers for their states. Answered by PeersTold."""

    pre_commit: bool = False
    """Those that are ready shall take a PreCommit first."""


@dataclass(frozen=True, slots=True)
class TellAlone:
    """Action of an agent: log and count that it decides without the TC."""

    decision: GlobalDecision


@dataclass(frozen=True, slots=True)
class TellSplit:
    """Action of an agent: log and count that others have decided otherwise."""

    mine: GlobalDecision
    theirs: GlobalDecision


AgentAction = (
    KeepState
    | ReplyToCoordinator
    | ReplyToPeer
    | AskBook
    | AskPeers
    | TellAlone
    | TellSplit
    | CallBranch
    | Decide
    | Wait
)


# events; beside them BranchAnswered of the local resource, Decided, DecisionUnknown and Due


@dataclass(frozen=True, slots=True)
class PhaseAsked:
    """Event of an agent: the coordinator asks for a phase."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class PeerAsked:
    """Event of an agent: a peer asks for its state."""

    peer: str
    pre_commit: bool = False


@dataclass(frozen=True, slots=True)
class BookTold:
    """Event of an agent: what the TC knows."""

    decision: GlobalDecision
    is_reachable: bool = True


@dataclass(frozen=True, slots=True)
class PeersTold:
    """Event of an agent: the states of the peers that have answered."""

    states: tuple[AgentState, ...]


AgentEvent = PhaseAsked | PeerAsked | BookTold | PeersTold | BranchAnswered | Decided | DecisionUnknown | Due


class ThreePhaseAgent:
    """One participant of a transaction by 3PC."""

    RETRY_S = 1.0
    """Before the branch is asked again to commit or roll back."""

    def __init__(
        self, branch: str, timeout_s: float, state: AgentState = AgentState.INIT, has_peers: bool = True
    ) -> None:
        """`state`: what was kept, after a restart."""
        self.branch = branch
        self.timeout_s = timeout_s
        self.state = state
        self.asking = Asking.NOBODY
        self.is_alone = False
        """It has decided without the TC."""
        self.is_split = False
        self._has_peers = has_peers
        self._is_reachable = False
        self._conclusion = GlobalDecision.NONE
        self._timer = 0
        self._owes: set[Phase] = set()
        """Phases to be answered when the branch has ended."""
        self._is_preparing = False
        self._has_ended = False
        """The branch has carried the decision out."""

    def begin(self) -> list[AgentAction]:
        """Returns what is to be done after a restart."""
        if self.state in _FINAL:
            return [self._end_branch()]
        return [] if self.state is AgentState.INIT else self._ask_book()

    def step(self, event: AgentEvent) -> list[AgentAction]:
        return self._STEPS[type(event)](self, event)

    # the coordinator

    def _asked(self, event: PhaseAsked) -> list[AgentAction]:
        if event.phase is Phase.CAN_COMMIT:
            return self._vote()
        if event.phase is Phase.PRE_COMMIT:
            return self._take_pre_commit()
        if event.phase not in _ORDERS:
            impossible(self.state, event)
        return self._obey(event.phase, _ORDERS[event.phase])

    def _vote(self) -> list[AgentAction]:
        if self.state is AgentState.INIT:
            if self._is_preparing:
                return []  # asked twice: it is answered once
            self._is_preparing = True
            return [CallBranch(self.branch, Phase.PREPARE)]
        if self.state is AgentState.ABORTED:
            return [ReplyToCoordinator(Phase.CAN_COMMIT, BranchVerdict.REFUSED, reason="it has aborted")]
        return [ReplyToCoordinator(Phase.CAN_COMMIT, BranchVerdict.DONE, self.state)]

    def _take_pre_commit(self) -> list[AgentAction]:
        if self.state is AgentState.INIT:
            impossible(self.state, PhaseAsked(Phase.PRE_COMMIT))
        if self.state is AgentState.ABORTED:
            return [ReplyToCoordinator(Phase.PRE_COMMIT, BranchVerdict.REFUSED, reason="it has aborted")]
        ack = ReplyToCoordinator(Phase.PRE_COMMIT, BranchVerdict.DONE)
        return [*self._precommit(), ack] if self.state is AgentState.READY else [ack]

    def _precommit(self) -> list[AgentAction]:
        self.state = AgentState.PRECOMMITTED
        self.asking = Asking.NOBODY  # what is being asked for may be out of date
        return [KeepState(self.state), self._wait()]

    def _obey(self, phase: Phase, decision: GlobalDecision) -> list[AgentAction]:
        mine = self._decision
        if self.state is AgentState.INIT and decision is GlobalDecision.COMMIT:
            impossible(self.state, PhaseAsked(phase))
        if mine is GlobalDecision.NONE:
            self._owes.add(phase)
            return self._decide(decision)
        if mine is not decision:
            self.is_split = True
            reason = f"it has decided {mine} {'alone' if self.is_alone else 'before'}"
            return [
                TellSplit(mine, decision),
                ReplyToCoordinator(phase, BranchVerdict.REFUSED, reason=reason),
            ]
        if self._has_ended:
            return [ReplyToCoordinator(phase, BranchVerdict.DONE)]
        self._owes.add(phase)
        return []

    @property
    def _decision(self) -> GlobalDecision:
        return _FINAL.get(self.state, GlobalDecision.NONE)

    # the branch

    def _branch_answered(self, event: BranchAnswered) -> list[AgentAction]:
        return self._prepared(event) if event.phase is Phase.PREPARE else self._ended(event)

    def _prepared(self, event: BranchAnswered) -> list[AgentAction]:
        if not self._is_preparing:
            impossible(self.state, event)
        self._is_preparing = False
        if self.state is AgentState.ABORTED:  # a peer has asked meanwhile, or a DoAbort came
            no = ReplyToCoordinator(Phase.CAN_COMMIT, BranchVerdict.REFUSED, reason="it has aborted")
            return [no, self._end_branch()]
        if event.verdict in (BranchVerdict.DONE, BranchVerdict.READ_ONLY):
            self.state = AgentState.READY
            yes = ReplyToCoordinator(Phase.CAN_COMMIT, BranchVerdict.DONE)
            return [KeepState(self.state), yes, self._wait()]
        reason = event.reason or "it cannot prepare"
        no = ReplyToCoordinator(Phase.CAN_COMMIT, BranchVerdict.REFUSED, reason=reason)
        keep, *rest = self._decide(GlobalDecision.ABORT)
        return [keep, no, *rest]

    def _ended(self, event: BranchAnswered) -> list[AgentAction]:
        if self.state not in _FINAL or self._has_ended:
            impossible(self.state, event)
        if event.verdict not in (BranchVerdict.DONE, BranchVerdict.READ_ONLY):
            return [self._wait(self.RETRY_S if event.after_s is None else event.after_s)]
        self._has_ended = True
        replies = [ReplyToCoordinator(phase, BranchVerdict.DONE) for phase in sorted(self._owes)]
        self._owes.clear()
        return [*replies]

    def _decide(self, decision: GlobalDecision) -> list[AgentAction]:
        """Keeps the final state, then has the branch carry it out."""
        self.state = _STATES[decision]
        self.asking = Asking.NOBODY
        self._timer += 1  # it waits for nothing any more
        keep = KeepState(self.state)
        return [keep] if self._is_preparing else [keep, self._end_branch()]

    def _end_branch(self) -> CallBranch:
        is_commit = self.state is AgentState.COMMITTED
        return CallBranch(self.branch, Phase.COMMIT if is_commit else Phase.ROLL_BACK)

    # the termination protocol

    def _wait(self, seconds: float | None = None) -> Wait:
        self._timer += 1
        return Wait(self.timeout_s if seconds is None else seconds, str(self._timer))

    def _due(self, event: Due) -> list[AgentAction]:
        if event.of != str(self._timer):
            return []  # something has come meanwhile
        if self.state in _FINAL:
            return [] if self._has_ended else [self._end_branch()]
        return self._ask_book()

    def _ask_book(self) -> list[AgentAction]:
        self.asking = Asking.BOOK
        return [AskBook()]

    def _book_told(self, event: BookTold) -> list[AgentAction]:
        if self.asking is not Asking.BOOK:
            return []
        self._is_reachable = event.is_reachable
        if event.decision is not GlobalDecision.NONE:
            return self._decide(event.decision)
        if not self._has_peers:
            return self._conclude(())
        self.asking = Asking.PEERS
        return [AskPeers()]

    def _peers_told(self, event: PeersTold) -> list[AgentAction]:
        if self.asking is Asking.PEERS_WITH_PRE_COMMIT:
            return self._conclude(event.states)
        if self.asking is not Asking.PEERS:
            return []
        conclusion = concluded(self.state, event.states)
        if conclusion is GlobalDecision.COMMIT and AgentState.READY in event.states:
            # If this agent dies right after its commit, those that live must know enough to commit too.
            self.asking = Asking.PEERS_WITH_PRE_COMMIT
            return [AskPeers(pre_commit=True)]
        return self._conclude(event.states)

    def _conclude(self, states: Collection[AgentState]) -> list[AgentAction]:
        """Proposes a decision to the TC, or makes it alone where the TC cannot be reached."""
        self._conclusion = concluded(self.state, states)
        if not self._is_reachable:
            return self._decide_alone()
        self.asking = Asking.DECISION
        return [Decide(self._conclusion)]

    def _decide_alone(self) -> list[AgentAction]:
        self.is_alone = True
        return [TellAlone(self._conclusion), *self._decide(self._conclusion)]

    def _decided(self, event: Decided) -> list[AgentAction]:
        return self._decide(event.decision) if self.asking is Asking.DECISION else []

    def _undecided(self, _: DecisionUnknown) -> list[AgentAction]:
        return self._decide_alone() if self.asking is Asking.DECISION else []

    def _peer_asked(self, event: PeerAsked) -> list[AgentAction]:
        """Tells its state. Who has not voted by then never votes Yes."""
        actions: list[AgentAction] = []
        if self.state is AgentState.INIT:
            actions = self._decide(GlobalDecision.ABORT)
        elif self.state is AgentState.READY and event.pre_commit:
            actions = self._precommit()
        keep, rest = actions[:1], actions[1:]
        return [*keep, ReplyToPeer(event.peer, self.state), *rest]

    _STEPS: ClassVar[dict[type, Callable[..., list[AgentAction]]]] = {
        PhaseAsked: _asked,
        PeerAsked: _peer_asked,
        BookTold: _book_told,
        PeersTold: _peers_told,
        BranchAnswered: _branch_answered,
        Decided: _decided,
        DecisionUnknown: _undecided,
        Due: _due,
    }


def concluded(own: AgentState, states: Collection[AgentState]) -> GlobalDecision:
    """Returns what the states of an agent and of the peers that answer mean: the rule of termination."""
    if AgentState.COMMITTED in states:
        return GlobalDecision.COMMIT
    if AgentState.ABORTED in states:
        return GlobalDecision.ABORT
    is_beyond = own is AgentState.PRECOMMITTED or AgentState.PRECOMMITTED in states
    return GlobalDecision.COMMIT if is_beyond else GlobalDecision.ABORT


_ORDERS = {Phase.DO_COMMIT: GlobalDecision.COMMIT, Phase.DO_ABORT: GlobalDecision.ABORT}
_FINAL = {AgentState.COMMITTED: GlobalDecision.COMMIT, AgentState.ABORTED: GlobalDecision.ABORT}
_STATES = {decision: state for state, decision in _FINAL.items()}
