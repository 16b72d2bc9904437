"""A node under test: its log in memory, its effects performed, and what it said."""

import random
from typing import Any, TypeVar

from tests.unit.raft.memory_log import MemoryLog, entry

from turbopump.raft import (
    Answered,
    Appended,
    AppendEntries,
    AppendNoOp,
    Effect,
    Event,
    Node,
    NodeConfig,
    Received,
    Respond,
    Role,
    Save,
    SavedState,
    Send,
    Synced,
    Tick,
    Truncate,
)
from turbopump.raft.messages import (
    Heartbeat,
    IncomingRequest,
    OutgoingRequest,
    PeerAnswer,
    Push,
    PushAnswer,
    PushedEntry,
    PushKind,
    RaftCode,
    VoteAnswer,
    VoteRequest,
    VoteResult,
)

Kind = TypeVar("Kind", bound=Effect)
MEMBERS = ("n0", "n1", "n2")


class OneNode:
    """The node `n0` of a group, with a driver that syncs at once unless told otherwise."""

    def __init__(
        self,
        terms: list[int] | None = None,
        saved: SavedState | None = None,
        *,
        first: int = 0,
        members: tuple[str, ...] = MEMBERS,
        syncs: bool = True,
        **settings: Any,
    ) -> None:
        settings.setdefault("min_vote_wait_ms", 500)
        settings.setdefault("max_vote_wait_ms", 500)
        self.log = MemoryLog(terms, first)
        self.syncs = syncs
        self.now = 0
        self.effects: list[Effect] = []
        saved = saved or SavedState(term=max(terms or [0]))
        self.node = Node(NodeConfig("n0", members, **settings), saved, self.log, random.Random(1))
        self._requests = 0
        self.step(Tick())

    # events

    def step(self, event: Event) -> list[Effect]:
        """Gives an event to the node, performs what it wants done to its log, and returns the effects."""
        effects = self.node.step(self.now, event)
        self.effects += effects
        follow_ups: list[Event] = []
        for effect in effects:
            match effect:
                case Truncate(after_index, replacement):
                    self.log.truncate(after_index, replacement)
                    follow_ups += [Synced(0)] if replacement else []
                case AppendEntries(entries):
                    for new in entries:
                        self.log.append(new)
                    follow_ups.append(Synced(0))
                case AppendNoOp():
                    follow_ups.append(self._appended(1))
        for follow_up in follow_ups:
            if isinstance(follow_up, Synced):
                effects = effects + self.sync() if self.syncs else effects
            else:
                effects = effects + self.step(follow_up) + (self.sync() if self.syncs else [])
        return effects

    def tick(self, duration_ms: int) -> list[Effect]:
        """Lets time pass, tick by tick; returns all effects."""
        end, effects = self.now + duration_ms, []
        while self.node.deadline_ms <= end:
            self.now = max(self.now, self.node.deadline_ms)
            effects += self.step(Tick())
        self.now = end
        return effects

    def receive(self, sender: str, request: IncomingRequest) -> Any:
        """Gives a request to the node and returns its answer; None when it is not answered yet."""
        self._requests += 1
        return answer_in(self.step(Received(self._requests, sender, request)), self._requests)

    def answer(self, sender: str, request: OutgoingRequest, answer: PeerAnswer) -> list[Effect]:
        """Gives the answer of a peer to the node."""
        return self.step(Answered(sender, request, answer))

    def append(self, count: int = 1) -> list[Effect]:
        """Appends entries as the leader's broker does."""
        effects = self.step(self._appended(count))
        return effects + self.sync() if self.syncs else effects

    def _appended(self, count: int) -> Appended:
        for _ in range(count):
            self.log.append(entry(self.log.end_index + 1, self.node.term, "own"))
        return Appended(self.log.end_index)

    def sync(self) -> list[Effect]:
        """Makes the log safe, and says so."""
        self.log.sync()
        return self.step(Synced(self.log.end_index))

    # shortcuts

    def follow(self, leader: str = "n1", term: int | None = None) -> "OneNode":
        """Makes the node a follower."""
        term = self.node.term if term is None else term
        if term > self.node.term:
            self.receive(leader, Heartbeat(term))
        assert self.receive(leader, Heartbeat(term)).code is RaftCode.SUCCESS
        return self

    def lead(self) -> "OneNode":
        """Makes the node a leader by the votes of all."""
        asked = sent(self.tick(self.node.deadline_ms - self.now), VoteRequest)
        for _ in range(3):
            for peer, request in asked:
                if self.node.role is not Role.LEADER:
                    vote = VoteAnswer(self.node.term, VoteResult.ACCEPT)
                    asked = sent(self.answer(peer, request, vote), VoteRequest) or asked
        assert self.node.role is Role.LEADER
        return self

    def push(self, kind: PushKind, *entries: PushedEntry, commit: int = -1, sender: str = "n1") -> Any:
        """Gives a push of the leader to the node and returns its answer."""
        return self.receive(sender, Push(kind, self.node.term, entries, commit))


def sent(effects: list[Effect], kind: type) -> list[tuple[str, Any]]:
    """Requests of a kind that were sent, with the peers to which."""
    return [
        (effect.to, effect.request)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.request, kind)
    ]


def only(effects: list[Effect], kind: type[Kind]) -> list[Kind]:
    """Effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def answer_in(effects: list[Effect], request_id: int) -> Any:
    """The answer to a request among effects; None: there is none."""
    return next((e.answer for e in effects if isinstance(e, Respond) and e.request_id == request_id), None)


def saves_before_answers(effects: list[Effect]) -> bool:
    """Whether a save comes before the first answer or request."""
    kinds = [type(effect) for effect in effects if isinstance(effect, Save | Respond | Send)]
    return Save in kinds and kinds[0] is Save


def accepted(index: int, end: int | None = None, begin: int = 0, term: int = 0, count: int = 1) -> PushAnswer:
    """A follower's success."""
    return PushAnswer(RaftCode.SUCCESS, term, index, count, begin, index if end is None else end)


def refused(code: RaftCode, index: int, begin: int = -1, end: int = -1, term: int = 0) -> PushAnswer:
    """A follower's refusal."""
    return PushAnswer(code, term, index, 1, begin, end)
