"""The network between members: delays, losses, repetitions, partitions in one or both ways.

Messages overtake one another freely. What is on its way to a process that ends is lost with its connection.
"""

from typing import TYPE_CHECKING

from tests.simulation.raft.history import Note, describe

from turbopump.raft import PeerUnreachable
from turbopump.raft.messages import (
    Heartbeat,
    IncomingRequest,
    MemberId,
    OutgoingRequest,
    PeerAnswer,
    Push,
    PushOrder,
    TransferRequest,
    VoteRequest,
)

if TYPE_CHECKING:
    from tests.simulation.raft.member import Member
    from tests.simulation.raft.world import World

REFUSED_SHARE = 0.7
"""How often the sender learns that a message could not be delivered."""
TOOL = "tool"
"""Sender of requests that no member sent."""


class Network:
    """Carries requests and their answers."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = world.chance.random
        plan = world.plan
        self.drop, self.duplicate, self.slow = plan.drop, plan.duplicate, plan.slow
        self._delay_ms, self._slow_delay_ms = plan.delay_ms, plan.slow_delay_ms
        self.cut: set[tuple[MemberId, MemberId]] = set()
        """Ways, each in one direction, that nothing passes."""

    def send(self, source: "Member", to: MemberId, request: OutgoingRequest) -> None:
        """Sends a request; entries are read from the log now."""
        target = self._world.members[to]
        incoming = _incoming(source, request)
        if self._world.is_traced:
            self._trace(f"{source.name} → {to} {describe(incoming)}")
        copies = 2 if self.duplicate and self._random() < self.duplicate else 1
        for _ in range(copies):
            self._world.at(
                self._arrival(), self._arrive, source, source.life, target, target.life, request, incoming
            )

    def answer(
        self, source: "Member", to: MemberId, to_life: int, request: OutgoingRequest, answer: PeerAnswer
    ) -> None:
        """Carries an answer back to the process that asked."""
        if to == TOOL:
            return
        target = self._world.members[to]
        if self._world.is_traced:
            self._trace(f"{source.name} ⇢ {to} {describe(answer)}")
        self._world.at(self._arrival(), self._arrive_answer, source.name, target, to_life, request, answer)

    def stopped(self, member: "Member") -> None:
        """Tells the others, mostly, that connections to a process ended."""
        for peer in self._world.members.values():
            if peer is not member and self._random() < REFUSED_SHARE:
                self._world.at(self._arrival(), peer.do, peer.event, PeerUnreachable(member.name))

    def _arrival(self) -> float:
        draw = self._random()
        delay = self._delay_ms * (0.1 + draw)
        if self.slow and self._random() < self.slow:
            delay += self._slow_delay_ms * draw
        return self._world.now + delay

    def _is_lost(self, source: MemberId, target: MemberId) -> bool:
        return (source, target) in self.cut or (self.drop > 0 and self._random() < self.drop)

    def _arrive(
        self,
        source: "Member",
        source_life: int,
        target: "Member",
        target_life: int,
        request: OutgoingRequest,
        incoming: IncomingRequest,
    ) -> None:
        is_refused = target.node is None or target.life != target_life
        if not is_refused and not self._is_lost(source.name, target.name):
            target.do(target.receive, source.name, source_life, request, incoming)
            return
        if self._world.is_traced:
            self._trace(f"{source.name} ↛ {target.name} {describe(incoming)}")
        if source.life == source_life and self._random() < (REFUSED_SHARE if is_refused else 0.1):
            source.do(source.event, PeerUnreachable(target.name))

    def _arrive_answer(
        self,
        source: MemberId,
        target: "Member",
        target_life: int,
        request: OutgoingRequest,
        answer: PeerAnswer,
    ) -> None:
        if target.life != target_life:
            return
        if self._is_lost(source, target.name):
            if self._world.is_traced:
                self._trace(f"{source} ⇸ {target.name} {describe(answer)}")
            return
        if self._world.is_traced:
            self._trace(f"{target.name} hears {source}: {describe(answer)}")
        target.do(target.answered, source, request, answer)

    def _trace(self, text: str) -> None:
        self._world.note(Note(self._world.now, text))


def _incoming(source: "Member", request: OutgoingRequest) -> IncomingRequest:
    if type(request) is PushOrder:
        log = source.disk.log
        entries = log.read(request.first_index, request.last_index) if request.first_index >= 0 else ()
        return Push(request.kind, request.term, entries, request.commit_index)
    if type(request) is VoteRequest:  # the round is not on the wire
        return VoteRequest(request.term, request.end_index, request.end_term)
    assert isinstance(request, Heartbeat | TransferRequest)
    return request
