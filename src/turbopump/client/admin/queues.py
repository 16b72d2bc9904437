"""Consume queues: the entries that point into the commit log."""

from dataclasses import dataclass

from turbopump.client.admin.asking import Asking
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.query import QueryConsumeQueueRequest


@dataclass
class Queues:
    asking: Asking

    async def entries(
        self, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> bodies.QueryConsumeQueueResponseBody | None:
        """With a group, each entry says whether its subscription wants it. None: nothing at that index."""
        header = QueryConsumeQueueRequest(topic, queue_id, index, count, group)
        answer = await self.asking.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        return bodies.QueryConsumeQueueResponseBody.decode(answer.body) if answer.body else None
