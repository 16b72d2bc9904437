"""Collects single sends into batches (`auto_batch`): a message waits a moment for others of its topic.

In: one message at a time. Out: a receipt for each, as if it had been sent alone. A batch is sent when it
holds enough bytes or its oldest message has waited long enough. The caller sends at once what a batch cannot
hold, and what comes while too many bytes wait.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from turbopump.client.errors import NotRunning
from turbopump.client.message import Message, MessageQueue, SendResult
from turbopump.client.message_fields import TIMERS
from turbopump.client.produce import batches
from turbopump.client.produce.prepared_send import PreparedSend
from turbopump.client.produce.sender import Pick, Sender
from turbopump.client.settings import ProducerSettings
from turbopump.protocol import names, properties
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

Deliver: TypeAlias = Callable[[PreparedSend, Pick | None], Awaitable[SendResult]]
BatchKey: TypeAlias = tuple[str, MessageQueue | None, bool, str]
"""Topic, queue, whether to wait for the disk, and tag: what the messages of a batch have in common."""

NEVER_BATCHED = TIMERS | {properties.PRODUCER_GROUP, properties.TRANSACTION_PREPARED}
"""Properties of messages that are never part of a batch."""
# A message with longer properties may be refused by the broker; alone, it fails no other message.
MAX_PROPERTY_CHARACTERS = 4096


@dataclass
class _OpenBatch:
    """A batch that still takes messages, with the receipt of each; `size` counts the bytes of the bodies."""

    queue: MessageQueue | None
    messages: list[Message] = field(default_factory=list)
    receipts: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size: int = 0
    timer: asyncio.TimerHandle | None = None


class AutoBatcher:
    """Collects single sends into batches and gives each message its own receipt."""

    def __init__(self, sender: Sender, settings: ProducerSettings, deliver: Deliver) -> None:
        self.held = 0
        """Bytes of all messages that wait or are in flight."""
        self._sender = sender
        self._settings = settings
        self._deliver = deliver
        self._open: dict[BatchKey, _OpenBatch] = {}
        self._flushes = Tasks(log)

    def takes(self, message: Message) -> bool:
        """Returns whether the message may join a batch; False also if too many bytes wait: send it alone."""
        size, settings = len(message.body), self._settings
        if size > settings.batch_max_bytes or self.held + size > settings.total_batch_max_bytes:
            return False
        if message.is_delayed or message.priority is not None or message.topic.startswith(names.RETRY_PREFIX):
            return False
        if not message.properties and not message.keys:
            return True
        own = message.property_map()
        return NEVER_BATCHED.isdisjoint(own) and sum(map(len, own.values())) <= MAX_PROPERTY_CHARACTERS

    async def send(self, message: Message, queue: MessageQueue | None) -> SendResult:
        """Adds the message to an open batch; returns its result when the batch is stored. No `queue`: any.

        `queue` has its wire name, with the namespace. Raises what a send raises.
        """
        loop = asyncio.get_running_loop()
        key = message.topic, queue, message.wait_store_ok, message.tags
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _OpenBatch(queue)
            batch.timer = loop.call_later(self._settings.batch_max_delay, self._flush, key)
        receipt: asyncio.Future[SendResult] = loop.create_future()
        batch.messages.append(message)
        batch.receipts.append(receipt)
        batch.size += len(message.body)
        self.held += len(message.body)
        if batch.size > self._settings.batch_max_bytes:
            self._flush(key)
        return await receipt

    async def close(self) -> None:
        """Sends all open batches; returns when every collected message is stored or has failed."""
        for key in list(self._open):
            self._flush(key)
        await self._flushes.wait()

    def _flush(self, key: BatchKey) -> None:
        batch = self._open.pop(key)
        assert batch.timer is not None
        batch.timer.cancel()
        self._flushes.start(self._send(batch), name="send a batch")

    async def _send(self, batch: _OpenBatch) -> None:
        """Sends the batch in as many requests as needed; a request that fails does not fail the others."""
        wanted = [pair for pair in zip(batch.messages, batch.receipts, strict=True) if not pair[1].done()]
        messages, receipts = [one for one, _ in wanted], iter([receipt for _, receipt in wanted])
        queue = batch.queue
        pick: Pick | None = None if queue is None else lambda queues: queue
        try:
            for prepared, ids in batches.prepared_chunks(
                self._sender.packer, messages, self._settings.max_message_size
            ):
                await self._settle(prepared, ids, pick, [next(receipts) for _ in ids])
        except BaseException:  # whatever it is, no caller may wait for ever
            _fail(receipts, NotRunning("the producer ended before this message was sent"))
            raise
        finally:
            self.held -= batch.size

    async def _settle(
        self,
        prepared: PreparedSend,
        ids: list[str],
        pick: Pick | None,
        receipts: list[asyncio.Future[SendResult]],
    ) -> None:
        """Sends one request and sets the result, or the exception, of the receipt of each of its messages."""
        try:
            results = batches.split_result(await self._deliver(prepared, pick), ids)
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
