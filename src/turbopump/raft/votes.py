"""Whether a member gives a candidate its vote: DLedger's checks in DLedger's order."""

from turbopump.raft.effects import Role
from turbopump.raft.member import RaftMember
from turbopump.raft.messages import MemberId, VoteRequest, VoteResult


def decide(member: RaftMember, candidate: MemberId, request: VoteRequest) -> VoteResult:
    """Returns the answer to a request for a vote, the node's own included; changes nothing."""
    own = candidate == member.config.own_id
    if candidate not in member.config.members:
        return VoteResult.REJECT_UNKNOWN_LEADER
    if refusal := _shorter_log(member, request):
        return refusal
    if request.term < member.term:
        return VoteResult.REJECT_EXPIRED_VOTE_TERM
    if not member.joined:
        # The disk that was lost may have held a vote, and entries that the candidate lacks. Candidates do not
        # count this answer: one with a shorter log that did would raise the term again and again.
        return VoteResult.UNKNOWN
    if request.term > member.term:
        return VoteResult.REJECT_TERM_NOT_READY
    if member.voted_for not in (None, candidate):
        return VoteResult.REJECT_ALREADY_HAS_LEADER if member.leader else VoteResult.REJECT_ALREADY_VOTED
    if not own and _takes_leadership(member, request):
        return VoteResult.REJECT_TAKING_LEADERSHIP
    return VoteResult.ACCEPT


def _shorter_log(member: RaftMember, request: VoteRequest) -> VoteResult | None:
    """Compares the candidate's log with all of the own log, committed or not."""
    if request.end_term < member.log.end_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.end_term == member.log.end_term and request.end_index < member.log.end_index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return None


def _takes_leadership(member: RaftMember, request: VoteRequest) -> bool:
    """Whether this node was asked to lead in this term, and has all that the candidate has."""
    return (
        member.role is Role.CANDIDATE
        and member.taking_term == member.term
        and request.end_term == member.log.end_term
        and request.end_index <= member.log.end_index
    )
