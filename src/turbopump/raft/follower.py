"""A follower: hears heartbeats, takes pushes, and looks for another leader when its own is silent."""

from turbopump.raft.effects import Role
from turbopump.raft.incoming_pushes import IncomingPushes
from turbopump.raft.member import RaftMember
from turbopump.raft.messages import MemberId


class Follower:
    """A node that follows the leader of its term."""

    def __init__(self, member: RaftMember) -> None:
        self._member = member
        self._heard_ms = member.now_ms
        self.pushes = IncomingPushes(member)

    def heard(self) -> None:
        """Notes a heartbeat of the leader."""
        self._heard_ms = self._member.now_ms

    def tick(self) -> bool:
        """Does what is due; returns True when the leader has been silent for too long."""
        self.pushes.tick()
        return self._member.now_ms >= self._silence_ends_ms

    @property
    def deadline_ms(self) -> int:
        """When the next thing is due."""
        gap_ends_ms = self.pushes.deadline_ms
        return self._silence_ends_ms if gap_ends_ms is None else min(self._silence_ends_ms, gap_ends_ms)

    @property
    def _silence_ends_ms(self) -> int:
        return self._heard_ms + self._member.config.leader_timeout_ms + 1


def become_follower(member: RaftMember, leader: MemberId) -> Follower:
    """Makes the node a follower of the leader of the present term."""
    member.role, member.leader = Role.FOLLOWER, leader
    member.announce()
    return Follower(member)
