"""Requests and answers between the nodes of a DLedger group, as structs with the wire's spelling.

In: request code and body. Out: a struct, `BrokenBody`, or `RequestNotSupported` for an unknown code. Fields
are written in alphabetical order, as Java does; None is left out. All have the common fields

    group      remoteId   the receiver of the request        term   -1: not said
    leaderId   localId    the sender of the request          code   200; the result, in an answer

Answers repeat what Apache's nodes repeat, and nothing else: `answers.py` makes them.
"""

from typing import Annotated

from turbopump.protocol.bodies.base import Body, always, empty_list
from turbopump.protocol.bodies.lenient import java_enum
from turbopump.protocol.dledger.codes import DLedgerCode, DLedgerRequestCode, DLedgerVoteResult, PushType
from turbopump.protocol.dledger.entry import DLedgerEntry
from turbopump.protocol.errors import RequestNotSupported
from turbopump.protocol.headers.base import I32, I64

SUCCESS = int(DLedgerCode.SUCCESS)

VoteResultName = Annotated[str, java_enum(*DLedgerVoteResult)]
PushTypeName = Annotated[str, java_enum(*PushType)]


class PeersRequestBody(Body):
    """Request METADATA: asks for leader and members of the group. Apache's MetadataRequest."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class PeersAnswerBody(Body):
    """Answer to METADATA: `peers` has the address of each member by its id."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    peers: dict[str, str] | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class AppendEntryRequestBody(Body):
    """Request APPEND of a client: appends one entry."""

    body: bytes | None = None
    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class AppendEntryAnswerBody(Body):
    """Answer to APPEND: where the entry is, once a majority has it."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    index: I64 = always(-1)
    leaderId: str | None = None
    localId: str | None = None
    pos: I64 = always(-1)
    remoteId: str | None = None
    term: I64 = always(-1)


class GetEntriesRequestBody(Body):
    """Request GET of a client: reads entries."""

    beginIndex: I64 | None = None
    code: I32 = always(SUCCESS)
    group: str | None = None
    indexList: list[I64] | None = None
    leaderId: str | None = None
    localId: str | None = None
    maxSize: I32 = always(0)
    remoteId: str | None = None
    term: I64 = always(-1)


class PullEntriesRequestBody(Body):
    """Request PULL, which no node sends."""

    beginIndex: I64 | None = None
    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    nodeId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class EntriesAnswerBody(Body):
    """Answer to GET and PULL."""

    code: I32 = always(SUCCESS)
    entries: list[DLedgerEntry] = empty_list()
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class VoteRequestBody(Body):
    """Request VOTE of a candidate, which names itself as leader, and its last entry."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    ledgerEndIndex: I64 = always(-1)
    ledgerEndTerm: I64 = always(-1)
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class VoteAnswerBody(Body):
    """Answer to VOTE: ids as in the request, not swapped, and the voter's term."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)
    voteResult: VoteResultName = always(str(DLedgerVoteResult.UNKNOWN))


class LeaderHeartbeatBody(Body):
    """Request HEART_BEAT of a leader."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class HeartbeatAnswerBody(Body):
    """Answer to HEART_BEAT: only a code; `term` with codes 401 to 403."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class PushRequestBody(Body):
    """Request PUSH of a leader: an entry, or several in `batchEntry`, and what is committed."""

    batchEntry: list[DLedgerEntry] = empty_list()
    code: I32 = always(SUCCESS)
    commitIndex: I64 = always(-1)
    entry: DLedgerEntry | None = None
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)
    type: PushTypeName = always(str(PushType.APPEND))

    @property
    def entries(self) -> list[DLedgerEntry]:
        """The entries that are pushed, whichever of the two fields has them."""
        if self.batchEntry:
            return self.batchEntry
        return [] if self.entry is None else [self.entry]

    def encode(self) -> bytes:
        """Encodes with the fields that Java derives from the entries; they are ignored when read."""
        entries = self.entries
        return _WirePush(
            batch=bool(self.batchEntry),
            batchEntry=self.batchEntry,
            code=self.code,
            commitIndex=self.commitIndex,
            count=len(entries),
            entry=self.entry,
            firstEntryIndex=entries[0].index if entries else -1,
            group=self.group,
            lastEntryIndex=entries[-1].index if entries else -1,
            leaderId=self.leaderId,
            localId=self.localId,
            remoteId=self.remoteId,
            term=self.term,
            totalSize=sum(entry.size for entry in self.batchEntry),
            type=self.type,
        ).encode()


class _WirePush(Body):
    batch: bool = always(False)
    batchEntry: list[DLedgerEntry] = empty_list()
    code: I32 = always(SUCCESS)
    commitIndex: I64 = always(-1)
    count: int = always(0)
    entry: DLedgerEntry | None = None
    firstEntryIndex: int = always(-1)
    group: str | None = None
    lastEntryIndex: int = always(-1)
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)
    totalSize: int = always(0)
    type: PushTypeName = always(str(PushType.APPEND))


class PushAnswerBody(Body):
    """Answer to PUSH: the first entry of the request, their number, and what the follower has."""

    beginIndex: I64 = always(-1)
    code: I32 = always(SUCCESS)
    count: I32 = always(0)
    endIndex: I64 = always(-1)
    group: str | None = None
    index: I64 | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


class TransferRequestBody(Body):
    """Request LEADERSHIP_TRANSFER of a leader, `transferId`, to the member that shall lead."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    takeLeadershipLedgerIndex: I64 = always(0)
    term: I64 = always(-1)
    transferId: str | None = None
    transfereeId: str | None = None


class TransferAnswerBody(Body):
    """Answer to LEADERSHIP_TRANSFER, sent when the receiver has won: its new term."""

    code: I32 = always(SUCCESS)
    group: str | None = None
    leaderId: str | None = None
    localId: str | None = None
    remoteId: str | None = None
    term: I64 = always(-1)


DLedgerRequest = (
    PeersRequestBody
    | AppendEntryRequestBody
    | GetEntriesRequestBody
    | VoteRequestBody
    | LeaderHeartbeatBody
    | PullEntriesRequestBody
    | PushRequestBody
    | TransferRequestBody
)
DLedgerAnswer = (
    PeersAnswerBody
    | AppendEntryAnswerBody
    | EntriesAnswerBody
    | VoteAnswerBody
    | HeartbeatAnswerBody
    | PushAnswerBody
    | TransferAnswerBody
)

REQUESTS: dict[int, tuple[type[DLedgerRequest], type[DLedgerAnswer]]] = {
    DLedgerRequestCode.METADATA: (PeersRequestBody, PeersAnswerBody),
    DLedgerRequestCode.APPEND: (AppendEntryRequestBody, AppendEntryAnswerBody),
    DLedgerRequestCode.GET: (GetEntriesRequestBody, EntriesAnswerBody),
    DLedgerRequestCode.VOTE: (VoteRequestBody, VoteAnswerBody),
    DLedgerRequestCode.HEART_BEAT: (LeaderHeartbeatBody, HeartbeatAnswerBody),
    DLedgerRequestCode.PULL: (PullEntriesRequestBody, EntriesAnswerBody),
    DLedgerRequestCode.PUSH: (PushRequestBody, PushAnswerBody),
    DLedgerRequestCode.LEADERSHIP_TRANSFER: (TransferRequestBody, TransferAnswerBody),
}
"""Request code to the structs of request and answer."""


def decode_request(code: int, body: bytes) -> DLedgerRequest:
    """Decodes the body of a request. Raises BrokenBody, or RequestNotSupported for an unknown code."""
    return _kinds(code)[0].decode(body)


def decode_answer(code: int, body: bytes) -> DLedgerAnswer:
    """Decodes the body of the answer to a request with this code. Raises as `decode_request`."""
    return _kinds(code)[1].decode(body)


def _kinds(code: int) -> tuple[type[DLedgerRequest], type[DLedgerAnswer]]:
    kinds = REQUESTS.get(code)
    if kinds is None:
        raise RequestNotSupported(f" request type {code} not supported")
    return kinds
