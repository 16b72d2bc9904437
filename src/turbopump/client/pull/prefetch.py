"""Prefetching: a pull loop for each queue of a pull consumer, which fills its buffer up to the limits."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from turbopump.client.counted_log import CountedLog
from turbopump.client.group.rebalancer import FAILURES
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageQueue
from turbopump.client.pull.prefetch_buffer import PrefetchBuffer, PrefetchBuffers
from turbopump.client.pull.puller import Puller, PullResult, PullStatus
from turbopump.client.pull.wanted_messages import WantedMessages
from turbopump.client.settings import PullSettings
from turbopump.protocol.errors import FlowControl
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

CAPACITY_CHECK_S = 1.0  # a loop whose buffer is full checks again after that, even without an event
FLOW_CONTROL_S = 0.02
EMPTY_S = 0.1  # pause after an empty answer that came at once, for a broker that does not hold pulls


@dataclass
class Prefetcher:
    """Fetches the messages of all queues of a pull consumer ahead of its polls."""

    puller: Puller
    wanted: WantedMessages
    buffers: PrefetchBuffers
    settings: PullSettings
    clock: Clock
    move: Callable[[MessageQueue, int], None]
    """Called when the broker says that the group continues at another offset of a queue."""
    arrived: asyncio.Event
    """Set when messages have come."""
    capacity_freed: asyncio.Event
    """Set by others when messages were given out, or a queue may be read again."""
    _failures: CountedLog = field(default_factory=lambda: CountedLog(log), init=False)

    async def fill(self, buffer: PrefetchBuffer, subscription: Subscription) -> None:
        """Pulls a queue into its buffer until cancelled, the buffer is dropped or its offset is illegal."""
        while not buffer.dropped:
            # A full or paused buffer waits; the shared event wakes all loops, and each checks its own.
            if buffer.paused or self.buffers.is_full(buffer):
                await self._wait_for_capacity()
                continue
            try:
                result, took_s = await self._pull(buffer, subscription)
            except FlowControl:
                await self.clock.sleep(FLOW_CONTROL_S)
            except FAILURES as error:
                at = buffer.queue
                self._failures.log((at.topic, at.broker), "Pull from %s failed, retrying: %s", at, error)
                self.puller.routes.doubt(buffer.queue.topic)
                await self.clock.sleep(self.settings.pull_time_delay_when_exception)
            else:
                if result.status is PullStatus.OFFSET_ILLEGAL:
                    self._move_to(buffer, result.next_offset)
                    return
                # A broker that answers "nothing" at once would be asked in a tight loop: pause.
                if not self._store(buffer, subscription, result) and took_s < EMPTY_S:
                    await self.clock.sleep(EMPTY_S)

    async def _pull(self, buffer: PrefetchBuffer, subscription: Subscription) -> tuple[PullResult, float]:
        settings = self.settings
        began_s = self.clock.monotonic()
        buffer.last_pull_ms = self.clock.now_ms()
        result = await self.puller.pull(
            buffer.queue,
            buffer.next_offset,
            subscription.expression,
            settings.pull_batch_size,
            settings.broker_suspend_max_time,
            kind=subscription.kind,
            max_bytes=settings.pull_batch_size_in_bytes,
            timeout_s=settings.consumer_timeout_when_suspend,
        )
        return result, self.clock.monotonic() - began_s

    def _store(self, buffer: PrefetchBuffer, subscription: Subscription, result: PullResult) -> bool:
        """Puts the messages of an answer into the buffer; False: the answer had none and moved no offset."""
        before = buffer.next_offset
        messages = self.wanted.of(result, buffer.queue, subscription)
        self.buffers.put(buffer, messages, result.next_offset)
        if messages:
            self.arrived.set()
        return bool(messages) or result.next_offset != before

    def _move_to(self, buffer: PrefetchBuffer, offset: int) -> None:
        """Continues the queue at another offset, because the broker does not have the old one (any more)."""
        log.warning("%s has no offset %d: continuing at %d", buffer.queue, buffer.next_offset, offset)
        self.move(buffer.queue, offset)

    async def _wait_for_capacity(self) -> None:
        self.capacity_freed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CAPACITY_CHECK_S):
                await self.capacity_freed.wait()
