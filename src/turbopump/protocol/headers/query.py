"""Headers of queries for messages: by key (12), by offset (33), and entries of a consume queue (321)."""

import msgspec

from turbopump.protocol.headers.base import I32, I64, Header


class QueryMessageRequest(Header):
    """Request 12 to a broker: messages by key; by unique key if `unique_key_query` is set.

    That field is `_UNIQUE_KEY_QUERY` on the wire.
    """

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
    """Request 33 to a broker: the message at the commit-log offset `offset`."""

    offset: I64
    topic: str | None = None


class QueryConsumeQueueRequest(Header):
    """Request 321 to a broker: entries of a consume queue from queue offset `index` on."""

    topic: str | None = None
    queueId: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumerGroup: str | None = None
