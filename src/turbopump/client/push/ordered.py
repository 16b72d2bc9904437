"""Delivers messages in the order of their queues: one stream per queue, which makes one call at a time.

A call that fails is repeated after a pause, and the rest of its queue waits. A handler may leave what it
consumed uncommitted, and later commit it or get all of it again. In a group that shares its queues, a stream
runs only while this member holds the broker's lock of its queue (`locks.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from turbopump.client.group.consume_stats import TopicConsumeStats
from turbopump.client.group.consume_status import UNCOMMITTED, DeliveryFailure
from turbopump.client.group.send_back import SendBack
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.concurrent import log_failure
from turbopump.client.push.handler_invoker import HandlerInvoker
from turbopump.client.push.handlers import Handler, Messages
from turbopump.client.push.locks import OrderedQueueLocks
from turbopump.client.push.process_queue import ProcessQueue
from turbopump.client.push.workers import (
    TURN_S,
    ConcurrencySlots,
    ThreadPool,
    WorkerPoolSize,
    cancel_and_wait,
)
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

NOT_LOCKED_S = 3.0
NEXT_TURN_S = 0.01
LEAVE_S = 0.5  # how long giving up a queue waits for the call that runs
UNLOCK_LATE_S = 20.0  # after the last lock the queue is given up although a handler still runs
MIN_PAUSE_S, MAX_PAUSE_S = 0.01, 30.0
RUN_PER_TURN_S = 0.05  # how long a thread makes calls in a row before it returns to the loop
MESSAGES_PER_RUN = 64


@dataclass(frozen=True, slots=True)
class OrderedLimits:
    """Limits of ordered delivery: pause after a failure, length of a queue's turn, failures of a message."""

    pause_s: float = 1.0
    slice_s: float = 60.0
    max_reconsume_times: int = (1 << 31) - 1


class OrderedDelivery:
    """Delivers the messages of each queue to handlers in order, one call at a time per queue.

    `locks` is None when broadcasting: every member has every queue.
    """

    def __init__(
        self,
        invoker: HandlerInvoker,
        send_back: SendBack | None,
        locks: OrderedQueueLocks | None,
        clock: Clock,
        stats: Callable[[str], TopicConsumeStats],
        pool_size: WorkerPoolSize,
        patience: OrderedLimits,
    ) -> None:
        self.invoker = invoker
        self.clock = clock
        self._send_back = send_back
        self._locks = locks
        self._stats = stats
        self._patience = patience
        self._slots = ConcurrencySlots(pool_size)
        self._threads = ThreadPool[_OrderedRun](pool_size, _collect, invoker.group)
        self._streams: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._tasks = Tasks(log)

    # Queues

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """Starts the task that delivers the messages of a queue in order."""
        task = self._streams[held] = self._tasks.start(self._serve(queue, held), name=f"deliver {queue}")
        task.add_done_callback(lambda _: self._streams.pop(held, None))

    async def leave(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Stops delivering a queue; False: a handler still runs, call again; True 20 s after its lock."""
        held.leaving = True
        held.wake()
        stream = self._streams.get(held)
        if stream is not None:
            await asyncio.wait([stream], timeout=LEAVE_S)
            is_late = (
                self._locks is None
                or held.locked_at_s is None
                or self.clock.monotonic() - held.locked_at_s > UNLOCK_LATE_S
            )
            if not stream.done() and not is_late:
                return False
        held.dropped = True  # a handler that still runs has no effect any more
        held.wake()
        return True

    def submit(self, queue: MessageQueue, held: ProcessQueue, messages: object) -> None:
        """Does nothing: the task of each queue reads its process queue itself."""

    def resize(self) -> None:
        self._slots.resize()
        self._threads.resize()

    async def stop(self, patience_s: float) -> None:
        """Starts no more calls, waits up to `patience_s` seconds for those that run, cancels the rest."""
        for held in self._streams:
            held.leaving = True
            held.wake()
        if streams := list(self._streams.values()):
            _, late = await asyncio.wait(streams, timeout=patience_s)
            if late:
                log.warning("Handlers of %s did not end within %s s", self.invoker.group, patience_s)
                await cancel_and_wait(late)
        self._threads.end()

    async def expire(self, held_queues: object, timeout_s: float) -> None:
        """Does nothing: an ordered handler may take any time."""

    # One stream

    async def _serve(self, queue: MessageQueue, held: ProcessQueue) -> None:
        while not (held.dropped or held.leaving):
            if not held.waiting:
                await held.arrival()
                continue
            if not await self._is_locked(queue, held):
                await self._wait(held, NOT_LOCKED_S)
                continue
            await self._slots.acquire()
            try:
                pause_s = await self._work(queue, held)
            finally:
                self._slots.release()
            if pause_s:
                await self._wait(held, pause_s)

    async def _is_locked(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        if self._may_continue(held):
            return True
        if self._locks is None or held.leaving or not await self._locks.lock(queue):
            return False
        self._locks.granted(held)
        return True

    def _may_continue(self, held: ProcessQueue) -> bool:
        if held.dropped or held.leaving:
            return False
        return self._locks is None or self._locks.is_valid(held)

    async def _work(self, queue: MessageQueue, held: ProcessQueue) -> float:
        """Delivers messages of a queue until none waits or its turn is over; returns the seconds to pause."""
        began_s = turn_s = self.clock.monotonic()
        while held.waiting and self._may_continue(held):
            now_s = self.clock.monotonic()
            if now_s - began_s > self._patience.slice_s:
                return NEXT_TURN_S
            if now_s - turn_s > TURN_S:
                await asyncio.sleep(0)
                turn_s = self.clock.monotonic()
            count = max(MESSAGES_PER_RUN, self.invoker.handler(held.first(1)[0]).size)
            handler, messages = self.invoker.handlers_of(held.first(count))[0]
            batch, failure = await self._deliver(held, handler, messages, self._stats(queue.topic))
            held.last_consume_ms = self.clock.now_ms()
            if failure is None or held.dropped:
                continue
            pause_s = await self._failed(held, handler, batch, failure)
            if pause_s is not None:
                return pause_s
        return 0.0

    async def _deliver(
        self, held: ProcessQueue, handler: Handler, messages: Messages, stats: TopicConsumeStats
    ) -> tuple[Messages, DeliveryFailure | None]:
        """Delivers batches until one fails or time is up; returns the last one and its failure, None: none.

        The batches before it are finished.
        """
        if not handler.is_async:
            run = _OrderedRun(self, held, handler, messages, stats)
            self._threads.submit([run])
            return await run.result
        monotonic, size = self.clock.monotonic, handler.size
        began_s = monotonic()
        until_s = began_s + TURN_S
        batch, failure = messages[:size], None
        for start in range(0, len(messages), size):
            batch = messages[start : start + size]
            failure = await self.invoker.deliver(handler, batch)
            self._count(held, batch, failure, began_s, stats)
            began_s = monotonic()
            if failure is UNCOMMITTED:
                failure = None
            if failure is not None:
                self._note_cancellation(held, failure)
                break
            if began_s > until_s or not self._may_continue(held):
                break
        return batch, failure

    def _note_cancellation(self, held: ProcessQueue, failure: DeliveryFailure) -> None:
        """Raises a CancelledError caused by the consumer; clears one by the handler, which is a failure."""
        task = asyncio.current_task()
        if task is None or not isinstance(failure.error, asyncio.CancelledError):
            return
        if (held.leaving or held.dropped) and task.cancelling():
            raise failure.error
        while task.cancelling():
            task.uncancel()

    def _count(
        self,
        held: ProcessQueue,
        batch: Messages,
        failure: DeliveryFailure | None,
        began_s: float,
        stats: TopicConsumeStats,
    ) -> None:
        now_s = self.clock.monotonic()
        if failure is not None and failure is not UNCOMMITTED:
            stats.count_failed(len(batch), now_s)
            return
        stats.consumed.add(now_s, len(batch), (now_s - began_s) * 1000)
        if held.dropped:
            return
        if failure is UNCOMMITTED:
            held.keep(len(batch))
        else:
            held.commit(batch)

    async def _failed(
        self, held: ProcessQueue, handler: Handler, batch: Messages, failure: DeliveryFailure
    ) -> float | None:
        """Handles a failed batch; returns the seconds until its next delivery, None: it is finished."""
        log_failure(failure, batch)
        if failure.is_rollback:
            held.give_back()
            return self._pause_s(failure)
        if handler.commits:
            held.finish(batch[: failure.consumed])
        else:
            held.keep(len(batch[: failure.consumed]))
        again = False
        for message in batch[failure.consumed :]:
            failed_enough = message.reconsume_times >= self._patience.max_reconsume_times
            if failed_enough and await self._send_to_retry_topic(message):
                held.finish([message])
            else:
                held.replace(replace(message, local_retries=message.local_retries + 1))
                again = True
        return self._pause_s(failure) if again else None

    def _pause_s(self, failure: DeliveryFailure) -> float:
        pause_s = self._patience.pause_s if failure.pause_s is None else failure.pause_s
        return min(max(pause_s, MIN_PAUSE_S), MAX_PAUSE_S)

    async def _send_to_retry_topic(self, message: MessageExt) -> bool:
        """Sends a message that failed too often to the retry topic; True: stored there, False: not sent.

        There it becomes a dead letter.
        """
        return self._send_back is not None and await self._send_back.send_copy(message)

    async def _wait(self, held: ProcessQueue, seconds: float) -> None:
        """Sleeps for `seconds`, or about until the queue is being given up."""
        until_s = self.clock.monotonic() + seconds
        while not (held.leaving or held.dropped) and (left_s := until_s - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(left_s, 1.0))


class _OrderedRun:
    """A `WorkItem` that calls a `def` handler with batches of one queue, one after the other, in a thread."""

    capacity = 0

    def __init__(
        self,
        delivery: OrderedDelivery,
        held: ProcessQueue,
        handler: Handler,
        messages: Messages,
        stats: TopicConsumeStats,
    ) -> None:
        self._delivery = delivery
        self._held = held
        self._handler = handler
        self._messages = messages
        self._stats = stats
        self._ends: list[tuple[Messages, DeliveryFailure | None, float]] = []
        self.result: asyncio.Future[tuple[Messages, DeliveryFailure | None]] = (
            asyncio.get_running_loop().create_future()
        )

    def run(self) -> None:
        size, monotonic = self._handler.size, self._delivery.clock.monotonic
        until_s = monotonic() + RUN_PER_TURN_S
        for start in range(0, len(self._messages), size):
            batch = self._messages[start : start + size]
            began_s = monotonic()
            failure = self._delivery.invoker.run(self._handler, batch)
            self._ends.append((batch, failure, began_s))
            failed = failure is not None and failure is not UNCOMMITTED
            if failed or monotonic() > until_s or not self._delivery._may_continue(self._held):
                return

    async def deliver(self) -> bool:
        raise AssertionError("an ordered run works in a thread")

    def absorb(self, other: object) -> bool:
        return False

    def done(self) -> None:
        for batch, failure, began_s in self._ends:
            self._delivery._count(self._held, batch, failure, began_s, self._stats)
        batch, failure, _ = self._ends[-1]
        if not self.result.done():
            self.result.set_result((batch, None if failure is UNCOMMITTED else failure))


def _collect(runs: list[_OrderedRun]) -> None:
    for run in runs:
        run.done()
