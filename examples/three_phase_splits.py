"""Three-phase commit does not block, and pays for it: in a network that is cut in two it can decide twice.

Three banks have voted Yes. The coordinator sends PreCommit, which has reached `a` when the network is cut:
on one side `a`, on the other `b`, `c` and the broker (TC). Nobody waits for ever, so each side decides.
"""

from turbopump.protocol.global_transactions import GlobalDecision
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Decide,
    Decided,
    Due,
    Phase,
    Wait,
)
from turbopump.transactions.distributed.three_phase_agent import (
    AgentAction,
    AgentEvent,
    AskBook,
    AskPeers,
    BookTold,
    PeerAsked,
    PeersTold,
    PhaseAsked,
    TellAlone,
    ThreePhaseAgent,
)

agents = {name: ThreePhaseAgent(name, timeout_s=1.0) for name in "abc"}
reachable = {"a": "abc", "b": "abc", "c": "abc"}
book: dict[str, GlobalDecision] = {}
timers: dict[str, str] = {}


def happens(name: str, event: AgentEvent) -> None:
    for action in agents[name].step(event):
        carry_out(name, action)


def carry_out(name: str, action: AgentAction) -> None:
    """Does what an agent wants: calls its database, asks the TC and those of its peers that it can reach."""
    match action:
        case CallBranch(branch, phase):
            happens(name, BranchAnswered(branch, phase, BranchVerdict.DONE))
        case Wait(_, of):
            timers[name] = of
        case AskBook():
            happens(name, asked_book(name))
        case AskPeers(pre_commit):
            peers = [peer for peer in reachable[name] if peer != name]
            for peer in peers:
                happens(peer, PeerAsked(name, pre_commit))
            happens(name, PeersTold(tuple(agents[peer].state for peer in peers)))
        case Decide(decision):
            happens(name, Decided(book.setdefault("gid", decision)))
        case TellAlone(decision):
            print(f"{name} cannot reach the TC and decides alone: {decision}")


def asked_book(name: str) -> BookTold:
    """The broker is on the side of `c`."""
    if "c" not in reachable[name]:
        return BookTold(GlobalDecision.NONE, is_reachable=False)
    return BookTold(book.get("gid", GlobalDecision.NONE))


for name in agents:
    happens(name, PhaseAsked(Phase.CAN_COMMIT))
print("CanCommit:", *(f"{name} {agent.state}" for name, agent in agents.items()))
happens("a", PhaseAsked(Phase.PRE_COMMIT))
print("PreCommit:", *(f"{name} {agent.state}" for name, agent in agents.items()))

reachable = {"a": "a", "b": "bc", "c": "bc"}
print("the network is cut: a | b c TC")
for name in ("b", "a", "c"):
    happens(name, Due(timers[name]))  # nothing has come for a second
print("after the timeouts:", *(f"{name} {agent.state}" for name, agent in agents.items()))

reachable = dict.fromkeys("abc", "abc")
happens("a", PhaseAsked(Phase.DO_ABORT))
print(f"the network is whole again: the TC says {book['gid']}, but a has {agents['a'].state}:", end=" ")
print("SPLIT" if agents["a"].is_split else "equal")
