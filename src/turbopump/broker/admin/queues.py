"""Shows the entries of a consume queue as stored (321), to find out why a message is not delivered."""

from turbopump.broker.consume.filters import GroupFilters
from turbopump.broker.groups.members import Members
from turbopump.protocol.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import NOT_SET
from turbopump.protocol.headers.query import QueryConsumeQueueRequest
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.store.consume_queue import ENTRY, ConsumeQueue
from turbopump.store.queues import ConsumeQueues

MAX_COUNT = 10_000  # entries in one answer
NO_FILTER = "null"


class QueueHandler:
    """Handles requests of tools for the entries of a consume queue."""

    def __init__(self, queues: ConsumeQueues, members: Members[Connection], filters: GroupFilters) -> None:
        self._queues = queues
        self._members = members
        self._filters = filters

    def routes(self) -> Routes:
        return {RequestCode.QUERY_CONSUME_QUEUE: Route(QueryConsumeQueueRequest, self.show)}

    def show(self, request: Request[QueryConsumeQueueRequest]) -> Answer:
        """Answers with up to `count` entries from `index` on, of one file; without a body if out of range."""
        header = request.header
        topic, queue_id, index = header.topic or "", header.queueId, header.index
        queue = self._queues.find(topic, queue_id) if topic and queue_id >= 0 else None
        if queue is None or not queue.min_offset <= index < queue.max_offset:
            return Answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(
            maxQueueIndex=queue.max_offset,
            minQueueIndex=queue.min_offset,
            queueData=_entries(queue, index, min(max(header.count, 0), MAX_COUNT)),
        )
        if header.consumerGroup is not None:
            body.subscriptionData = self._members.subscription(header.consumerGroup, topic)
            missing = f"{header.consumerGroup}@{topic} is not online!"
            registered = self._filters.shown(header.consumerGroup, topic) or NO_FILTER
            body.filterData = missing if body.subscriptionData is None else registered
        return Answer(body=body.encode(), remark=NOT_SET)


def _entries(queue: ConsumeQueue, index: int, count: int) -> list[ConsumeQueueData]:
    units = queue.units(index, count) if count else b""
    return [_entry(queue, *unit) for unit in ENTRY.iter_unpack(units)]


def _entry(queue: ConsumeQueue, offset: int, size: int, stored: int) -> ConsumeQueueData:
    """Returns one entry for tools; `msg` says so if its tag code was in a deleted extension file."""
    tags_code = queue.tags_code(stored)
    entry = ConsumeQueueData(physicOffset=offset, physicSize=size, tagsCode=tags_code or 0)
    if tags_code is None:
        entry.tagsCode, entry.msg = stored, f"Cq extend not exist!addr: {stored}"
    return entry
