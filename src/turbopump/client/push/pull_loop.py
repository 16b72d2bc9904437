"""Reads an assigned queue: pull after pull, as fast as the handlers keep up.

Each queue has one loop. It waits while enough messages are held, while the consumer is paused, and after a
failure; it ends when the queue is given up.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from turbopump.client.counted_log import CountedLog
from turbopump.client.group.consume_stats import TopicConsumeStats
from turbopump.client.group.rebalancer import FAILURES
from turbopump.client.group.subscription import Subscription
from turbopump.client.heartbeats import Heartbeats
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.pull.puller import Puller, PullResult, PullStatus
from turbopump.client.pull.wanted_messages import WantedMessages
from turbopump.client.push.locks import OrderedQueueLocks
from turbopump.client.push.process_queue import CacheLimits, ProcessQueue
from turbopump.client.world import HOLD_S
from turbopump.protocol.errors import (
    FlowControl,
    SubscriptionNotFound,
    SubscriptionNotLatest,
)
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

FLOW_CONTROL_S = 0.02
PAUSED_S = 1.0
EMPTY_S = 0.1  # an answer without messages that came sooner was not held by the broker


@dataclass(frozen=True, slots=True)
class PullLoopSettings:
    """Batch sizes, pauses and options of the pulls of a push consumer."""

    batch: int = 32
    batch_bytes: int = 256 * 1024
    interval_s: float = 0.0
    failed_s: float = 1.0
    with_subscription: bool = False
    commits: bool = True
    """Whether pulls commit the offset; not when offsets are kept in a file."""
    hold_s: float = HOLD_S


@dataclass(frozen=True, slots=True)
class PullGate:
    """Holds pulls back while the consumer is paused, a queue has enough messages, or its lock is missing."""

    clock: Clock
    is_paused: Callable[[], bool]
    limits: Callable[[], CacheLimits]
    locks: OrderedQueueLocks | None
    unlocked_s: float

    async def passes(self, held: ProcessQueue) -> bool:
        """Returns True when the queue may be pulled now; otherwise waits, and returns False."""
        if self.is_paused():
            await self.clock.sleep(PAUSED_S)
        elif held.is_full(self.limits()):
            await held.wait_for_capacity(self.limits())
        elif self.locks is not None and not self.locks.is_valid(held):
            await self.clock.sleep(self.unlocked_s)
        else:
            return True
        return False


@dataclass
class PullLoop:
    """Pulls messages of assigned queues into their process queues; `run` is the loop of one queue."""

    puller: Puller
    heartbeats: Heartbeats
    clock: Clock
    settings: PullLoopSettings
    gate: PullGate
    wanted: WantedMessages
    subscription: Callable[[str], Subscription | None]
    stats: Callable[[str], TopicConsumeStats]
    on_messages: Callable[[MessageQueue, ProcessQueue, list[MessageExt]], None]
    """Called with the wanted messages of each pull."""
    moved: Callable[[MessageQueue, int], Awaitable[None]]
    """Called when the queue does not have the offset: it continues at this one."""
    _failures: CountedLog = field(default_factory=lambda: CountedLog(log), init=False)

    async def run(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """Pulls one queue into its process queue until the queue is given up, or moved to another offset."""
        while not held.dropped:
            if await self.gate.passes(held) and not await self._once(queue, held):
                return

    async def _once(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Makes one pull and passes its messages on; False: the queue was given up or moved, end the loop."""
        subscription = self.subscription(queue.topic)
        if subscription is None:
            await self.clock.sleep(self.settings.failed_s)
            return True
        began_s = self.clock.monotonic()
        try:
            result = await self._pull(queue, held, subscription)
        except FlowControl:
            await self.clock.sleep(FLOW_CONTROL_S)
            return True
        except (SubscriptionNotFound, SubscriptionNotLatest):
            self.heartbeats.renew()
            await self.clock.sleep(self.settings.failed_s)
            return True
        except FAILURES as error:
            self._failures.log((queue.topic, queue.broker), "Pull from %s failed, retrying: %s", queue, error)
            self.puller.routes.doubt(queue.topic)
            await self.clock.sleep(self.settings.failed_s)
            return True
        if held.dropped:
            return False
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self.moved(queue, result.next_offset)
            return False
        messages = self.wanted.of(result, queue, subscription)
        is_repeated = not result.records and result.next_offset == held.next_offset
        held.put(messages, result.next_offset)
        self.on_messages(queue, held, messages)
        # A slave of Apache's answers a consumer that is ahead of it at once, again and again.
        if is_repeated and self.clock.monotonic() - began_s < EMPTY_S:
            await self.clock.sleep(self.settings.failed_s)
        if self.settings.interval_s and result.status is PullStatus.FOUND:
            await self.clock.sleep(self.settings.interval_s)
        return True

    def _committed_with(self, held: ProcessQueue) -> int:
        """Returns the offset that the next pull commits; 0: none.

        Apache's brokers handle a pull and a commit of the same connection on different threads, and the older
        offset may be stored last. While nothing is unfinished, a larger offset needs the answer to this pull.
        """
        return held.committable if self.settings.commits and not held.count else 0

    async def _pull(self, queue: MessageQueue, held: ProcessQueue, subscription: Subscription) -> PullResult:
        held.last_pull_ms = self.clock.now_ms()
        began_s = self.clock.monotonic()
        settings = self.settings
        result = await self.puller.pull_as_member(
            queue,
            held.next_offset,
            subscription.version,
            self._committed_with(held),
            settings.batch,
            kind=subscription.kind,
            expression=subscription.text if settings.with_subscription else None,
            max_bytes=settings.batch_bytes,
            hold_s=settings.hold_s,
        )
        now_s = self.clock.monotonic()
        stats = self.stats(queue.topic)
        stats.pulls.add(now_s, 1, (now_s - began_s) * 1000)
        stats.pulled.add(now_s, len(result.records))
        return result
