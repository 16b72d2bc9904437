"""Answers with exactly the fields that Apache's nodes put into them."""

from typing import TypeVar

from turbopump.protocol.dledger.codes import DLedgerCode, VoteResult
from turbopump.protocol.dledger.messages import (
    DLedgerAnswer,
    DLedgerRequest,
    PushAnswer,
    PushRequest,
    VoteAnswer,
    VoteRequest,
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


def answer_vote(request: VoteRequest, result: VoteResult, term: int) -> VoteAnswer:
    return VoteAnswer(
        group=request.group,
        leaderId=request.leaderId,
        localId=request.localId,
        remoteId=request.remoteId,
        term=term,
        voteResult=str(result),
    )


def answer_push(request: PushRequest, code: DLedgerCode, term: int, begin: int, end: int) -> PushAnswer:
    """Returns the answer of a follower in `term` whose log has the indexes `begin` to `end`, -1 if empty."""
    entries = request.entries
    return PushAnswer(
        beginIndex=begin,
        code=int(code),
        count=len(entries),
        endIndex=end,
        group=request.group,
        index=entries[0].index if entries else None,
        term=term,
    )
