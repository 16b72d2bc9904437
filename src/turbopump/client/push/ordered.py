"""Messages to handlers in the order of their queues: a stream for each queue, one delivery of it at a time.

A delivery that fails is repeated after a pause, and nothing of its queue goes on before. A handler may keep
what it took uncommitted, and later commit it or have it all again. In a group that shares its queues, a
stream runs only while the broker's lock of its queue is ours (`locks.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from turbopump.client.group.consume_stats import TopicConsumeStats
from turbopump.client.group.consume_status import UNCOMMITTED, DeliveryFailure
from turbopump.client.group.send_back import SendBack
from turbopump.client.instance import complain
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.concurrent import complain_of
from turbopump.client.push.handler_invoker import HandlerInvoker
from turbopump.client.push.handlers import Handler, Messages
from turbopump.client.push.locks import OrderedQueueLocks
from turbopump.client.push.process_queue import ProcessQueue
from turbopump.client.push.workers import SLICE_S, ConcurrencySlots, ThreadPool, WorkerPoolSize, cancelled
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

NOT_LOCKED_S = 3.0
NEXT_SLICE_S = 0.01
LEAVE_S = 0.5  # for the delivery that runs, before others are asked to wait
UNLOCK_LATE_S = 20.0  # since the last lock: then the queue is given up though a handler has not ended
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 30.0
RUN_S = 0.05  # deliveries in a row that a thread makes before it comes back to the loop
RUN_MESSAGES = 64


@dataclass(frozen=True, slots=True)
class OrderedLimits:
    """How an ordered queue waits."""

    pause_s: float = 1.0
    slice_s: float = 60.0
    max_reconsume_times: int = (1 << 31) - 1


class OrderedDelivery:
    """`locks` is None when broadcasting: every member has every queue."""

    def __init__(
        self,
        calling: HandlerInvoker,
        send_back: SendBack | None,
        locks: OrderedQueueLocks | None,
        clock: Clock,
        figures: Callable[[str], TopicConsumeStats],
        crew: WorkerPoolSize,
        patience: OrderedLimits,
    ) -> None:
        self.calling = calling
        self.clock = clock
        self._send_back = send_back
        self._locks = locks
        self._figures = figures
        self._patience = patience
        self._slots = ConcurrencySlots(crew)
        self._threads = ThreadPool[_OrderedRun](crew, _collect, calling.group)
        self._streams: dict[ProcessQueue, asyncio.Task[None]] = {}

    # Life of a queue

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(queue, held))
        self._streams[held] = task
        task.add_done_callback(complain)
        task.add_done_callback(lambda _: self._streams.pop(held, None))

    async def leave(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """True when the queue can go to another: no handler works on it, or it has taken too long."""
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
        held.dropped = True  # what a handler still does has no effect any more
        held.wake()
        return True

    def submit(self, queue: MessageQueue, held: ProcessQueue, messages: object) -> None:
        """Streams see for themselves what has come."""

    def resize(self) -> None:
        self._slots.resize()
        self._threads.resize()

    async def stop(self, patience_s: float) -> None:
        """No delivery is begun any more; those that run may end."""
        for held in self._streams:
            held.leaving = True
            held.wake()
        if streams := list(self._streams.values()):
            _, late = await asyncio.wait(streams, timeout=patience_s)
            if late:
                log.warning("Handlers of %s did not end within %s s", self.calling.group, patience_s)
                await cancelled(late)
        self._threads.end()

    async def expire(self, held_queues: object, timeout_s: float) -> None:
        """An ordered message is waited for, however long it takes."""

    # The stream

    async def _serve(self, queue: MessageQueue, held: ProcessQueue) -> None:
        while not (held.dropped or held.leaving):
            if not held.waiting:
                await held.arrival()
                continue
            if not await self._is_locked(queue, held):
                await self._wait(held, NOT_LOCKED_S)
                continue
            await self._slots.take()
            try:
                pause_s = await self._work(queue, held)
            finally:
                self._slots.give()
            if pause_s:
                await self._wait(held, pause_s)

    async def _is_locked(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        if self._may_go_on(held):
            return True
        if self._locks is None or held.leaving or not await self._locks.lock(queue):
            return False
        self._locks.given(held)
        return True

    def _may_go_on(self, held: ProcessQueue) -> bool:
        if held.dropped or held.leaving:
            return False
        return self._locks is None or self._locks.is_valid(held)

    async def _work(self, queue: MessageQueue, held: ProcessQueue) -> float:
        """Deliveries in a row, until there is nothing more or others should have their turn. The pause."""
        began_s = turn_s = self.clock.monotonic()
        while held.waiting and self._may_go_on(held):
            now_s = self.clock.monotonic()
            if now_s - began_s > self._patience.slice_s:
                return NEXT_SLICE_S
            if now_s - turn_s > SLICE_S:
                await asyncio.sleep(0)
                turn_s = self.clock.monotonic()
            most = max(RUN_MESSAGES, self.calling.handler(held.first(1)[0]).size)
            handler, messages = self.calling.handlers_of(held.first(most))[0]
            batch, failure = await self._deliver(held, handler, messages, self._figures(queue.topic))
            held.last_consume_ms = self.clock.now_ms()
            if failure is None or held.dropped:
                continue
            pause_s = await self._failed(held, handler, batch, failure)
            if pause_s is not None:
                return pause_s
        return 0.0

    async def _deliver(
        self, held: ProcessQueue, handler: Handler, messages: Messages, figures: TopicConsumeStats
    ) -> tuple[Messages, DeliveryFailure | None]:
        """The batch that failed, and how; what comes before it is consumed and finished."""
        if not handler.is_async:
            run = _OrderedRun(self, held, handler, messages, figures)
            self._threads.submit([run])
            return await run.result
        monotonic, size = self.clock.monotonic, handler.size
        began_s = monotonic()
        until_s = began_s + SLICE_S
        batch, failure = messages[:size], None
        for start in range(0, len(messages), size):
            batch = messages[start : start + size]
            failure = await self.calling.deliver(handler, batch)
            self._count(held, batch, failure, began_s, figures)
            began_s = monotonic()
            if failure is UNCOMMITTED:
                failure = None
            if failure is not None:
                self._note_cancellation(held, failure)
                break
            if began_s > until_s or not self._may_go_on(held):
                break
        return batch, failure

    def _note_cancellation(self, held: ProcessQueue, failure: DeliveryFailure) -> None:
        """By us, at the end, or by the handler itself, which is a failure like others."""
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
        figures: TopicConsumeStats,
    ) -> None:
        now_s = self.clock.monotonic()
        if failure is not None and failure is not UNCOMMITTED:
            figures.count_failed(len(batch), now_s)
            return
        figures.consumed.add(now_s, len(batch), (now_s - began_s) * 1000)
        if held.dropped:
            return
        if failure is UNCOMMITTED:
            held.keep(len(batch))
        else:
            held.commit(batch)

    async def _failed(
        self, held: ProcessQueue, handler: Handler, batch: Messages, failure: DeliveryFailure
    ) -> float | None:
        """The pause before the same comes again; None when all of it could be given away."""
        complain_of(failure, batch)
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
            if failed_enough and await self._give_away(message):
                held.finish([message])
            else:
                held.replace(replace(message, local_retries=message.local_retries + 1))
                again = True
        return self._pause_s(failure) if again else None

    def _pause_s(self, failure: DeliveryFailure) -> float:
        pause_s = self._patience.pause_s if failure.pause_s is None else failure.pause_s
        return min(max(pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    async def _give_away(self, message: MessageExt) -> bool:
        """It has failed as often as it may: a copy to the retry topic, where the broker counts too much of
        it and makes it a dead letter.
        """
        return self._send_back is not None and await self._send_back.send_copy(message)

    async def _wait(self, held: ProcessQueue, seconds: float) -> None:
        """Shorter when the queue leaves."""
        until_s = self.clock.monotonic() + seconds
        while not (held.leaving or held.dropped) and (left_s := until_s - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(left_s, 1.0))


class _OrderedRun:
    """Deliveries of one queue to a `def`, one after the other, in a thread."""

    lacks = 0

    def __init__(
        self,
        of: OrderedDelivery,
        held: ProcessQueue,
        handler: Handler,
        messages: Messages,
        figures: TopicConsumeStats,
    ) -> None:
        self._of = of
        self._held = held
        self._handler = handler
        self._messages = messages
        self._figures = figures
        self._ends: list[tuple[Messages, DeliveryFailure | None, float]] = []
        self.result: asyncio.Future[tuple[Messages, DeliveryFailure | None]] = (
            asyncio.get_running_loop().create_future()
        )

    def run(self) -> None:
        size, monotonic = self._handler.size, self._of.clock.monotonic
        until_s = monotonic() + RUN_S
        for start in range(0, len(self._messages), size):
            batch = self._messages[start : start + size]
            began_s = monotonic()
            failure = self._of.calling.run(self._handler, batch)
            self._ends.append((batch, failure, began_s))
            failed = failure is not None and failure is not UNCOMMITTED
            if failed or monotonic() > until_s or not self._of._may_go_on(self._held):
                return

    async def deliver(self) -> bool:
        raise AssertionError("this is work for a thread")

    def absorb(self, other: object) -> bool:
        return False

    def done(self) -> None:
        for batch, failure, began_s in self._ends:
            self._of._count(self._held, batch, failure, began_s, self._figures)
        batch, failure, _ = self._ends[-1]
        if not self.result.done():
            self.result.set_result((batch, None if failure is UNCOMMITTED else failure))


def _collect(runs: list[_OrderedRun]) -> None:
    for run in runs:
        run.done()
