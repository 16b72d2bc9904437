"""Pulling: records of one queue from an offset on, held at the broker until there are some; a queue's ends.

Nothing here remembers a position: offsets come in with the call and go out with the result.
"""

from dataclasses import dataclass
from enum import Enum

from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.name_servers import Calls, successful
from turbopump.client.routes import Routes
from turbopump.client.subscription import Subscription
from turbopump.protocol import sysflag
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import refusal
from turbopump.protocol.headers.base import Header
from turbopump.protocol.headers.offsets import (
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    SearchOffsetRequest,
)
from turbopump.protocol.headers.pull import PullMessageRequest, PullMessageResponse
from turbopump.protocol.record import Record, decode_all

CALL_TIMEOUT_S = 5.0
HOLD_S = 15.0
LATE_S = 15.0  # Apache looks every five seconds whose time is up, and later when it has much to do
BATCH = 32


class PullStatus(Enum):
    FOUND = ResponseCode.SUCCESS
    NO_NEW_MSG = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MSG = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


STATUSES = {int(status.value): status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class PullResult:
    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: tuple[Record, ...]

    def messages(self, queue: MessageQueue, subscription: Subscription) -> list[MessageExt]:
        """Those that are wanted: the broker compared hashes of tags, here it is their text."""
        ends = (self.min_offset, self.max_offset)
        return [MessageExt(one, queue, ends) for one in self.records if subscription.wants(one.tags)]


@dataclass
class Puller:
    """Reads queues for a consumer group, without joining it.

    Example:

        result = await puller.pull(queue, offset)
        for record in result.records: ...
        offset = result.next_offset
    """

    calls: Calls
    routes: Routes
    group: str = "TOOLS_CONSUMER"

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        max_count: int = BATCH,
        hold_s: float = HOLD_S,
    ) -> PullResult:
        """Tags filter by their hash here: the caller compares them again. Raises Refused or OSError."""
        header = self._header(queue, offset, max_count, hold_s)
        header.sysFlag |= sysflag.PULL_SUBSCRIPTION
        header.subscription = expression
        return await self._pull(queue, header)

    async def pull_as_member(
        self,
        queue: MessageQueue,
        offset: int,
        version: int,
        committed: int,
        max_count: int = BATCH,
        hold_s: float = HOLD_S,
    ) -> PullResult:
        """For a member of the group: filters by the subscription of its heartbeats, which must have that
        version, and commits an offset on the way.
        """
        header = self._header(queue, offset, max_count, hold_s)
        header.subVersion = version
        if committed > 0:
            header.sysFlag |= sysflag.PULL_COMMIT_OFFSET
            header.commitOffset = committed
        return await self._pull(queue, header)

    def _header(self, queue: MessageQueue, offset: int, max_count: int, hold_s: float) -> PullMessageRequest:
        return PullMessageRequest(
            consumerGroup=self.group,
            topic=queue.topic,
            queueId=queue.id,
            queueOffset=offset,
            maxMsgNums=max_count,
            sysFlag=sysflag.PULL_SUSPEND if hold_s > 0 else 0,
            suspendTimeoutMillis=int(hold_s * 1000),
            expressionType="TAG",
            bname=queue.broker,
        )

    async def _pull(self, queue: MessageQueue, header: PullMessageRequest) -> PullResult:
        hold_s = header.suspendTimeoutMillis / 1000
        answer = await self._ask(queue, RequestCode.PULL_MESSAGE, header, hold_s + LATE_S)
        if answer.code not in STATUSES:
            raise refusal(answer.code, answer.remark)
        found = PullMessageResponse.from_ext(answer.ext)
        return PullResult(
            STATUSES[answer.code],
            found.nextBeginOffset,
            found.minOffset,
            found.maxOffset,
            tuple(decode_all(answer.body)) if answer.code == 0 else (),
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._offset(
            queue, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest(queue.topic, queue.id, bname=queue.broker)
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return await self._offset(
            queue, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(queue.topic, queue.id, bname=queue.broker)
        )

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The first offset whose message was stored at that time or later."""
        header = SearchOffsetRequest(queue.topic, queue.id, time_ms, bname=queue.broker)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Header) -> int:
        answer = successful(await self._ask(queue, code, header, CALL_TIMEOUT_S))
        return OffsetResponse.from_ext(answer.ext).offset

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header, timeout_s: float) -> Command:
        return await self.calls.call(await self.routes.reader(queue), request(code, header), timeout_s)
