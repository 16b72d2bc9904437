"""Which role a node has, and how it comes to another one.

candidate  ── a majority of votes ─────────────► leader
candidate  ── heartbeat of its term ───────────► follower
follower   ── silence of three heartbeats ─────► candidate of the same term
leader     ── silence of a majority ───────────► candidate of the same term
any        ── a later term is seen ────────────► candidate of that term
"""

from turbopump.raft.candidate import Candidate, become_candidate
from turbopump.raft.follower import Follower, become_follower
from turbopump.raft.leader import Leader, become_leader
from turbopump.raft.member import RaftMember
from turbopump.raft.messages import NO_INDEX, MemberId


class Roles:
    """The role of a node, one at a time."""

    def __init__(self, member: RaftMember) -> None:
        self._member = member
        self.present: Candidate | Follower | Leader = Candidate(member, vote_at_ms=0)
        self.batch_peers: set[MemberId] = set()
        self._first_own_index = NO_INDEX  # of the last term in which this node has led

    @property
    def leader(self) -> Leader | None:
        """The role, if it is that of the leader."""
        return self.present if isinstance(self.present, Leader) else None

    @property
    def follower(self) -> Follower | None:
        """The role, if it is that of a follower."""
        return self.present if isinstance(self.present, Follower) else None

    def stand(self, wait_ms: int = 0) -> None:
        """Becomes a candidate of the present term, who asks for votes after a wait."""
        self._become(become_candidate(self._member, self._member.now_ms + wait_ms))

    def enter(self, term: int, wait_ms: int | None = None) -> None:
        """Becomes a candidate of a later term; by chance it waits as long as before any vote."""
        self._member.enter_term(term)
        self.stand(self._member.vote_wait_ms() if wait_ms is None else wait_ms)

    def follow(self, leader: MemberId) -> Follower:
        """Becomes a follower of the leader of the present term."""
        follower = become_follower(self._member, leader)
        self._become(follower)
        return follower

    def lead(self) -> None:
        """Becomes the leader of the present term."""
        member = self._member
        if member.led_term != member.term:
            member.led_term, self._first_own_index = member.term, member.log.end_index + 1
        leader = become_leader(member, self._first_own_index, self.batch_peers)
        self._become(leader)
        leader.start()

    def step_down(self, term: int) -> None:
        """Becomes a candidate: a majority is silent, or a later term was seen."""
        if term > self._member.term:
            self.enter(term)
        else:
            self.stand()

    def _become(self, role: Candidate | Follower | Leader) -> None:
        if isinstance(self.present, Follower):
            self.present.pushes.stop()
        self.present = role
