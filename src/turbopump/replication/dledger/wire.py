"""Requests and answers of a node to and from DLedger's structs. Values in, values out.

A node's requests carry less than the wire's: group, sender and receiver are added here. What a peer may get
wrong is found here: an entry that cannot be one, a code that no node answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turbopump.protocol.bodies.base import Body
from turbopump.protocol.dledger import messages as wire
from turbopump.protocol.dledger.answers import answer_push, answer_vote
from turbopump.protocol.dledger.codes import DLedgerCode, DLedgerRequestCode, DLedgerVoteResult
from turbopump.protocol.dledger.entry import HEAD_SIZE, MAGIC, MIN_BODY_SIZE, DLedgerEntry
from turbopump.raft import messages as raft

ReadEntries = Callable[[raft.PushOrder], Sequence[DLedgerEntry] | None]
"""Returns the entries of a push; None when the log does not have them any longer."""

NodeRequest = (
    wire.VoteRequestBody | wire.LeaderHeartbeatBody | wire.PushRequestBody | wire.TransferRequestBody
)
"""The requests that a node decides about."""

CODES = {
    raft.VoteRequest: DLedgerRequestCode.VOTE,
    raft.Heartbeat: DLedgerRequestCode.HEART_BEAT,
    raft.PushOrder: DLedgerRequestCode.PUSH,
    raft.TransferRequest: DLedgerRequestCode.LEADERSHIP_TRANSFER,
}
"""The request code of each request that a node sends."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every request of this member to one peer says."""

    group: str
    sender: str
    receiver: str


# requests of this member


def outgoing(envelope: Envelope, request: raft.OutgoingRequest, read: ReadEntries) -> Body | None:
    """Returns a request as a struct; None for a push whose entries the log does not have."""
    group, sender, receiver = envelope.group, envelope.sender, envelope.receiver
    match request:
        case raft.VoteRequest(term, end_index, end_term):
            return wire.VoteRequestBody(
                group=group,
                leaderId=sender,
                ledgerEndIndex=end_index,
                ledgerEndTerm=end_term,
                localId=sender,
                remoteId=receiver,
                term=term,
            )
        case raft.Heartbeat(term):
            return wire.LeaderHeartbeatBody(
                group=group, leaderId=sender, localId=sender, remoteId=receiver, term=term
            )
        case raft.TransferRequest():
            return wire.TransferRequestBody(
                group=group,
                leaderId=sender,
                localId=sender,
                remoteId=receiver,
                takeLeadershipLedgerIndex=request.take_index,
                term=request.term,
                transferId=request.from_member,
                transfereeId=request.to_member,
            )
        case raft.PushOrder():
            return _outgoing_push(envelope, request, read)


def _outgoing_push(envelope: Envelope, order: raft.PushOrder, read: ReadEntries) -> Body | None:
    entries: Sequence[DLedgerEntry] = ()
    if order.kind is not raft.PushKind.COMMIT:
        found = read(order)
        if found is None:
            return None
        entries = found
    return wire.PushRequestBody(
        batchEntry=list(entries) if len(entries) > 1 else [],
        commitIndex=order.commit_index,
        entry=entries[0] if len(entries) == 1 else None,
        group=envelope.group,
        leaderId=envelope.sender,
        localId=envelope.sender,
        remoteId=envelope.receiver,
        term=order.term,
        type=str(order.kind),
    )


def answered(request: raft.OutgoingRequest, body: bytes) -> raft.PeerAnswer | int:
    """Returns the answer of a peer as the node wants it, or the code of one that no node gives.

    Raises BrokenBody.
    """
    found = wire.decode_answer(CODES[type(request)], body)
    if isinstance(found, wire.VoteAnswerBody):
        if found.code != DLedgerCode.SUCCESS:
            return found.code
        return raft.VoteAnswer(found.term, raft.VoteResult(found.voteResult))
    try:
        code = raft.RaftCode(found.code)
    except ValueError:
        return found.code
    match found:
        case wire.HeartbeatAnswerBody():
            return raft.HeartbeatAnswer(code, found.term)
        case wire.PushAnswerBody():
            index = raft.NO_INDEX if found.index is None else found.index
            return raft.PushAnswer(code, found.term, index, found.count, found.beginIndex, found.endIndex)
        case wire.TransferAnswerBody():
            return raft.TransferAnswer(code, found.term)
    raise AssertionError(f"{type(found).__name__} is no answer to a node")


# requests of others


def sender_of(request: NodeRequest) -> str:
    """Returns who asks: a candidate and a leader name themselves as leader."""
    return request.leaderId or request.localId or ""


def incoming(request: NodeRequest, max_entry: int) -> raft.IncomingRequest | None:
    """Returns a request as the node wants it; None when it has an entry that cannot be one."""
    match request:
        case wire.VoteRequestBody():
            return raft.VoteRequest(request.term, request.ledgerEndIndex, request.ledgerEndTerm)
        case wire.LeaderHeartbeatBody():
            return raft.Heartbeat(request.term)
        case wire.TransferRequestBody():
            return raft.TransferRequest(
                request.term,
                request.transferId or "",
                request.transfereeId or "",
                request.takeLeadershipLedgerIndex,
            )
        case wire.PushRequestBody():
            if not all(_is_possible(entry, request.term, max_entry) for entry in request.entries):
                return None
            entries = tuple(_pushed(entry) for entry in request.entries)
            return raft.Push(raft.PushKind(request.type), request.term, entries, request.commitIndex)


def _is_possible(entry: DLedgerEntry, term: int, max_entry: int) -> bool:
    return (
        entry.magic == MAGIC
        and entry.index >= 0
        and 0 <= entry.term <= term
        and entry.pos >= 0
        and entry.size == HEAD_SIZE + len(entry.body)
        and HEAD_SIZE + MIN_BODY_SIZE <= entry.size <= max_entry
    )


def _pushed(entry: DLedgerEntry) -> raft.PushedEntry:
    return raft.PushedEntry(entry.index, entry.term, entry.pos, entry.size, entry.channel, entry)


def answer_to(request: NodeRequest, answer: raft.PeerAnswer) -> Body:
    """Returns the node's answer to a request as a struct."""
    match request, answer:
        case wire.VoteRequestBody(), raft.VoteAnswer(term, result):
            return answer_vote(request, DLedgerVoteResult(str(result)), term)
        case wire.LeaderHeartbeatBody(), raft.HeartbeatAnswer(code, term):
            return wire.HeartbeatAnswerBody(code=int(code), term=term)
        case wire.PushRequestBody(), raft.PushAnswer():
            push_code = DLedgerCode(int(answer.code))
            return answer_push(request, push_code, answer.term, answer.begin_index, answer.end_index)
        case wire.TransferRequestBody(), raft.TransferAnswer(code, term):
            return wire.TransferAnswerBody(code=int(code), term=term)
    raise AssertionError(f"{type(answer).__name__} answers no {type(request).__name__}")
