"""Requests between brokers of ours about their copies of a log (9711 to 9716). Apache has none of them."""

from turbopump.protocol.headers.base import I64, Header


class ReplicaCompareRequest(Header):
    """Code 9711: asks for the extent of a broker's log, and for the checksum of the bytes [begin, end)."""

    begin: I64
    end: I64


class ReplicaCompareResponse(Header):
    """Response to 9711: extent of the log, and the CRC-32 of its part of [begin, end) that was checked.

    That part is [checkedBegin, checkedEnd). `run` is a number of the answering process. With `wantsSignature`
    a slave must sign its greeting on the replication port.
    """

    run: I64
    minOffset: I64
    endOffset: I64
    fileSize: I64
    checkedBegin: I64
    checkedEnd: I64
    checksum: I64
    wantsSignature: bool | None = None


class ReplicaPromoteRequest(Header):
    """Code 9713: makes a slave the master of its broker name; `role` is ASYNC_MASTER or SYNC_MASTER.

    `force`: even if its copy is incomplete, or its master lives.
    """

    role: str = "ASYNC_MASTER"
    force: bool = False


class RaftTransferRequest(Header):
    """Code 9716: has the leader of a DLedger group give the leadership to a member, by its id."""

    member: str
