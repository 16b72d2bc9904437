"""Lists half messages that are open or expired, resumes expired ones, and lists ids of the ledger.

Half messages are read from the brokers' own topics, so it works with Apache's brokers too. An expired one
stays until its file is deleted; when it is resumed, its producers are asked again.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from turbopump.client.admin.calls import AdminCalls, NotFound
from turbopump.client.admin.clusters import Clusters
from turbopump.client.admin.messages import Messages
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.routes import RouteCache
from turbopump.protocol import properties
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import QueryNotFound, RequestNotSupported, TopicNotFound
from turbopump.protocol.headers.ledger import LedgerForgetRequest, LedgerListRequest
from turbopump.protocol.headers.offsets import OffsetResponse, QueryConsumerOffsetRequest
from turbopump.protocol.headers.send import ResumeCheckHalfMessageRequest
from turbopump.protocol.ledger import BookSummary, read_summaries
from turbopump.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC

ELSEWHERE = "elsewhere"
GROUP = "CID_RMQ_SYS_TRANS"
"""The group under which brokers store up to where all transactions have ended."""


@dataclass
class Transactions:
    """Lists half messages that are open or expired, resumes expired ones, and lists ids of the ledger.

    Example:

        async for half in admin.transactions.open():
            print(half.message_id, topic_of(half), group_of(half))
        async for half in admin.transactions.expired():
            await admin.transactions.resume(half)
    """

    asking: AdminCalls
    messages: Messages
    routes: RouteCache

    async def open(self) -> AsyncIterator[MessageExt]:
        """Yields the half messages that are neither committed nor rolled back, by broker, oldest first."""
        for queue in await self._queues(HALF_TOPIC):
            ops = MessageQueue(OP_HALF_TOPIC, queue.broker, queue.id)
            begin = await self._progress(queue)
            ended = {
                number
                async for op in self._all(ops, await self._progress(ops))
                for number in _numbers(op.record.body)
            }
            async for half in self._all(queue, begin):
                if half.offset not in ended:
                    yield half

    async def expired(self) -> AsyncIterator[MessageExt]:
        """Yields the half messages that brokers no longer check, broker by broker, oldest first.

        Some may have ended, or have been resumed, since then.
        """
        for queue in await self._queues(CHECK_MAX_TIME_TOPIC):
            async for half in self._all(queue, 0):
                yield half

    async def resume(self, half: MessageExt) -> None:
        """Makes the broker ask producers about an expired half message again.

        Raises Refused if it is open or ended.
        """
        header = ResumeCheckHalfMessageRequest(msgId=half.offset_message_id, topic=half.record.topic)
        address = await self._address(half.queue)
        await self.asking.ask(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    async def ids(self) -> AsyncIterator[BookSummary]:
        """Yields a summary of each transactional id of the ledger: state, last batch, last use.

        Only Turbopump's brokers keep a ledger; others are skipped.

        Example:

            async for book in admin.transactions.ids():
                print(book.id, book.state, book.highest, book.used_ms)
        """
        for address in await self._masters():
            after = ""
            while found := await self._books(address, after):
                for book in found:
                    if book.state != ELSEWHERE:
                        yield book
                after = found[-1].id

    async def forget(self, id: str) -> int:
        """Removes a transactional id from the ledger; returns how many brokers knew the id.

        Its batches may be written again then. Raises Refused while messages of it wait for a decision or an
        end.
        """
        count = 0
        for address in await self._masters():
            with suppress(QueryNotFound, RequestNotSupported):
                await self.asking.ask(address, RequestCode.LEDGER_FORGET, LedgerForgetRequest(id=id))
                count += 1
        return count

    async def _books(self, address: str, after: str) -> list[BookSummary]:
        try:
            answer = await self.asking.ask(address, RequestCode.LEDGER_LIST, LedgerListRequest(after=after))
        except RequestNotSupported:
            return []
        return read_summaries(answer.body)

    async def _masters(self) -> list[str]:
        layout = await Clusters(self.asking).layout()
        return sorted(one.address for one in layout.brokers if one.id == MASTER_ID)

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            return (await self.routes.refresh(topic)).subscribe
        except TopicNotFound:  # no broker has had one yet
            return ()

    async def _all(self, queue: MessageQueue, begin: int) -> AsyncIterator[MessageExt]:
        puller = self.messages.puller
        begin, end = max(begin, await puller.min_offset(queue)), await puller.max_offset(queue)
        async for result in self.messages.pulls(queue, begin, end):
            for message in result.messages(queue, Subscription(queue.topic)):
                yield message

    async def _progress(self, queue: MessageQueue) -> int:
        header = QueryConsumerOffsetRequest(GROUP, queue.topic, queue.id, bname=queue.broker)
        try:
            answer = await self.asking.ask(
                await self._address(queue), RequestCode.QUERY_CONSUMER_OFFSET, header
            )
        except QueryNotFound:
            return 0
        return OffsetResponse.from_ext(answer.ext).offset

    async def _address(self, queue: MessageQueue) -> str:
        address = (await self.routes.find(HALF_TOPIC)).master(queue.broker)
        if address is None:
            raise NotFound(f"broker {queue.broker} has no master")
        return address


def topic_of(half: MessageExt) -> str:
    """Returns the topic that a half message goes to when it is committed."""
    return half.properties.get(properties.REAL_TOPIC, "")


def group_of(half: MessageExt) -> str:
    """Returns the producer group that brokers ask how the transaction of a half message ended."""
    return half.properties.get(properties.PRODUCER_GROUP, "")


def asked(half: MessageExt) -> int:
    """Returns how often brokers have asked producers about a half message."""
    times = half.properties.get(properties.TRANSACTION_CHECK_TIMES, "")
    return int(times) if times.isdecimal() else 0


def _numbers(body: bytes) -> list[int]:
    """Returns the queue offsets of the ended half messages that an op record's body names.

    It has one offset, or several with commas as 5.x writes them.
    """
    return [int(part) for part in body.split(b",") if part.isdigit()]
