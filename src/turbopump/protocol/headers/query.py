"""Finding messages: by key (12), by offset (33), and the entries of a consume queue (321)."""

import msgspec

from turbopump.protocol.headers.base import I32, I64, Header


class QueryMessageRequest(Header):
    """Code 12. `unique_key_query` (`_UNIQUE_KEY_QUERY` on the wire): the key is a unique key, not in KEYS."""

    topic: str
    key: str
    maxNum: I32
    beginTimestamp: I64
    endTimestamp: I64
    unique_key_query: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")
    indexType: str | None = None
    lastKey: str | None = None


class QueryMessageResponse(Header):
    indexLastUpdateTimestamp: I64
    indexLastUpdatePhyoffset: I64


class ViewMessageRequest(Header):
    """Code 33: `offset` is the commit-log offset."""

    offset: I64
    topic: str | None = None


class QueryConsumeQueueRequest(Header):
    """Code 321."""

    topic: str | None = None
    queueId: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumerGroup: str | None = None
