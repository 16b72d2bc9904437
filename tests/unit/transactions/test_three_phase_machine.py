"""3PC as state machines: transcripts of the coordinator, and of a participant that hears nothing."""

import pytest
from tests.unit.transactions.machine_kit import ABORT, COMMIT, FAILED, NONE, REFUSED, answer, play, words

from turbopump.protocol.global_transactions import GlobalKind, GlobalRecord, GlobalTransaction
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchVerdict,
    CallBranch,
    Decide,
    Decided,
    DecisionUnknown,
    Due,
    Phase,
    Wait,
)
from turbopump.transactions.distributed.three_phase import ThreePhaseMachine
from turbopump.transactions.distributed.three_phase_agent import (
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
    TellSplit,
    ThreePhaseAgent,
    concluded,
)

LEFT = BlockLeft(True)
YES = [answer(name, Phase.CAN_COMMIT) for name in ("a", "b")]
ACKS = [answer(name, Phase.PRE_COMMIT) for name in ("a", "b")]
READY, BEYOND = AgentState.READY, AgentState.PRECOMMITTED
COMMITTED, ABORTED = AgentState.COMMITTED, AgentState.ABORTED


def coordinator() -> ThreePhaseMachine:
    return ThreePhaseMachine(["a", "b"], timeout_s=5)


# the coordinator


def test_all_vote_then_all_get_a_precommit_then_it_is_decided() -> None:
    machine = coordinator()
    assert play(machine, LEFT) == ["wait 5 s of deadline", "CanCommit a", "CanCommit b"]
    assert [words(machine.step(event)) for event in YES] == [
        [],
        ["keep precommit", "wait 5 s of acks", "PreCommit a", "PreCommit b"],
    ]
    assert [words(machine.step(event)) for event in ACKS] == [[], ["decide commit a b"]]
    assert words(machine.step(Decided(COMMIT))) == ["DoCommit a", "DoCommit b"]
    machine.step(answer("a", Phase.DO_COMMIT))
    assert words(machine.step(answer("b", Phase.DO_COMMIT))) == [
        "keep committed a, committed b, ended, committed",
        "finish committed",
    ]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (answer("a", Phase.CAN_COMMIT, REFUSED, reason="no"), "no"),
        (answer("a", Phase.CAN_COMMIT, FAILED), "a votes No"),
        (Due("deadline"), "not all participants have voted in 5 s"),
        (BlockLeft(False, "ValueError"), "ValueError"),
    ],
)
def test_a_no_a_fault_or_silence_aborts(event: object, reason: str) -> None:
    machine = coordinator()
    events = [event] if isinstance(event, BlockLeft) else [LEFT, event]
    assert play(machine, *events)[-1] == "decide abort a b"  # type: ignore[arg-type]
    assert machine.reason == reason


def test_a_coordinator_that_misses_acks_commits() -> None:
    assert play(coordinator(), LEFT, *YES, ACKS[0], Due("acks")) == ["decide commit a b"]


def test_a_participant_that_decided_otherwise_is_a_split_and_parks() -> None:
    machine = coordinator()
    split = answer("a", Phase.DO_COMMIT, REFUSED, reason="it has decided abort alone")
    lines = play(machine, LEFT, *YES, *ACKS, Decided(COMMIT), answer("b", Phase.DO_COMMIT), split)
    assert lines == [
        "keep split a",
        "keep committed b, parked a, because a: it has decided abort alone",
        "keep parked, because SPLIT: a: it has decided abort alone",
        "finish parked: SPLIT: a: it has decided abort alone",
    ]
    assert machine.splits == {"a": "it has decided abort alone"}


def resumed(*records: str) -> ThreePhaseMachine:
    found = [GlobalRecord(one) for one in records]
    known = GlobalTransaction("g", "bank", GlobalKind.THREE_PHASE, records=found)
    return ThreePhaseMachine.resumed(known, ["a", "b"], timeout_s=5)


def test_a_resumed_coordinator_asks_before_it_decides() -> None:
    assert play(resumed()) == ["wait 5 s of deadline", "CanCommit a", "CanCommit b"]
    assert play(resumed(), Due("deadline")) == ["decide abort a b"]
    assert play(resumed("precommit"), answer("a", Phase.CAN_COMMIT, REFUSED)) == ["decide abort a b"]
    assert play(resumed("precommit"), YES[0], Due("deadline"))[1] == "wait 5 s of acks"
    has_it = answer("a", Phase.CAN_COMMIT, data="precommitted")
    assert play(resumed(), has_it, answer("b", Phase.CAN_COMMIT, FAILED))[0] == "keep precommit"


def test_a_resumed_coordinator_carries_out_what_is_decided() -> None:
    known = GlobalTransaction("g", "bank", GlobalKind.THREE_PHASE, decision=ABORT)
    assert play(ThreePhaseMachine.resumed(known, ["a", "b"], timeout_s=5)) == ["DoAbort a", "DoAbort b"]


# a participant


def reply(
    phase: Phase, verdict: BranchVerdict = BranchVerdict.DONE, data: str = "", reason: str = ""
) -> ReplyToCoordinator:
    return ReplyToCoordinator(phase, verdict, data, reason)


def test_an_agent_prepares_votes_and_commits_and_keeps_each_state_first() -> None:
    agent = ThreePhaseAgent("a", 5)
    assert agent.begin() == []
    assert agent.step(PhaseAsked(Phase.CAN_COMMIT)) == [CallBranch("a", Phase.PREPARE)]
    assert agent.step(answer("a", Phase.PREPARE)) == [KeepState(READY), reply(Phase.CAN_COMMIT), Wait(5, "1")]
    assert agent.step(PhaseAsked(Phase.PRE_COMMIT)) == [
        KeepState(BEYOND),
        Wait(5, "2"),
        reply(Phase.PRE_COMMIT),
    ]
    assert agent.step(PhaseAsked(Phase.DO_COMMIT)) == [KeepState(COMMITTED), CallBranch("a", Phase.COMMIT)]
    assert agent.step(answer("a", Phase.COMMIT)) == [reply(Phase.DO_COMMIT)]
    assert agent.step(PhaseAsked(Phase.DO_COMMIT)) == [reply(Phase.DO_COMMIT)]


def test_an_agent_that_cannot_prepare_votes_no() -> None:
    agent = ThreePhaseAgent("a", 5)
    agent.step(PhaseAsked(Phase.CAN_COMMIT))
    assert agent.step(answer("a", Phase.PREPARE, REFUSED, reason="no money")) == [
        KeepState(ABORTED),
        reply(Phase.CAN_COMMIT, REFUSED, reason="no money"),
        CallBranch("a", Phase.ROLL_BACK),
    ]


def test_a_branch_that_does_not_commit_is_asked_again() -> None:
    agent = ThreePhaseAgent("a", 5, BEYOND)
    agent.step(PhaseAsked(Phase.DO_COMMIT))
    [wait] = agent.step(answer("a", Phase.COMMIT, FAILED))
    assert isinstance(wait, Wait)
    assert agent.step(Due(wait.of)) == [CallBranch("a", Phase.COMMIT)]
    assert agent.step(answer("a", Phase.COMMIT)) == [reply(Phase.DO_COMMIT)]


def silent(state: AgentState, **more: bool) -> ThreePhaseAgent:
    """Returns an agent that has begun again and asks the TC."""
    agent = ThreePhaseAgent("a", 5, state, **more)
    assert agent.begin() == [AskBook()]
    return agent


def test_an_agent_that_hears_nothing_does_what_the_broker_says() -> None:
    for decision, state in ((COMMIT, COMMITTED), (ABORT, ABORTED)):
        agent = silent(READY)
        assert agent.step(BookTold(decision))[0] == KeepState(state)
        assert not agent.is_alone


def test_then_it_asks_its_peers_and_proposes_what_follows_from_them() -> None:
    agent = silent(READY)
    assert agent.step(BookTold(NONE)) == [AskPeers()]
    assert agent.step(PeersTold((READY, ABORTED))) == [Decide(ABORT)]
    assert agent.step(Decided(COMMIT))[0] == KeepState(COMMITTED)  # somebody was first
    assert not agent.is_alone


def test_only_without_the_broker_it_decides_alone_and_says_so() -> None:
    agent = silent(READY)
    agent.step(BookTold(NONE, is_reachable=False))
    assert agent.step(PeersTold(())) == [
        TellAlone(ABORT),
        KeepState(ABORTED),
        CallBranch("a", Phase.ROLL_BACK),
    ]
    agent = silent(BEYOND, has_peers=False)
    assert agent.step(BookTold(NONE, is_reachable=False))[0] == TellAlone(COMMIT)
    agent = silent(READY)
    agent.step(BookTold(NONE))
    agent.step(PeersTold(()))
    assert agent.step(DecisionUnknown())[0] == TellAlone(ABORT)


def test_before_it_commits_peers_get_the_precommit_too() -> None:
    agent = silent(BEYOND)
    agent.step(BookTold(NONE, is_reachable=False))
    assert agent.step(PeersTold((READY, BEYOND))) == [AskPeers(pre_commit=True)]
    assert agent.step(PeersTold((BEYOND, BEYOND)))[0] == TellAlone(COMMIT)
    peer = ThreePhaseAgent("b", 5, READY)
    assert peer.step(PeerAsked("a", pre_commit=True)) == [
        KeepState(BEYOND),
        ReplyToPeer("a", BEYOND),
        Wait(5, "1"),
    ]


@pytest.mark.parametrize(
    ("own", "peers", "conclusion"),
    [
        (READY, (), ABORT),
        (READY, (READY,), ABORT),
        (READY, (READY, BEYOND), COMMIT),
        (READY, (COMMITTED,), COMMIT),
        (READY, (AgentState.INIT,), ABORT),
        (BEYOND, (), COMMIT),
        (BEYOND, (READY,), COMMIT),
        (BEYOND, (ABORTED, READY), ABORT),
        (BEYOND, (COMMITTED,), COMMIT),
    ],
)
def test_the_rule_of_termination(own: AgentState, peers: tuple[AgentState, ...], conclusion: object) -> None:
    assert concluded(own, peers) is conclusion


def test_who_is_asked_by_a_peer_before_his_vote_never_votes_yes() -> None:
    agent = ThreePhaseAgent("a", 5)
    assert agent.step(PeerAsked("b"))[:2] == [KeepState(ABORTED), ReplyToPeer("b", ABORTED)]
    assert agent.step(PhaseAsked(Phase.CAN_COMMIT)) == [
        reply(Phase.CAN_COMMIT, REFUSED, reason="it has aborted")
    ]


def test_an_agent_that_learns_that_others_decided_otherwise_tells_a_split() -> None:
    agent = silent(READY, has_peers=False)
    agent.step(BookTold(NONE, is_reachable=False))
    assert agent.step(PhaseAsked(Phase.DO_COMMIT)) == [
        TellSplit(ABORT, COMMIT),
        reply(Phase.DO_COMMIT, REFUSED, reason="it has decided abort alone"),
    ]
    assert agent.is_split


def test_a_message_that_comes_while_it_asks_makes_the_answers_stale() -> None:
    agent = silent(READY)
    agent.step(PhaseAsked(Phase.PRE_COMMIT))
    assert agent.step(BookTold(ABORT)) == []
    assert agent.state is BEYOND
