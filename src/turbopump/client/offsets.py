"""How far a group has read a queue, as its broker keeps it: the master, or while it is away a slave."""

from dataclasses import dataclass

from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import successful
from turbopump.client.routes import Routes
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import QueryNotFound
from turbopump.protocol.headers.base import Header
from turbopump.protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from turbopump.remoting.client import Client

CALL_TIMEOUT_S = 5.0


@dataclass
class GroupOffsets:
    client: Client
    routes: Routes
    group: str

    async def query(self, queue: MessageQueue) -> int | None:
        """None: the group has never committed one. Raises Refused or OSError when it cannot be known."""
        header = QueryConsumerOffsetRequest(self.group, queue.topic, queue.id, bname=queue.broker)
        try:
            answer = await self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except QueryNotFound:
            return None
        offset = OffsetResponse.from_ext(answer.ext).offset
        return offset if offset >= 0 else None

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Returns when the broker has it. Raises Refused or OSError."""
        await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, self._update(queue, offset))

    async def tell(self, queue: MessageQueue, offset: int) -> None:
        """As `commit`, without an answer: for the regular commits, of which the next mends a lost one."""
        question = request(RequestCode.UPDATE_CONSUMER_OFFSET, self._update(queue, offset))
        await self.routes.ask_replica(
            queue, lambda replica: self.client.send_oneway(replica.address, question)
        )

    def _update(self, queue: MessageQueue, offset: int) -> UpdateConsumerOffsetRequest:
        return UpdateConsumerOffsetRequest(self.group, queue.topic, queue.id, offset, bname=queue.broker)

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> Command:
        question = request(code, header)
        answer = await self.routes.ask_replica(
            queue, lambda replica: self.client.call(replica.address, question, CALL_TIMEOUT_S)
        )
        return successful(answer)
