"""A leader: heartbeats, a progress for each follower, and the commit index.

An entry is committed when a majority holds it safely and it, or one behind it, is of the leader's own term:
entries of earlier terms may be held by a majority and still be overwritten (Raft, figure 8). A new leader
therefore appends an entry at once.
"""

from collections.abc import Collection
from dataclasses import dataclass

from turbopump.raft.effects import AppendNoOp, Role
from turbopump.raft.member import RaftMember
from turbopump.raft.messages import (
    Heartbeat,
    HeartbeatAnswer,
    MemberId,
    PushAnswer,
    PushKind,
    PushOrder,
    RaftCode,
)
from turbopump.raft.progress import FollowerProgress


@dataclass(slots=True)
class _Contact:
    """When a peer was asked for a sign of life, and when it gave one."""

    beat_at_ms: int
    heard_ms: int
    has_answered: bool = False


class Leader:
    """The leader of a term.

    Methods return a term when the node must not lead any longer: the present one, or a later one.
    """

    def __init__(self, member: RaftMember, first_own_index: int, batch_peers: Collection[MemberId]) -> None:
        self._member = member
        self._first_own_index = first_own_index
        self._contacts = {peer: _Contact(member.now_ms, member.now_ms) for peer in member.config.peers}
        self.followers = {
            peer: FollowerProgress(member, peer, first_own_index, peer in batch_peers)
            for peer in member.config.peers
        }

    def start(self) -> None:
        """Tells everybody who leads, and begins to compare logs."""
        if self._member.log.end_term < self._member.term:
            self._member.effects.append(AppendNoOp(self._member.term))
        self._send_heartbeats()
        for follower in self.followers.values():
            follower.advance()
        self._commit()

    def tick(self) -> int | None:
        """Does what is due; returns the present term when a majority has been silent for too long."""
        if self._member.now_ms >= self._majority_lost_ms:
            return self._member.term
        self._send_heartbeats()
        for follower in self.followers.values():
            follower.tick()
        return None

    @property
    def deadline_ms(self) -> int:
        """When the next thing is due."""
        deadlines = [self._majority_lost_ms]
        deadlines += [contact.beat_at_ms for contact in self._contacts.values()]
        deadlines += [
            follower.deadline_ms for follower in self.followers.values() if follower.deadline_ms is not None
        ]
        return min(deadlines)

    # the own log

    def appended(self) -> None:
        """Pushes the entries that were appended to the own log."""
        for follower in self.followers.values():
            follower.advance()
        self._commit()

    def synced(self) -> None:
        """Counts the own log as one that holds entries safely."""
        self._commit()

    # answers

    def heartbeat_answered(self, peer: MemberId, answer: HeartbeatAnswer) -> int | None:
        """Takes in the answer to a heartbeat of this term."""
        contact, now_ms = self._contacts[peer], self._member.now_ms
        if answer.code is RaftCode.SUCCESS:
            contact.heard_ms, contact.has_answered = now_ms, True
        elif answer.code is RaftCode.TERM_NOT_READY:
            contact.beat_at_ms = min(contact.beat_at_ms, now_ms + self._member.config.not_ready_wait_ms)
        elif answer.code is RaftCode.INCONSISTENT_LEADER:
            return self._member.term
        elif answer.code is RaftCode.EXPIRED_TERM and answer.term > self._member.term:
            return answer.term
        return None

    def push_answered(self, peer: MemberId, order: PushOrder, answer: PushAnswer) -> int | None:
        """Takes in the answer to a push of this term."""
        if answer.code is RaftCode.EXPIRED_TERM and answer.term > self._member.term:
            return answer.term
        self.followers[peer].answered(order, answer)
        self._commit()
        return None

    def unreachable(self, peer: MemberId) -> None:
        """Waits before it pushes to this peer again."""
        self.followers[peer].unreachable()

    # who is there

    def lag_of(self, peer: MemberId) -> int:
        """Returns how many entries of the leader's log a follower has not acknowledged."""
        return self._member.log.end_index - self.followers[peer].match_index

    def follows(self, peer: MemberId) -> bool:
        """Whether a peer answers heartbeats, and takes entries."""
        contact, interval_ms = self._contacts[peer], self._member.config.heartbeat_interval_ms
        is_alive = contact.has_answered and self._member.now_ms - contact.heard_ms < 2 * interval_ms
        return is_alive and self.followers[peer].stage is PushKind.APPEND

    @property
    def _majority_lost_ms(self) -> int:
        """When a majority, this node included, will have been silent for too long."""
        heard = sorted((contact.heard_ms for contact in self._contacts.values()), reverse=True)
        needed = self._member.config.quorum - 1
        last_ms = heard[needed - 1] if needed else self._member.now_ms
        return last_ms + self._member.config.leader_timeout_ms + 1

    def _send_heartbeats(self) -> None:
        for peer, contact in self._contacts.items():
            if self._member.now_ms >= contact.beat_at_ms:
                contact.beat_at_ms = self._member.now_ms + self._member.config.heartbeat_interval_ms
                self._member.send(peer, Heartbeat(self._member.term))

    def _commit(self) -> None:
        held = [follower.match_index for follower in self.followers.values()]
        held = sorted([*held, self._member.log.synced_index], reverse=True)
        index = held[self._member.config.quorum - 1]
        if index >= self._first_own_index:
            self._member.commit(index)


def become_leader(member: RaftMember, first_own_index: int, batch_peers: Collection[MemberId]) -> Leader:
    """Makes the node the leader of the present term."""
    member.role, member.leader = Role.LEADER, member.config.own_id
    member.announce()
    return Leader(member, first_own_index, batch_peers)
