"""Pulls from queues that a topic no longer has while their messages are still stored.

Brokers refuse to pull from such a queue. Its consume queue can still be queried, as mqadmin does, and then
each message by its log offset: slower, and only for what was left unread there.
"""

import asyncio
from dataclasses import dataclass

from turbopump.client.admin import Admin
from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import CALL_TIMEOUT_S, PulledBytes, Puller, PullStatus
from turbopump.pipelines.source.offsets import named
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.pull import DEFAULT_MAX_BYTES
from turbopump.protocol.headers.query import ViewMessageRequest
from turbopump.protocol.names import TAG

MAX_ENTRIES = 32  # messages per call


@dataclass
class StoredQueuePuller:
    """Pulls as `Puller.pull_bytes` does, also from queues that were removed and are still stored."""

    puller: Puller
    admin: Admin

    async def pull_bytes(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        max_count: int = 32,
        *,
        kind: str = TAG,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> PulledBytes:
        try:
            return await self.puller.pull_bytes(
                queue, offset, expression, max_count, kind=kind, max_bytes=max_bytes, timeout_s=timeout_s
            )
        except Refused as refused:
            if not is_of_removed(refused, queue):
                raise
            if kind != TAG:
                reason = f"the topic no longer reads {named(queue)}, so its broker cannot filter it"
                advice = "raise readQueueNums until it is read, or read without sql"
                raise Refused(refused.code, f"{reason}: {advice}") from None
        return await self._by_entries(queue, offset, min(max_count, MAX_ENTRIES))

    async def _by_entries(self, queue: MessageQueue, offset: int, count: int) -> PulledBytes:
        """Pulls at most `count` messages by consume queue entries, unfiltered: the reader compares tags."""
        address = (await self.puller.routes.find(queue.topic)).reader(queue.broker)
        if address is None:
            raise ConnectionError(f"broker {queue.broker} is not available")
        found = await self.admin.queues.entries(address, queue.topic, queue.id, offset, count)
        low, high = (found.minQueueIndex, found.maxQueueIndex) if found is not None else (0, 0)
        if found is None or not found.queueData or not low <= offset < high:
            status = PullStatus.OFFSET_ILLEGAL if offset < low else PullStatus.NO_NEW_MSG
            return PulledBytes(status, offset, low, high, b"", 0)
        records = await asyncio.gather(
            *(self._record(address, queue.topic, one.physicOffset) for one in found.queueData[:count])
        )
        return PulledBytes(PullStatus.FOUND, offset + len(records), low, high, b"".join(records), 0)

    async def _record(self, address: str, topic: str, place: int) -> bytes:
        header = ViewMessageRequest(place, topic)
        answer = await self.admin.asking.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        return bytes(answer.body)


def is_of_removed(refused: Refused, queue: MessageQueue) -> bool:
    """Tells whether a broker refuses because the topic has no such queue now; 4.x and 5.x use this text."""
    return f"queueId[{queue.id}] is illegal" in (refused.remark or "")
