"""A candidate: rounds of votes, and what follows from each.

Every node starts as a candidate. It asks all members for their votes, waits for the answers, and acts by the
first row of `_OUTCOMES` that fits. A round without a reachable majority is repeated in the same term, so that
a node that was cut off does not come back with a term that ends everybody's leadership.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from turbopump.raft import votes
from turbopump.raft.effects import Role
from turbopump.raft.member import RaftMember
from turbopump.raft.messages import NO_TERM, MemberId, VoteAnswer, VoteRequest, VoteResult

_TERMS_SEEN = (VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)
_LONGER_LOGS = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)


class Outcome(Enum):
    """What a candidate does after a round of votes."""

    ENTER_LATER_TERM = auto()
    WAIT_FOR_LEADER = auto()
    REVOTE = auto()
    REVOTE_LATER = auto()
    LEAD = auto()
    REVOTE_AT_ONCE = auto()
    VOTE_NEXT_TERM = auto()


@dataclass(slots=True)
class VoteCount:
    """The answers of one round, by kind."""

    quorum: int
    later_term: bool = False
    has_leader: bool = False
    answered: int = 0
    longer_logs: int = 0
    accepted: int = 0
    not_ready: int = 0


# The first row that fits decides.
_OUTCOMES: tuple[tuple[Callable[[VoteCount], bool], Outcome], ...] = (
    (lambda count: count.later_term, Outcome.ENTER_LATER_TERM),
    (lambda count: count.has_leader, Outcome.WAIT_FOR_LEADER),
    (lambda count: count.answered < count.quorum, Outcome.REVOTE),
    (lambda count: count.answered - count.longer_logs < count.quorum, Outcome.REVOTE_LATER),
    (lambda count: count.accepted >= count.quorum, Outcome.LEAD),
    (lambda count: count.accepted + count.not_ready >= count.quorum, Outcome.REVOTE_AT_ONCE),
    (lambda count: True, Outcome.VOTE_NEXT_TERM),
)


def outcome_of(count: VoteCount) -> Outcome:
    """Returns what follows from the answers of a round."""
    return next(outcome for fits, outcome in _OUTCOMES if fits(count))


class Candidate:
    """A node that looks for a leader, or for votes. Its methods return True when it has won."""

    def __init__(self, member: RaftMember, vote_at_ms: int) -> None:
        self._member = member
        self._vote_at_ms = vote_at_ms
        self._round_end_ms: int | None = None  # None: no round is open
        self._votes_next_term = False
        self._revoted_term: int | None = None
        self._answers: dict[MemberId, VoteAnswer] = {}
        self._failed: set[MemberId] = set()

    @property
    def deadline_ms(self) -> int:
        """When the next round begins, or the present one ends."""
        return self._vote_at_ms if self._round_end_ms is None else self._round_end_ms

    def tick(self) -> bool:
        """Begins or ends a round if it is time."""
        if self._member.now_ms < self.deadline_ms:
            return False
        if self._round_end_ms is not None:
            return self._end_round()
        if not (self._member.joined and self._member.is_eligible):
            self._vote_at_ms = self._member.now_ms + self._member.vote_wait_ms()
            return False
        return self._begin_round()

    def answered(self, sender: MemberId, request: VoteRequest, answer: VoteAnswer) -> bool:
        """Counts an answer to the present round."""
        member = self._member
        is_present = request.term == member.term and request.round == member.vote_round
        if self._round_end_ms is None or not is_present:
            return False
        self._answers[sender] = answer
        return self._end_round_if_decided()

    def unreachable(self, peer: MemberId) -> bool:
        """Does not wait for the answer of a peer that cannot be reached."""
        if self._round_end_ms is None or peer in self._answers:
            return False
        self._failed.add(peer)
        return self._end_round_if_decided()

    def _begin_round(self) -> bool:
        member = self._member
        if self._votes_next_term:
            self._votes_next_term = False
            member.enter_term(member.term + 1, voted_for=member.config.own_id)
            member.announce()
        member.vote_round += 1
        request = VoteRequest(member.term, member.log.end_index, member.log.end_term, member.vote_round)
        own = votes.decide(member, member.config.own_id, request)
        if own is VoteResult.ACCEPT:
            member.vote_for(member.config.own_id)
        self._answers = {member.config.own_id: VoteAnswer(member.term, own)}
        self._failed = set()
        extra = member.chance.randint(0, member.config.max_vote_wait_ms)
        self._round_end_ms = member.now_ms + member.config.vote_round_ms + extra
        for peer in member.config.peers:
            member.send(peer, request)
        return self._end_round_if_decided()

    @property
    def _may_lead(self) -> bool:
        """Whether this node voted for itself in this term, and wrote nothing in it before it was started.

        Entries that it appended as leader of the term before it stopped may be gone from its own log and
        still be in others: it must not write other entries with the same index and term.
        """
        member = self._member
        if member.led_term == member.term:
            return True
        is_new = member.term != member.term_of_earlier_life and member.term > member.log.end_term
        return is_new and member.voted_for == member.config.own_id

    def _count(self) -> VoteCount:
        results = [answer.result for answer in self._answers.values()]
        return VoteCount(
            quorum=self._member.config.quorum,
            later_term=self._latest_term() > self._member.term,
            has_leader=VoteResult.REJECT_ALREADY_HAS_LEADER in results,
            answered=sum(result is not VoteResult.UNKNOWN for result in results),
            longer_logs=sum(result in _LONGER_LOGS for result in results),
            accepted=results.count(VoteResult.ACCEPT),
            not_ready=results.count(VoteResult.REJECT_TERM_NOT_READY),
        )

    def _latest_term(self) -> int:
        """The latest term of those that refused because theirs is later."""
        terms = (answer.term for answer in self._answers.values() if answer.result in _TERMS_SEEN)
        return max(terms, default=NO_TERM)

    def _end_round_if_decided(self) -> bool:
        count = self._count()
        is_complete = len(self._answers.keys() | self._failed) == len(self._member.config.members)
        is_won = count.accepted + count.not_ready >= count.quorum
        if is_complete or count.later_term or count.has_leader or is_won:
            return self._end_round()
        return False

    def _end_round(self) -> bool:
        member, config = self._member, self._member.config
        self._round_end_ms = None
        if not member.is_eligible:  # since the round began
            self._vote_at_ms = member.now_ms + member.vote_wait_ms()
            return False
        outcome = outcome_of(self._count())
        if outcome is Outcome.LEAD and self._may_lead:
            return True
        if outcome is Outcome.LEAD or (
            outcome is Outcome.REVOTE_AT_ONCE and self._revoted_term != member.term
        ):
            self._votes_next_term = outcome is Outcome.LEAD
            self._revoted_term = member.term
            return self._begin_round()
        wait_ms = member.vote_wait_ms()
        if outcome is Outcome.ENTER_LATER_TERM:
            member.enter_term(self._latest_term())
            member.announce()
        elif outcome is Outcome.WAIT_FOR_LEADER:
            wait_ms += config.leader_timeout_ms
        elif outcome is Outcome.REVOTE_LATER:
            wait_ms += config.shorter_log_wait_ms
        elif outcome is Outcome.VOTE_NEXT_TERM:
            self._votes_next_term = True
        elif outcome is Outcome.REVOTE_AT_ONCE:
            # Members that need a moment to enter the term must not be asked in a tight loop.
            wait_ms = config.not_ready_wait_ms
        self._vote_at_ms = member.now_ms + wait_ms
        return False


def become_candidate(member: RaftMember, vote_at_ms: int) -> Candidate:
    """Makes the node a candidate of the present term, without a leader."""
    member.role, member.leader = Role.CANDIDATE, None
    member.announce()
    return Candidate(member, vote_at_ms)
