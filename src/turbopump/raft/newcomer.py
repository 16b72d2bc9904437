"""A node that came with an empty disk, and when it may vote.

An earlier disk of the same member may have been lost. Its votes are forgotten, and so are the entries that it
acknowledged: with a second vote in a term, or a vote for a log without those entries, two members could elect
a leader that lacks what was committed. So a newcomer neither votes nor stands for election before it has
joined:

1. Every other member has told it its term since it was started. A vote of the lost disk was given to one of
   them, or to itself, in a term that is not later than the latest of these. Before that, and from leaders of
   earlier terms, it takes no entries either: the lost disk may have elected another leader since, and an
   acknowledgement would let the earlier one commit.
2. It follows a leader of that term or a later one, and holds that leader's log up to the highest index that
   the leader has mentioned since: what the lost disk acknowledged is among it. It then counts as having voted
   for that leader in that term.
   Or: all other logs are empty, and so is its own. Then nothing was lost, as at the first start of a group;
   it begins in a term that is later than all that it was told.

Members are asked by a vote request of term -1, which no member grants: one with entries refuses it for its
shorter log, one without for its term. If too many disks were lost at once for a leader to be elected, an
operator must decide whose log is valid, and start the others as joined.
"""

from turbopump.raft.member import RaftMember
from turbopump.raft.messages import NO_INDEX, NO_TERM, MemberId, Push, VoteAnswer, VoteRequest, VoteResult

QUESTION = VoteRequest(NO_TERM, NO_INDEX, NO_TERM)
"""Asks for a member's term, and whether its log is empty."""


class Newcomer:
    """What a node that has not joined knows about the others."""

    def __init__(self, member: RaftMember) -> None:
        self._member = member
        self._answers: dict[MemberId, VoteAnswer] = {}
        self._leader_term = NO_TERM
        self._leader_index = NO_INDEX  # the highest that the leader of that term has mentioned
        self._ask_at_ms = member.now_ms

    @property
    def deadline_ms(self) -> int | None:
        """When the members that have not answered are asked again; None: all have."""
        return None if self._has_asked_all else self._ask_at_ms

    def tick(self) -> None:
        """Asks the members that have not answered yet."""
        if self._has_asked_all or self._member.now_ms < self._ask_at_ms:
            return
        self._ask_at_ms = self._member.now_ms + self._member.vote_wait_ms()
        for peer in self._member.config.peers:
            if peer not in self._answers:
                self._member.send(peer, QUESTION)

    def answered(self, peer: MemberId, answer: VoteAnswer) -> None:
        """Notes a member's term, and whether its log is empty."""
        if answer.result is not VoteResult.UNKNOWN:
            self._answers[peer] = answer

    def pushed(self, push: Push) -> None:
        """Notes how far the leader's log reaches at least."""
        if push.term > self._leader_term:
            self._leader_term, self._leader_index = push.term, NO_INDEX
        if push.term == self._leader_term:
            last = push.entries[-1].index if push.entries else NO_INDEX
            self._leader_index = max(self._leader_index, last, push.commit_index)

    @property
    def may_acknowledge(self) -> bool:
        """Whether the leader that it follows cannot be one that the lost disk helped to replace."""
        return self._has_asked_all and self._member.term >= self._latest_term

    def join_if_possible(self, verified_index: int | None) -> bool:
        """Joins when it is safe; returns True when the node begins in a new term."""
        member = self._member
        if not self._has_asked_all:
            return False
        if self._is_first_start:
            member.joined = True
            member.enter_term(max(member.term, self._latest_term) + 1)
            return True
        if member.leader is not None and verified_index is not None and self._has_all(verified_index):
            member.joined = True
            member.voted_for = member.leader
            member.save()
        return False

    @property
    def _has_asked_all(self) -> bool:
        return len(self._answers) == len(self._member.config.peers)

    @property
    def _latest_term(self) -> int:
        return max((answer.term for answer in self._answers.values()), default=NO_TERM)

    @property
    def _is_first_start(self) -> bool:
        results = {answer.result for answer in self._answers.values()}
        return self._member.log.end_index == NO_INDEX and results <= {VoteResult.REJECT_EXPIRED_VOTE_TERM}

    def _has_all(self, verified_index: int) -> bool:
        synced = min(verified_index, self._member.log.synced_index)
        is_led = self._leader_term == self._member.term >= self._latest_term
        return is_led and synced >= self._leader_index > NO_INDEX
