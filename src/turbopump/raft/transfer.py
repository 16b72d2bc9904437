"""Handing over the leadership: the side of the leader, and that of the member that takes it.

The leader sends a request and takes no appends until it is answered. The other member waits until it has the
leader's log, raises the term, asks for votes, and answers when it leads, or when it does not. A leader that
is not preferred looks every second for a preferred member that could lead.
"""

from dataclasses import dataclass

from turbopump.raft.effects import Role
from turbopump.raft.events import RequestId, Transfer
from turbopump.raft.leader import Leader
from turbopump.raft.member import RaftMember
from turbopump.raft.messages import NO_INDEX, MemberId, RaftCode, TransferAnswer, TransferRequest


@dataclass(frozen=True, slots=True)
class _Offer:
    """A request to another member that is not answered yet."""

    to_member: MemberId
    request: TransferRequest
    deadline_ms: int
    request_id: RequestId | None


class LeadershipOffer:
    """The leadership that this node offers to another member, one at a time."""

    def __init__(self, member: RaftMember) -> None:
        self._member = member
        self._offer: _Offer | None = None
        self._look_at_ms: int | None = None

    @property
    def to_member(self) -> MemberId | None:
        """Which member is asked to lead; None: none is, or this node does not lead any longer."""
        return self._offer.to_member if self._offer and self._member.role is Role.LEADER else None

    @property
    def deadline_ms(self) -> int | None:
        """When an offer has failed, or a preferred leader is looked for."""
        if self._offer is not None:
            return self._offer.deadline_ms
        return self._look_at_ms if self._is_not_preferred else None

    def requested(self, transfer: Transfer, leader: Leader | None) -> None:
        """Does what an operator wants, or refuses it."""
        code = self._refusal(transfer.to_member, leader)
        if code is not None:
            if transfer.request_id is not None:
                self._member.respond(transfer.request_id, TransferAnswer(code, self._member.term))
            return
        self._ask(transfer.to_member, transfer.request_id)

    def answered(self, request: TransferRequest, answer: TransferAnswer) -> None:
        """Takes in the answer of the member that was asked."""
        if self._offer is not None and self._offer.request == request:
            self._end(answer.code, answer.term)

    def unreachable(self, peer: MemberId) -> None:
        """Gives up when the member that was asked cannot be reached."""
        if self._offer is not None and self._offer.to_member == peer:
            self._end(RaftCode.TAKE_LEADERSHIP_FAILED, self._member.term)

    def led(self) -> None:
        """Begins to look for preferred leaders: this node leads now."""
        self._look_at_ms = self._member.now_ms + self._member.config.transfer_interval_ms

    def tick(self, leader: Leader | None) -> None:
        """Gives up an offer, or makes one to a preferred leader, if it is time."""
        now_ms = self._member.now_ms
        if self._offer is not None:
            if now_ms >= self._offer.deadline_ms:
                self._end(RaftCode.TAKE_LEADERSHIP_FAILED, self._member.term)
        elif leader is not None and self._is_not_preferred and now_ms >= (self._look_at_ms or 0):
            self._look_at_ms = now_ms + self._member.config.transfer_interval_ms
            for peer in self._member.config.preferred_leaders:
                if leader.follows(peer) and self._refusal(peer, leader) is None:
                    self._ask(peer, None)
                    return

    @property
    def _is_not_preferred(self) -> bool:
        config = self._member.config
        is_other = bool(config.preferred_leaders) and config.own_id not in config.preferred_leaders
        return is_other and self._member.role is Role.LEADER

    def _refusal(self, to_member: MemberId, leader: Leader | None) -> RaftCode | None:
        config = self._member.config
        if leader is None:
            return RaftCode.NOT_LEADER
        if to_member not in config.peers:
            return RaftCode.UNKNOWN_MEMBER if to_member != config.own_id else RaftCode.UNEXPECTED_ARGUMENT
        if self._offer is not None:
            return RaftCode.LEADER_TRANSFERRING
        if leader.lag_of(to_member) >= config.max_transfer_lag:
            return RaftCode.FALL_BEHIND_TOO_MUCH
        return None

    def _ask(self, to_member: MemberId, request_id: RequestId | None) -> None:
        member = self._member
        request = TransferRequest(member.term, member.config.own_id, to_member, member.log.end_index)
        deadline_ms = member.now_ms + member.config.transfer_timeout_ms
        self._offer = _Offer(to_member, request, deadline_ms, request_id)
        member.send(to_member, request)

    def _end(self, code: RaftCode, term: int) -> None:
        assert self._offer is not None
        if self._offer.request_id is not None:
            self._member.respond(self._offer.request_id, TransferAnswer(code, term))
        self._offer = None


@dataclass(frozen=True, slots=True)
class _Takeover:
    request_id: RequestId
    request: TransferRequest
    deadline_ms: int


class LeadershipTakeover:
    """The leadership that this node was asked to take, and the answer that it owes."""

    def __init__(self, member: RaftMember) -> None:
        self._member = member
        self._takeover: _Takeover | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When the leader is told that it did not work."""
        return self._takeover.deadline_ms if self._takeover else None

    def requested(self, request_id: RequestId, request: TransferRequest) -> None:
        """Prepares to lead, or refuses."""
        member = self._member
        if member.role is not Role.FOLLOWER or member.leader != request.from_member:
            member.respond(request_id, TransferAnswer(RaftCode.INCONSISTENT_LEADER, member.term))
        elif request.term != member.term:
            member.respond(request_id, TransferAnswer(RaftCode.INCONSISTENT_TERM, member.term))
        elif not (member.joined and member.is_eligible):
            member.respond(request_id, TransferAnswer(RaftCode.TAKE_LEADERSHIP_FAILED, member.term))
        else:
            self._end(RaftCode.TAKE_LEADERSHIP_FAILED)  # of an earlier request
            deadline_ms = member.now_ms + member.config.transfer_timeout_ms
            self._takeover = _Takeover(request_id, request, deadline_ms)
            member.taking_term = request.term + 1

    def is_due(self, verified_index: int | None) -> bool:
        """Whether this follower has the leader's log and shall ask for votes now."""
        takeover = self._takeover
        if takeover is None or self._member.term != takeover.request.term:
            return False
        if not self._member.is_eligible:
            return False
        if takeover.request.take_index == NO_INDEX:
            return True  # an Apache leader with an empty log compares nothing
        return verified_index is not None and verified_index >= takeover.request.take_index

    def check(self) -> None:
        """Answers the leader when it is known who leads, or when time is over."""
        member, takeover = self._member, self._takeover
        if takeover is None:
            return
        target = takeover.request.term + 1
        # It follows its leader until it has the log, and is a candidate after that.
        expected = Role.FOLLOWER if member.term < target else Role.CANDIDATE
        if member.term > target:
            self._end(RaftCode.EXPIRED_TERM)
        elif member.term == target and member.role is Role.LEADER:
            self._end(RaftCode.SUCCESS)
        elif member.role is not expected or member.now_ms >= takeover.deadline_ms:
            self._end(RaftCode.TAKE_LEADERSHIP_FAILED)

    def _end(self, code: RaftCode) -> None:
        if self._takeover is not None:
            self._member.respond(self._takeover.request_id, TransferAnswer(code, self._member.term))
        self._takeover = None
        self._member.taking_term = None
