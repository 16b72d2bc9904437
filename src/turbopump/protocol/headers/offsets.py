"""Headers about committed offsets (14, 15) and the offsets of a queue (29 to 32)."""

from turbopump.protocol.headers.base import I32, I64, Header


class QueryConsumerOffsetRequest(Header):
    """Request 14 to a broker: committed offset of a group in a queue."""

    consumerGroup: str
    topic: str
    queueId: I32
    setZeroIfNotFound: bool | None = None
    bname: str | None = None


class UpdateConsumerOffsetRequest(Header):
    """Request 15 to a broker: commit an offset. A missing queue id or offset is refused with code 29.

    So neither is required here. `ofConsumer` is ours: Java's consumers commit one-way and its tools do not,
    but our consumers wait for the answer too.
    """

    consumerGroup: str
    topic: str
    queueId: I32 | None = None
    commitOffset: I64 | None = None
    bname: str | None = None
    ofConsumer: bool | None = None


class SearchOffsetRequest(Header):
    """Request 29 to a broker: queue offset of a message by its store time (ms)."""

    topic: str
    queueId: I32
    timestamp: I64
    boundaryType: str | None = None
    bname: str | None = None


class GetMaxOffsetRequest(Header):
    """Request 30 to a broker: offset of the next message of a queue."""

    topic: str
    queueId: I32
    committed: bool = True
    bname: str | None = None


class GetMinOffsetRequest(Header):
    """Request 31 to a broker: offset of the first message of a queue that is still stored."""

    topic: str
    queueId: I32
    bname: str | None = None


class GetEarliestMsgStoretimeRequest(Header):
    """Request 32 to a broker: store time of the first message of a queue that is still stored."""

    topic: str
    queueId: I32
    bname: str | None = None


class OffsetResponse(Header):
    """Response to 14, 29, 30 and 31: a queue offset."""

    offset: I64


class GetEarliestMsgStoretimeResponse(Header):
    timestamp: I64
