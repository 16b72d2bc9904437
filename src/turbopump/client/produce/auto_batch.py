"""Single sends gathered into batches unasked (`auto_batch`): they wait a moment for others of their kind.

What comes in: one message at a time. What goes out: to each its own receipt, as if it had been sent alone. A
batch leaves when it has enough bytes or its oldest message has waited long enough. What a batch cannot hold,
and what comes while too many bytes wait, is for the caller to send at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from turbopump.client.errors import NotRunning
from turbopump.client.instance import complain
from turbopump.client.message import Message, MessageQueue, SendResult
from turbopump.client.message_fields import TIMERS
from turbopump.client.produce import batches
from turbopump.client.produce.prepared_send import PreparedSend
from turbopump.client.produce.sender import Pick, Sender
from turbopump.client.settings import ProducerSettings
from turbopump.protocol import names, properties

Deliver: TypeAlias = Callable[[PreparedSend, Pick | None], Awaitable[SendResult]]
Kind: TypeAlias = tuple[str, MessageQueue | None, bool, str]
"""Topic, queue, whether to wait for the disk, tag: what a batch has in common."""

ALONE = TIMERS | {properties.PRODUCER_GROUP, properties.TRANSACTION_PREPARED}
"""Properties of messages that are never part of a batch."""
LARGEST_PROPERTIES = 4096  # characters; with more, a message may be one that fails, and takes none with it


@dataclass
class _OpenBatch:
    """A batch that is still open."""

    queue: MessageQueue | None
    messages: list[Message] = field(default_factory=list)
    receipts: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size: int = 0
    timer: asyncio.TimerHandle | None = None


class AutoBatcher:
    def __init__(self, sender: Sender, settings: ProducerSettings, deliver: Deliver) -> None:
        self.held = 0
        """Bytes of all that waits or is under way."""
        self._sender = sender
        self._settings = settings
        self._deliver = deliver
        self._heaps: dict[Kind, _OpenBatch] = {}
        self._flushes: set[asyncio.Task[None]] = set()

    def takes(self, message: Message) -> bool:
        """False: send it alone."""
        size, settings = len(message.body), self._settings
        if size > settings.batch_max_bytes or self.held + size > settings.total_batch_max_bytes:
            return False
        if message.is_delayed or message.priority is not None or message.topic.startswith(names.RETRY_PREFIX):
            return False
        if not message.properties and not message.keys:
            return True
        own = message.property_map()
        return ALONE.isdisjoint(own) and sum(map(len, own.values())) <= LARGEST_PROPERTIES

    async def send(self, message: Message, queue: MessageQueue | None) -> SendResult:
        """`queue` is one with its namespace, or any. Raises what a send raises."""
        loop = asyncio.get_running_loop()
        kind = message.topic, queue, message.wait_store_ok, message.tags
        heap = self._heaps.get(kind)
        if heap is None:
            heap = self._heaps[kind] = _OpenBatch(queue)
            heap.timer = loop.call_later(self._settings.batch_max_delay, self._flush, kind)
        receipt: asyncio.Future[SendResult] = loop.create_future()
        heap.messages.append(message)
        heap.receipts.append(receipt)
        heap.size += len(message.body)
        self.held += len(message.body)
        if heap.size > self._settings.batch_max_bytes:
            self._flush(kind)
        return await receipt

    async def close(self) -> None:
        """Returns when all that was gathered is sent, or has failed."""
        for kind in list(self._heaps):
            self._flush(kind)
        if self._flushes:
            await asyncio.wait(self._flushes)

    def _flush(self, kind: Kind) -> None:
        heap = self._heaps.pop(kind)
        assert heap.timer is not None
        heap.timer.cancel()
        flush = asyncio.get_running_loop().create_task(self._send(heap))
        self._flushes.add(flush)
        flush.add_done_callback(self._flushes.discard)
        flush.add_done_callback(complain)

    async def _send(self, heap: _OpenBatch) -> None:
        """In as many requests as it takes, each on its own: what one of them cannot do is not the others'."""
        wanted = [pair for pair in zip(heap.messages, heap.receipts, strict=True) if not pair[1].done()]
        messages, receipts = [one for one, _ in wanted], iter([receipt for _, receipt in wanted])
        queue = heap.queue
        pick: Pick | None = None if queue is None else lambda queues: queue
        try:
            for letter, ids in batches.prepared_chunks(
                self._sender, messages, self._settings.max_message_size
            ):
                await self._settle(letter, ids, pick, [next(receipts) for _ in ids])
        except BaseException:  # whatever it is, nobody waits for ever
            _fail(receipts, NotRunning("the producer ended before this was sent"))
            raise
        finally:
            self.held -= heap.size

    async def _settle(
        self,
        letter: PreparedSend,
        ids: list[str],
        pick: Pick | None,
        receipts: list[asyncio.Future[SendResult]],
    ) -> None:
        try:
            results = batches.split_result(await self._deliver(letter, pick), ids)
        except Exception as error:
            _fail(receipts, error)
            return
        for receipt, result in zip(receipts, results, strict=True):
            if not receipt.done():
                receipt.set_result(result)


def _fail(receipts: Iterable[asyncio.Future[SendResult]], error: Exception) -> None:
    for receipt in receipts:
        if not receipt.done():
            receipt.set_exception(error)
