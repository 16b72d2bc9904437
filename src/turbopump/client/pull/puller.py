"""Pulls records of a queue from an offset on, and asks for the first, the next and a time's offset.

Keeps no position: offsets come in with the call and go out with the result. Only the server to read next is
kept: each answer suggests one of a broker's servers, a slave when the consumer is far behind. A server that
cannot be reached is avoided for a while (`routes.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.name_servers import Caller, successful
from turbopump.client.routes import Replica, RouteCache
from turbopump.client.world import HOLD_S
from turbopump.protocol import sysflag
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.codes import V5_0_0, RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import refusal
from turbopump.protocol.headers.base import Header
from turbopump.protocol.headers.offsets import (
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    SearchOffsetRequest,
)
from turbopump.protocol.headers.pull import DEFAULT_MAX_BYTES, PullMessageRequest, PullMessageResponse
from turbopump.protocol.inner import is_wrapped, messages_of
from turbopump.protocol.names import TAG
from turbopump.protocol.record import Record, decode_all

CALL_TIMEOUT_S = 5.0
ANSWER_GRACE_S = 15.0  # Apache's broker checks held pulls every five seconds, and later under load
BATCH = 32


class PullStatus(Enum):
    """The four answers of a broker to a pull."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MSG = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MSG = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


STATUSES = {int(status.value): status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class PullResult:
    """The decoded answer to one pull."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: tuple[Record, ...]

    def messages(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        namespace: str = "",
        decompresses: bool = True,
    ) -> list[MessageExt]:
        """Returns the records as messages, without those whose tag the subscription does not want.

        The broker compared only hashes of tags, this compares their text.
        """
        ends = (self.min_offset, self.max_offset)
        records: Iterable[Record] = self.records
        if subscription.tags:  # finding the tag costs as much as everything else here
            records = [one for one in records if subscription.wants(one.tags)]
        return [MessageExt(one, queue, ends, 0, namespace, decompresses) for one in records]


@dataclass(frozen=True, slots=True)
class PulledBytes:
    """The answer to one pull, not decoded: its records lie back to back in `body`."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes | memoryview
    delta: int
    """Added to the records' offsets it gives the queue's; not 0 only with static topics."""


@dataclass
class Puller:
    """Pulls from queues in the name of a consumer group, without joining it; keeps no position.

    Example:

        result = await puller.pull(queue, offset)
        for record in result.records: ...
        offset = result.next_offset
    """

    calls: Caller
    routes: RouteCache
    group: str = "TOOLS_CONSUMER"
    lite: bool = False
    """Use lite pulls at brokers that support them; they have limits of their own there."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Address → version of the broker. Only 5.0 and later support lite pulls; others always refuse them."""
    _suggested: dict[MessageQueue, int] = field(default_factory=dict, init=False)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        max_count: int = BATCH,
        hold_s: float = HOLD_S,
        *,
        kind: str = TAG,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout_s: float | None = None,
    ) -> PullResult:
        """Makes one pull; without messages the broker holds it up to `hold_s`. Raises Refused or OSError.

        The broker filters by hashes of tags, so compare them again.
        """
        header = self._header(queue, offset, max_count, hold_s)
        header.sysFlag |= sysflag.PULL_SUBSCRIPTION
        header.subscription = expression
        header.expressionType = kind
        header.maxMsgBytes = max_bytes
        return await self._pull(queue, header, timeout_s or hold_s + ANSWER_GRACE_S)

    async def pull_bytes(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        max_count: int = BATCH,
        *,
        kind: str = TAG,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> PulledBytes:
        """Pulls once without waiting for messages and without decoding them, for reading in bulk.

        Turbopump's brokers then return more at once than their limits for ordinary pulls allow.
        """
        header = self._header(queue, offset, max_count, 0)
        header.sysFlag |= sysflag.PULL_SUBSCRIPTION
        header.subscription = expression
        header.expressionType = kind
        header.maxMsgBytes = max_bytes
        header.bulkBytes = max_bytes
        answer, found = await self._ask(queue, header, timeout_s)
        body = answer.body if answer.code == 0 else b""
        return PulledBytes(
            STATUSES[answer.code],
            found.nextBeginOffset,
            found.minOffset,
            found.maxOffset,
            body,
            found.offsetDelta or 0,
        )

    async def pull_as_member(
        self,
        queue: MessageQueue,
        offset: int,
        version: int,
        committed: int,
        max_count: int = BATCH,
        hold_s: float = HOLD_S,
        *,
        kind: str = TAG,
        expression: str | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> PullResult:
        """Pulls once as a member of the group; the request also commits the offset `committed`, if above 0.

        Filters by the subscription of the heartbeats, which must have that version, or by `expression`.
        """
        header = self._header(queue, offset, max_count, hold_s)
        header.subVersion = version
        header.expressionType = kind
        header.maxMsgBytes = max_bytes
        if expression is not None:
            header.sysFlag |= sysflag.PULL_SUBSCRIPTION
            header.subscription = expression
        if committed > 0:
            header.sysFlag |= sysflag.PULL_COMMIT_OFFSET
            header.commitOffset = committed
        return await self._pull(queue, header, hold_s + ANSWER_GRACE_S)

    def _header(self, queue: MessageQueue, offset: int, max_count: int, hold_s: float) -> PullMessageRequest:
        return PullMessageRequest(
            consumerGroup=self.group,
            topic=queue.topic,
            queueId=queue.id,
            queueOffset=offset,
            maxMsgNums=max_count,
            sysFlag=(sysflag.PULL_SUSPEND if hold_s > 0 else 0) | (sysflag.PULL_LITE if self.lite else 0),
            suspendTimeoutMillis=int(hold_s * 1000),
            expressionType=TAG,
            bname=queue.broker,
        )

    async def _pull(self, queue: MessageQueue, header: PullMessageRequest, timeout_s: float) -> PullResult:
        answer, found = await self._ask(queue, header, timeout_s)
        return PullResult(
            STATUSES[answer.code],
            found.nextBeginOffset,
            found.minOffset,
            found.maxOffset,
            _records(answer.body, header.queueOffset, found.offsetDelta or 0) if answer.code == 0 else (),
        )

    async def _ask(
        self, queue: MessageQueue, header: PullMessageRequest, timeout_s: float
    ) -> tuple[Command, PullMessageResponse]:
        flags = header.sysFlag

        async def ask(replica: Replica) -> Command:
            header.sysFlag = flags
            if replica.id != MASTER_ID:  # a slave does not pass the commit on to the master
                header.sysFlag &= ~sysflag.PULL_COMMIT_OFFSET
            question = request(self._pull_code(replica), header)
            return await self.calls.call(replica.address, question, timeout_s)

        answer = await self.routes.ask_replica(queue, ask, self._suggested.pop(queue, MASTER_ID))
        if answer.code not in STATUSES:
            raise refusal(answer.code, answer.remark)
        found = PullMessageResponse.from_ext(answer.ext)
        if found.suggestWhichBrokerId != MASTER_ID:
            self._suggested[queue] = found.suggestWhichBrokerId
        elif answer.code != ResponseCode.SUCCESS:  # not while it catches up: that is a pull after the other
            self.routes.sent_to_master(queue)
        return answer, found

    def _pull_code(self, replica: Replica) -> RequestCode:
        knows_lite = self.versions.get(replica.address, 0) >= V5_0_0
        return RequestCode.LITE_PULL_MESSAGE if self.lite and knows_lite else RequestCode.PULL_MESSAGE

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._offset(
            queue, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest(queue.topic, queue.id, bname=queue.broker)
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        """Returns the queue offset that the next message will have."""
        return await self._offset(
            queue, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(queue.topic, queue.id, bname=queue.broker)
        )

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Returns the queue offset of the first message stored at `time_ms` or later; if none, the end."""
        header = SearchOffsetRequest(queue.topic, queue.id, time_ms, bname=queue.broker)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Header) -> int:
        question = request(code, header)
        answer = await self.routes.ask_replica(
            queue, lambda replica: self.calls.call(replica.address, question, CALL_TIMEOUT_S)
        )
        return OffsetResponse.from_ext(successful(answer).ext).offset


def records_of(answer: PulledBytes, begin: int) -> tuple[Record, ...]:
    """Decodes the records of an answer to a pull at offset `begin`, with the queue's offsets."""
    return _records(answer.body, begin, answer.delta) if answer.body else ()


def _records(body: bytes | memoryview, begin: int, delta: int) -> tuple[Record, ...]:
    """Decodes records, without batched messages below offset `begin`; adds `delta` to their queue offsets."""
    found = tuple(decode_all(body))
    if any(is_wrapped(one.sys_flag) for one in found):
        found = tuple(
            message for one in found for message in messages_of(one) if message.queue_offset >= begin
        )
    return tuple(replace(one, queue_offset=one.queue_offset + delta) for one in found) if delta else found
