"""A member of a group: events in, effects out. No socket, no file, no clock.

    node = Node(config, saved, log, chance)
    for effect in node.step(now_ms, Received(7, "n1", Heartbeat(term=1))):
        ...

The driver calls `step` with whatever happens, performs the effects in their order (see `effects.py`), and
calls it with a `Tick` when `deadline_ms` has come, the first time at once.
"""

import random
from collections.abc import Mapping

from msgspec.structs import replace

from turbopump.raft import votes
from turbopump.raft.candidate import Candidate
from turbopump.raft.config import NodeConfig, SavedState
from turbopump.raft.effects import Effect, Role
from turbopump.raft.events import (
    Answered,
    Appended,
    Eligible,
    Event,
    PeerTakesBatches,
    PeerUnreachable,
    Received,
    RequestId,
    Synced,
    Tick,
    Transfer,
)
from turbopump.raft.follower import Follower
from turbopump.raft.incoming_pushes import answer_to
from turbopump.raft.leader import Leader
from turbopump.raft.log_view import LogView
from turbopump.raft.member import RaftMember
from turbopump.raft.messages import (
    NO_TERM,
    Heartbeat,
    HeartbeatAnswer,
    IncomingRequest,
    MemberId,
    OutgoingRequest,
    PeerAnswer,
    Push,
    PushAnswer,
    PushOrder,
    RaftCode,
    TransferAnswer,
    TransferRequest,
    VoteAnswer,
    VoteRequest,
    VoteResult,
)
from turbopump.raft.newcomer import Newcomer
from turbopump.raft.progress import FollowerProgress
from turbopump.raft.roles import Roles
from turbopump.raft.transfer import LeadershipOffer, LeadershipTakeover


class Node:
    """One member of a group that agrees on a log."""

    def __init__(self, config: NodeConfig, saved: SavedState, log: LogView, chance: random.Random) -> None:
        self._member = member = RaftMember(config, saved, log, chance)
        self._roles = Roles(member)
        self._newcomer = Newcomer(member)
        self._offer = LeadershipOffer(member)
        self._takeover = LeadershipTakeover(member)
        self._is_started = False

    # what a driver may ask

    @property
    def role(self) -> Role:
        """What the node does in its group."""
        return self._member.role

    @property
    def term(self) -> int:
        """The latest term that the node knows."""
        return self._member.term

    @property
    def voted_for(self) -> MemberId | None:
        """Whom the node has voted for in its term."""
        return self._member.voted_for

    @property
    def leader(self) -> MemberId | None:
        """Who leads in this term, as far as the node knows."""
        return self._member.leader

    @property
    def committed_index(self) -> int:
        """Everything up to here is committed; -1 before the first commit."""
        return self._member.committed_index

    @property
    def joined(self) -> bool:
        """Whether the node may vote (see `newcomer.py`)."""
        return self._member.joined

    @property
    def transferring_to(self) -> MemberId | None:
        """Whom this leader is giving the leadership; it takes no appends meanwhile."""
        return self._offer.to_member

    @property
    def followers(self) -> Mapping[MemberId, FollowerProgress]:
        """How far the followers of this leader are; empty when it does not lead."""
        return self._roles.leader.followers if self._roles.leader else {}

    @property
    def deadline_ms(self) -> int:
        """When the node wants its next `Tick`; 0 before the first step."""
        if not self._is_started:
            return 0
        deadlines = [self._roles.present.deadline_ms, self._offer.deadline_ms, self._takeover.deadline_ms]
        if not self._member.joined:
            deadlines.append(self._newcomer.deadline_ms)
        return min(deadline for deadline in deadlines if deadline is not None)

    # events

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Takes in one event, and returns what is to be done about it, in order."""
        member = self._member
        member.now_ms, member.effects = now_ms, []
        if not self._is_started:
            self._start()
        match event:
            case Tick():
                self._tick()
            case Received(request_id, sender, request):
                self._received(request_id, sender, request)
            case Answered(sender, request, answer):
                self._answered(sender, request, answer)
            case Appended():
                self._appended()
            case Synced():
                self._synced()
            case PeerUnreachable(peer):
                self._unreachable(peer)
            case PeerTakesBatches(peer, takes):
                self._takes_batches(peer, takes)
            case Transfer():
                self._offer.requested(event, self._roles.leader)
            case Eligible(is_eligible):
                self._member.is_eligible = is_eligible
        self._after_event()
        return member.effects

    def _start(self) -> None:
        self._is_started = True
        member = self._member
        is_alone = len(member.config.members) == 1
        member.joined = member.joined or is_alone
        wait_ms = 0 if is_alone else member.vote_wait_ms()
        self._roles.stand(wait_ms)

    def _tick(self) -> None:
        if not self._member.joined:
            self._newcomer.tick()
        self._offer.tick(self._roles.leader)
        match self._roles.present:
            case Candidate() as candidate:
                self._lead_if(candidate.tick())
            case Follower() as follower:
                if follower.tick():
                    self._roles.stand()
            case Leader() as leader:
                self._step_down_if(leader.tick())

    def _appended(self) -> None:
        if self._roles.leader is not None:
            self._roles.leader.appended()

    def _synced(self) -> None:
        match self._roles.present:
            case Leader() as leader:
                leader.synced()
            case Follower() as follower:
                follower.pushes.synced()

    def _after_event(self) -> None:
        """Does what may have become possible, whatever the event was."""
        verified = self._roles.follower.pushes.verified_index if self._roles.follower else None
        if not self._member.joined and self._newcomer.join_if_possible(verified):
            self._roles.stand(self._member.vote_wait_ms())
        elif self._takeover.is_due(verified):
            self._roles.enter(self._member.term + 1, wait_ms=0)
            self._tick()
        self._takeover.check()

    # requests

    def _received(self, request_id: RequestId, sender: MemberId, request: IncomingRequest) -> None:
        match request:
            case VoteRequest():
                self._vote_requested(request_id, sender, request)
            case Heartbeat():
                self._member.respond(request_id, self._heard(sender, request))
            case Push():
                self._pushed(request_id, sender, request)
            case TransferRequest() if request.from_member == self._member.config.own_id:
                self._offer.requested(Transfer(request.to_member, request_id), self._roles.leader)
            case TransferRequest() if request.to_member == self._member.config.own_id:
                self._takeover.requested(request_id, request)
            case TransferRequest():
                answer = TransferAnswer(RaftCode.UNEXPECTED_ARGUMENT, self._member.term)
                self._member.respond(request_id, answer)

    def _vote_requested(self, request_id: RequestId, candidate: MemberId, request: VoteRequest) -> None:
        member = self._member
        if candidate == member.config.own_id:
            result = VoteResult.REJECT_UNEXPECTED_LEADER
        else:
            result = votes.decide(member, candidate, request)
        answer = VoteAnswer(member.term, result)
        if result is VoteResult.REJECT_TERM_NOT_READY:
            self._roles.enter(request.term)
        elif result is VoteResult.ACCEPT:
            member.vote_for(candidate)
        member.respond(request_id, answer)

    def _heard(self, sender: MemberId, heartbeat: Heartbeat) -> HeartbeatAnswer:
        member = self._member
        if refusal := self._refusal(sender, heartbeat.term):
            return HeartbeatAnswer(refusal, member.term)
        if heartbeat.term > member.term:
            self._roles.enter(heartbeat.term)
            return HeartbeatAnswer(RaftCode.TERM_NOT_READY)
        follower = self._roles.follow(sender) if member.leader is None else self._roles.follower
        if follower is None or member.leader != sender:
            return HeartbeatAnswer(RaftCode.INCONSISTENT_LEADER)
        follower.heard()
        return HeartbeatAnswer(RaftCode.SUCCESS)

    def _pushed(self, request_id: RequestId, sender: MemberId, push: Push) -> None:
        member = self._member
        if refusal := self._refusal(sender, push.term):
            member.respond(request_id, replace(answer_to(member, push, refusal), term=member.term))
            return
        if push.term > member.term:
            self._roles.enter(push.term)
        follower = self._roles.follower
        if follower is None:
            member.respond(request_id, answer_to(member, push, RaftCode.NOT_FOLLOWER))
        elif member.leader != sender:
            member.respond(request_id, answer_to(member, push, RaftCode.INCONSISTENT_LEADER))
        elif member.joined:
            follower.pushes.received(request_id, push)
        else:
            self._newcomer.pushed(push)
            if self._newcomer.may_acknowledge:
                follower.pushes.received(request_id, push)
            else:
                member.respond(request_id, answer_to(member, push, RaftCode.NOT_FOLLOWER))

    def _refusal(self, sender: MemberId, term: int) -> RaftCode | None:
        """Returns why a leader's request is not listened to; None: it is."""
        if sender not in self._member.config.members:
            return RaftCode.UNKNOWN_MEMBER
        if sender == self._member.config.own_id:
            return RaftCode.UNEXPECTED_MEMBER
        return RaftCode.EXPIRED_TERM if term < self._member.term else None

    # answers

    def _answered(self, sender: MemberId, request: OutgoingRequest, answer: PeerAnswer) -> None:
        match request, answer, self._roles.present:
            case TransferRequest(), TransferAnswer(), _:
                self._offer.answered(request, answer)
            case VoteRequest(term=term), VoteAnswer(), _ if term == NO_TERM:
                self._newcomer.answered(sender, answer)
            case VoteRequest(), VoteAnswer(), Candidate() as candidate:
                self._lead_if(candidate.answered(sender, request, answer))
            case Heartbeat(term), HeartbeatAnswer(), Leader() as leader if term == self._member.term:
                self._step_down_if(leader.heartbeat_answered(sender, answer))
            case PushOrder(term=term), PushAnswer(), Leader() as leader if term == self._member.term:
                self._step_down_if(leader.push_answered(sender, request, answer))

    def _unreachable(self, peer: MemberId) -> None:
        self._offer.unreachable(peer)
        match self._roles.present:
            case Candidate() as candidate:
                self._lead_if(candidate.unreachable(peer))
            case Leader() as leader:
                leader.unreachable(peer)

    def _takes_batches(self, peer: MemberId, takes: bool) -> None:
        peers = self._roles.batch_peers
        self._roles.batch_peers = peers | {peer} if takes else peers - {peer}
        if self._roles.leader is not None:
            self._roles.leader.followers[peer].takes_batches = takes

    def _lead_if(self, has_won: bool) -> None:
        if has_won:
            self._offer.led()
            self._roles.lead()

    def _step_down_if(self, term: int | None) -> None:
        if term is not None:
            self._roles.step_down(term)
