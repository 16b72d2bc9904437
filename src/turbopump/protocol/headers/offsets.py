"""Committed offsets (14, 15) and the offsets of a queue (29 to 32)."""

from turbopump.protocol.headers.base import I32, I64, Header


class QueryConsumerOffsetRequest(Header):
    """Code 14."""

    consumerGroup: str
    topic: str
    queueId: I32
    setZeroIfNotFound: bool | None = None
    bname: str | None = None


class UpdateConsumerOffsetRequest(Header):
    """Code 15. A missing queue id or offset has an answer of its own (29), so neither is required here."""

    consumerGroup: str
    topic: str
    queueId: I32 | None = None
    commitOffset: I64 | None = None
    bname: str | None = None


class SearchOffsetRequest(Header):
    """Code 29."""

    topic: str
    queueId: I32
    timestamp: I64
    boundaryType: str | None = None
    bname: str | None = None


class GetMaxOffsetRequest(Header):
    """Code 30."""

    topic: str
    queueId: I32
    committed: bool = True
    bname: str | None = None


class GetMinOffsetRequest(Header):
    """Code 31."""

    topic: str
    queueId: I32
    bname: str | None = None


class GetEarliestMsgStoretimeRequest(Header):
    """Code 32."""

    topic: str
    queueId: I32
    bname: str | None = None


class OffsetResponse(Header):
    """Answer to codes 14, 29, 30 and 31."""

    offset: I64


class GetEarliestMsgStoretimeResponse(Header):
    timestamp: I64
