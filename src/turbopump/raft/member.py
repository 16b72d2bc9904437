"""What all roles of a node share: its term, its vote, its log, and the effects of the present step.

A change of term or vote is saved before anything is sent because of it: `save` is called where the change is
made, and effects are performed in order.
"""

import random

from turbopump.raft.config import NodeConfig, SavedState
from turbopump.raft.effects import Commit, Effect, Respond, Role, RoleChanged, Save, Send
from turbopump.raft.events import RequestId
from turbopump.raft.log_view import LogView
from turbopump.raft.messages import MemberId, OutgoingRequest, PeerAnswer


class RaftMember:
    """State of a node that outlives its roles."""

    def __init__(self, config: NodeConfig, saved: SavedState, log: LogView, chance: random.Random) -> None:
        self.config = config
        self.log = log
        self.chance = chance
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.role = Role.CANDIDATE
        self.leader: MemberId | None = None
        self.voted_for = saved.voted_for if saved.term >= log.end_term else None
        self.term = max(saved.term, log.end_term)
        # A log of a later term than the one on disk: the vote in that term was lost.
        self.joined = saved.joined and saved.term >= log.end_term
        self.committed_index = min(saved.committed_index, log.end_index)
        self.is_eligible = True
        """Whether this node may lead; False: it could not serve."""
        self.vote_round = 0
        self.taking_term: int | None = None
        """The term in which this node was asked to take the leadership."""
        self.term_of_earlier_life = saved.term if saved.voted_for == config.own_id else None
        """The term in which this node may have led before it was started again."""
        self.led_term: int | None = None
        """The last term in which this node has led since it was started."""
        self._announced: tuple[Role, int, MemberId | None] = (self.role, self.term, None)

    # effects

    def save(self) -> None:
        """Puts term and vote on disk before everything that follows."""
        self.effects.append(Save(self.term, self.voted_for, self.joined))

    def send(self, to: MemberId, request: OutgoingRequest) -> None:
        """Sends a request to a peer."""
        self.effects.append(Send(to, request))

    def respond(self, request_id: RequestId, answer: PeerAnswer) -> None:
        """Answers a request."""
        self.effects.append(Respond(request_id, answer))

    def commit(self, index: int) -> None:
        """Notes that everything up to `index` is committed; an index that is not new changes nothing."""
        if index > self.committed_index:
            self.committed_index = index
            self.effects.append(Commit(index))

    def announce(self) -> None:
        """Tells the driver about role, term and leader, if they are not what it was told last."""
        present = (self.role, self.term, self.leader)
        if present != self._announced:
            self._announced = present
            self.effects.append(RoleChanged(*present))

    # changes

    def enter_term(self, term: int, voted_for: MemberId | None = None) -> None:
        """Enters a later term, in which this node knows no leader."""
        assert term > self.term
        self.term, self.voted_for, self.leader = term, voted_for, None
        self.save()

    def vote_for(self, candidate: MemberId) -> None:
        """Votes in the present term; a repeated vote is on disk already."""
        if self.voted_for != candidate:
            self.voted_for = candidate
            self.save()

    def vote_wait_ms(self) -> int:
        """Returns how long to wait before a vote, by chance, so that candidates do not meet for ever."""
        return self.chance.randint(self.config.min_vote_wait_ms, self.config.max_vote_wait_ms)
