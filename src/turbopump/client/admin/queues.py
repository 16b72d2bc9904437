"""Reads the first and next offset of queues, the offset at a time, and entries of consume queues."""

from dataclasses import dataclass, field

from turbopump.client.admin.calls import AdminCalls
from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import Puller
from turbopump.client.times import Time, past_ms
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.offsets import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
)
from turbopump.protocol.headers.query import QueryConsumeQueueRequest
from turbopump.runtime.clock import Clock, SystemClock


@dataclass
class Queues:
    """Reads the first and next offset of queues, the offset at a time, and entries of consume queues.

    Example:

        for queue in (await admin.topics.queues("OrderTopic")).subscribe:
            print(queue, await admin.queues.min_offset(queue), await admin.queues.max_offset(queue))
    """

    asking: AdminCalls
    puller: Puller
    clock: Clock = field(default_factory=SystemClock)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the first message that the queue still has."""
        return await self.puller.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the queue's next message will have."""
        return await self.puller.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, when: Time) -> int:
        """Returns the queue offset of the first message stored at `when` or later.

        Example:

            await admin.queues.offset_at(queue, "2026-11-01T00:00:00Z")
        """
        return await self.puller.offset_at(queue, past_ms(when, self.clock.now_ms()))

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """Returns the store time of the queue's first message, in ms since 1970; -1: there is none."""
        header = GetEarliestMsgStoretimeRequest(queue.topic, queue.id, bname=queue.broker)
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        answer = await self.puller.routes.ask_replica(
            queue, lambda replica: self.asking.ask(replica.address, code, header)
        )
        return GetEarliestMsgStoretimeResponse.from_ext(answer.ext).timestamp

    async def entries(
        self, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> bodies.QueryConsumeQueueResponseBody | None:
        """Returns up to `count` entries of a consume queue from offset `index` on; None: there are none.

        With a group, each entry says whether the group's subscription wants it.

            found = await admin.queues.entries(address, "OrderTopic", 0, 100, 10, "billing")
        """
        header = QueryConsumeQueueRequest(topic, queue_id, index, count, group)
        answer = await self.asking.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        return bodies.QueryConsumeQueueResponseBody.decode(answer.body) if answer.body else None
