"""Filling shelves: a pull loop for each queue of a pull consumer, while there is room for its messages."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turbopump.client.counted_log import CountedLog
from turbopump.client.group.rebalancer import FAILURES
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageQueue
from turbopump.client.observe.hooks import Filter, let_through
from turbopump.client.pull.prefetch_buffer import PrefetchBuffer, PrefetchBuffers
from turbopump.client.pull.puller import Puller, PullResult, PullStatus
from turbopump.client.queue_names import QueueNames
from turbopump.client.settings import PullSettings
from turbopump.protocol.errors import FlowControl
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

ROOM_S = 1.0  # a loop without room looks again after that, whatever it missed
FLOW_CONTROL_S = 0.02
EMPTY_S = 0.1  # after an empty answer that came at once: a broker that holds no pulls must not be hammered


@dataclass
class Prefetcher:
    puller: Puller
    names: QueueNames
    shelves: PrefetchBuffers
    settings: PullSettings
    clock: Clock
    move: Callable[[MessageQueue, int], None]
    """The broker says that the group goes on elsewhere in this queue."""
    arrived: asyncio.Event
    """Set when messages have come."""
    room: asyncio.Event
    """Set by others when messages have gone, or a queue may be read again."""
    filters: Sequence[Filter] = ()
    _failures: CountedLog = field(default_factory=lambda: CountedLog(log), init=False)

    async def fill(self, shelf: PrefetchBuffer, subscription: Subscription) -> None:
        """Until cancelled, or the shelf is dropped."""
        while not shelf.dropped:
            if shelf.paused or self.shelves.is_full(shelf):
                await self._wait_for_room()
                continue
            try:
                result, took_s = await self._pull(shelf, subscription)
            except FlowControl:
                await self.clock.sleep(FLOW_CONTROL_S)
            except FAILURES as error:
                at = shelf.queue
                self._failures.log((at.topic, at.broker), "Pulling %s failed, trying again: %s", at, error)
                self.puller.routes.doubt(shelf.queue.topic)
                await self.clock.sleep(self.settings.pull_time_delay_when_exception)
            else:
                if result.status is PullStatus.OFFSET_ILLEGAL:
                    self._go_on_elsewhere(shelf, result.next_offset)
                    return
                if not self._take_in(shelf, subscription, result) and took_s < EMPTY_S:
                    await self.clock.sleep(EMPTY_S)

    async def _pull(self, shelf: PrefetchBuffer, subscription: Subscription) -> tuple[PullResult, float]:
        settings = self.settings
        began_s = self.clock.monotonic()
        shelf.last_pull_ms = self.clock.now_ms()
        result = await self.puller.pull(
            shelf.queue,
            shelf.next_offset,
            subscription.expression,
            settings.pull_batch_size,
            settings.broker_suspend_max_time,
            kind=subscription.kind,
            max_bytes=settings.pull_batch_size_in_bytes,
            timeout_s=settings.consumer_timeout_when_suspend,
        )
        return result, self.clock.monotonic() - began_s

    def _take_in(self, shelf: PrefetchBuffer, subscription: Subscription, result: PullResult) -> bool:
        """False: the answer brought nothing and led nowhere."""
        before = shelf.next_offset
        messages = result.messages(self.names.shown(shelf.queue), subscription, self.names.namespace)
        if self.filters:
            messages = let_through(self.filters, messages)
        self.shelves.put(shelf, messages, result.next_offset)
        if messages:
            self.arrived.set()
        return bool(messages) or result.next_offset != before

    def _go_on_elsewhere(self, shelf: PrefetchBuffer, offset: int) -> None:
        """The offset is not there (any more), or a tool has moved the group: what is held counts no more."""
        log.warning("%s has no offset %d: going on at %d", shelf.queue, shelf.next_offset, offset)
        self.move(shelf.queue, offset)

    async def _wait_for_room(self) -> None:
        self.room.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROOM_S):
                await self.room.wait()
