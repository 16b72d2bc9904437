"""Answers with exactly the fields that Apache's nodes put into them."""

from typing import TypeVar

from turbopump.protocol.dledger.codes import DLedgerCode, DLedgerVoteResult
from turbopump.protocol.dledger.messages import (
    DLedgerAnswer,
    DLedgerRequest,
    PushAnswerBody,
    PushRequestBody,
    VoteAnswerBody,
    VoteRequestBody,
)

A = TypeVar("A", bound=DLedgerAnswer)


def refuse(kind: type[A], request: DLedgerRequest, code: DLedgerCode, leader: str | None = None) -> A:
    """Returns the answer of a node that could not serve a request: ids of the request, leader if known."""
    return kind(
        code=int(code),
        group=request.group,
        leaderId=leader,
        localId=request.localId,
        remoteId=request.remoteId,
        term=request.term,
    )


def answer_vote(request: VoteRequestBody, result: DLedgerVoteResult, term: int) -> VoteAnswerBody:
    return VoteAnswerBody(
        group=request.group,
        leaderId=request.leaderId,
        localId=request.localId,
        remoteId=request.remoteId,
        term=term,
        voteResult=str(result),
    )


def answer_push(
    request: PushRequestBody, code: DLedgerCode, term: int, begin: int, end: int
) -> PushAnswerBody:
    """Returns the answer of a follower in `term` whose log has the indexes `begin` to `end`, -1 if empty."""
    entries = request.entries
    return PushAnswerBody(
        beginIndex=begin,
        code=int(code),
        count=len(entries),
        endIndex=end,
        group=request.group,
        index=entries[0].index if entries else None,
        term=term,
    )
