"""Handles queries for messages and offsets, without consuming them (request codes 12, 33, 29 to 32).

In: a key, an offset or a time. Out: records as they are in the log, or a number. A topic or queue that does
not exist counts as an empty one, as with Apache; only a key without a message has its own answer code (22).
"""

from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.guard.link import Permit, permit_all
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.errors import SystemFailure
from turbopump.protocol.headers.offsets import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    SearchOffsetRequest,
)
from turbopump.protocol.headers.query import QueryMessageRequest, QueryMessageResponse, ViewMessageRequest
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.slices import run_in_slices
from turbopump.store.times import Boundary

BY_TAG = "T"
NOTHING = "can not find message, maybe time range not correct"


class QueryHandler:
    """Handles queries for messages by key or log offset, and for queue offsets and store times."""

    def __init__(self, store: Storage, topics: TopicTable, permit: Permit = permit_all) -> None:
        """`permit` is asked about the topic of a message that is read by its log offset alone."""
        self._store = store
        self._topics = topics
        self._permit = permit

    def routes(self) -> Routes:
        return {
            RequestCode.QUERY_MESSAGE: Route(QueryMessageRequest, self.by_key),
            RequestCode.VIEW_MESSAGE_BY_ID: Route(ViewMessageRequest, self.by_offset),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Route(SearchOffsetRequest, self.offset_by_time),
            RequestCode.GET_MAX_OFFSET: Route(GetMaxOffsetRequest, self.max_offset),
            RequestCode.GET_MIN_OFFSET: Route(GetMinOffsetRequest, self.min_offset),
            RequestCode.GET_EARLIEST_MSG_STORETIME: Route(GetEarliestMsgStoretimeRequest, self.earliest_time),
        }

    async def by_key(self, request: Request[QueryMessageRequest]) -> Answer:
        """Answers with the messages that have a key or unique key (one index); QUERY_NOT_FOUND without any.

        A query by tag, as 5.5's tools can send, finds nothing here.
        """
        header = request.header
        if header.indexType == BY_TAG:
            return _not_found()
        if header.maxNum < 0:
            raise SystemFailure(f"maxNum must not be negative, got {header.maxNum}")
        count = self._store.queries.default_count if header.unique_key_query else header.maxNum
        begin_ms, end_ms = header.beginTimestamp, header.endTimestamp
        found = await run_in_slices(
            self._store.queries.query_in_slices(header.topic, header.key, begin_ms, end_ms, count)
        )
        if not found.records:
            return _not_found()
        return Answer(
            QueryMessageResponse(found.index_timestamp, found.index_offset), b"".join(found.records)
        )

    def by_offset(self, request: Request[ViewMessageRequest]) -> Answer:
        """Answers with the record at a log offset; raises SystemFailure if there is none."""
        offset = request.header.offset
        record = self._store.log.look_up(offset)
        if record is not None:
            self._permit(request, record)
        data = None if record is None else self._store.log.read(offset, record.size)
        if data is None:
            raise SystemFailure(f"can not find message by the offset, {offset}")
        return Answer(body=data)

    def offset_by_time(self, request: Request[SearchOffsetRequest]) -> Answer:
        header = request.header
        queue = self._queue(header.topic, header.queueId)
        if queue is None:
            return Answer(OffsetResponse(0))
        boundary = Boundary.UPPER if (header.boundaryType or "").upper() == "UPPER" else Boundary.LOWER
        return Answer(OffsetResponse(self._store.times.offset_by_time(queue, header.timestamp, boundary)))

    def max_offset(self, request: Request[GetMaxOffsetRequest]) -> Answer:
        queue = self._queue(request.header.topic, request.header.queueId)
        return Answer(OffsetResponse(queue.max_offset if queue else 0))

    def min_offset(self, request: Request[GetMinOffsetRequest]) -> Answer:
        queue = self._queue(request.header.topic, request.header.queueId)
        return Answer(OffsetResponse(queue.min_offset if queue else 0), remark="")

    def earliest_time(self, request: Request[GetEarliestMsgStoretimeRequest]) -> Answer:
        queue = self._queue(request.header.topic, request.header.queueId)
        time_ms = self._store.times.earliest(queue) if queue else -1
        return Answer(GetEarliestMsgStoretimeResponse(time_ms))

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Returns the queue; None if topic or queue is unknown. Unknown topics are not looked up on disk."""
        if self._topics.find(topic) is None or queue_id < 0:
            return None
        return self._store.queues.find(topic, queue_id)


def _not_found() -> Answer:
    return Answer(QueryMessageResponse(0, 0), code=ResponseCode.QUERY_NOT_FOUND, remark=NOTHING)
