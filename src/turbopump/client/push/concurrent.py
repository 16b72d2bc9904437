"""Delivers messages to handlers concurrently, in no particular order, and handles their failures.

A message leaves its process queue when its handler has consumed it, or when it was sent back. A message that
could neither be consumed nor sent back stays there, holds back its queue's offset, and is delivered again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from turbopump.client.group.consume_stats import TopicConsumeStats
from turbopump.client.group.consume_status import DeliveryFailure, RetryLater
from turbopump.client.group.send_back import SendBack
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.handler_invoker import HandlerInvoker
from turbopump.client.push.handlers import Handler, Messages
from turbopump.client.push.process_queue import ProcessQueue
from turbopump.client.push.workers import CoroutinePool, ThreadPool, WorkerPoolSize
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

RETRY_LOCALLY_S = 5.0  # until a message that could not be sent back is delivered again
EXPIRED_LEVEL = 3
EXPIRED_PER_ROUND = 16  # messages of one queue
_OF_ONE_QUEUE = attrgetter("held", "stats")


class HandlerCall:
    """One call of a handler with messages of one queue, with its times and its failure: a `WorkItem`."""

    __slots__ = (
        "_invoker",
        "_monotonic",
        "began_s",
        "capacity",
        "ended_s",
        "failure",
        "handler",
        "held",
        "messages",
        "stats",
    )

    def __init__(
        self,
        invoker: HandlerInvoker,
        held: ProcessQueue,
        handler: Handler,
        messages: Messages,
        stats: TopicConsumeStats,
        monotonic: Callable[[], float],
    ) -> None:
        self._invoker = invoker
        self._monotonic = monotonic
        self.held = held
        self.handler = handler
        self.messages = messages
        self.stats = stats
        self.capacity = handler.size - len(messages)
        self.began_s = -1.0
        self.ended_s = -1.0
        self.failure: DeliveryFailure | None = None

    def absorb(self, other: "HandlerCall") -> bool:
        """Takes over the messages of another call; False: other queue or handler, or they do not all fit."""
        if other.held is not self.held or other.handler is not self.handler:
            return False
        if len(other.messages) > self.capacity:
            return False
        self.messages += other.messages
        self.capacity -= len(other.messages)
        return True

    def run(self) -> None:
        if not self.held.dropped:
            self.began_s = self._monotonic()
            self.failure = self._invoker.run(self.handler, self.messages)
            self.ended_s = self._monotonic()

    async def deliver(self) -> bool:
        if self.held.dropped:
            return True
        self.began_s = self._monotonic()
        self.failure = await self._invoker.deliver(self.handler, self.messages)
        self.ended_s = self._monotonic()
        return self.failure is None


class ConcurrentDelivery:
    """Delivers messages to handlers concurrently, and sends those that failed back to the broker.

    `send_back` is None when broadcasting: there is no second delivery then.
    """

    def __init__(
        self,
        invoker: HandlerInvoker,
        send_back: SendBack | None,
        clock: Clock,
        stats: Callable[[str], TopicConsumeStats],
        pool_size: WorkerPoolSize,
    ) -> None:
        self.invoker = invoker
        self.clock = clock
        self._send_back = send_back
        self._stats = stats
        self._coroutines = CoroutinePool[HandlerCall](pool_size, self._ended, clock)
        self._threads = ThreadPool[HandlerCall](pool_size, self._ended, invoker.group)
        self._send_backs = Tasks(log)
        self._stopped = False

    # Queues

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """Does nothing: `submit` delivers what is pulled."""

    async def leave(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Gives up the queue at once and returns True; handlers that still run do not affect its offset."""
        held.dropped = True
        return True

    def submit(self, queue: MessageQueue, held: ProcessQueue, messages: Messages) -> None:
        if self._stopped or not messages:
            return
        stats = self._stats(queue.topic)
        for handler, own in self.invoker.by_handler(messages):
            self._submit(held, handler, own, stats)

    def _submit(
        self, held: ProcessQueue, handler: Handler, messages: Messages, stats: TopicConsumeStats
    ) -> None:
        invoker, monotonic, size = self.invoker, self.clock.monotonic, handler.size
        deliveries = [
            HandlerCall(invoker, held, handler, messages[start : start + size], stats, monotonic)
            for start in range(0, len(messages), size)
        ]
        (self._coroutines if handler.is_async else self._threads).submit(deliveries)

    # Results

    def _ended(self, deliveries: list[HandlerCall]) -> None:
        """Finishes and counts the messages of calls that have ended, and starts to send failed ones back."""
        now_ms = self.clock.now_ms()
        for (held, stats), own in groupby(deliveries, _OF_ONE_QUEUE):
            held.last_consume_ms = now_ms
            done: Messages = []
            took_s = ended_s = 0.0
            for call in own:
                # Not delivered: the queue was given up, or another call has absorbed the messages.
                if call.began_s < 0:
                    continue
                ended_s = call.ended_s
                if call.failure is None:
                    done += call.messages
                    took_s += ended_s - call.began_s
                else:
                    stats.count_failed(len(call.messages), ended_s)
                    if not held.dropped:
                        self._start_send_back(self._send_back_failed(call, call.failure))
            if done:
                stats.consumed.add(ended_s, len(done), took_s * 1000)
                if not held.dropped:  # else the member that has the queue now delivers these messages
                    held.finish(done)

    async def _send_back_failed(self, call: HandlerCall, failure: DeliveryFailure) -> None:
        held, messages = call.held, call.messages
        log_failure(failure, messages)
        held.finish(messages[: failure.consumed])
        failed = [message for message in messages[failure.consumed :] if held.holds(message)]
        if self._send_back is None:
            held.finish(failed)
            return
        left = []
        for message in failed:
            if await self._send_back.send(message, failure.delay_level):
                held.finish([message])
            else:
                left.append(replace(message, local_retries=message.local_retries + 1))
        for message in left:
            held.replace(message)
        if left:
            asyncio.get_running_loop().call_later(RETRY_LOCALLY_S, self._try_again, call, left)

    def _try_again(self, call: HandlerCall, messages: Messages) -> None:
        if not (self._stopped or call.held.dropped):
            self._submit(call.held, call.handler, messages, call.stats)

    def _start_send_back(self, work: Coroutine[Any, Any, None]) -> None:
        self._send_backs.start(work, name="send back")

    async def expire(self, held_queues: Iterable[ProcessQueue], timeout_s: float) -> None:
        """Sends back each queue's first messages while their handler has run longer than `timeout_s` seconds.

        Their workers count no more: a handler that blocks for ever costs a worker, not the consumer.
        """
        now_s = self.clock.monotonic()
        late = [
            call
            for pool in (self._coroutines, self._threads)
            for call in pool.in_progress()
            if 0 <= call.began_s < now_s - timeout_s
        ]
        for held in held_queues:
            for _ in range(EXPIRED_PER_ROUND):
                first = held.first(1)
                found = [one for one in late if one.held is held and first and first[0] in one.messages]
                if not found or not await self._give_up(found[0], first[0]):
                    break

    async def _give_up(self, call: HandlerCall, message: MessageExt) -> bool:
        held = call.held
        if self._send_back is not None:
            log.warning(
                "The handler of message %s runs for too long; sending the message back", message.message_id
            )
            if not await self._send_back.send(message, EXPIRED_LEVEL):
                return False
        if held.holds(message):
            held.finish([message])
        if not any(held.holds(one) for one in call.messages):
            self._coroutines.abandon(call)
            self._threads.abandon(call)
        return True

    # Workers

    def resize(self) -> None:
        self._coroutines.resize()
        self._threads.resize()

    async def stop(self, patience_s: float) -> None:
        """Starts no more calls, waits up to `patience_s` seconds for those that run, and ends the workers."""
        self._stopped = True
        self._coroutines.discard_waiting()
        self._threads.discard_waiting()
        try:
            async with asyncio.timeout(patience_s):
                await self._coroutines.wait_done()
                await self._threads.wait_done()
                await self._send_backs.wait()
        except TimeoutError:
            log.warning("Handlers of %s did not end within %s s", self.invoker.group, patience_s)
        await self._send_backs.close()
        self._threads.end()
        await self._coroutines.end()


def log_failure(failure: DeliveryFailure, messages: Messages) -> None:
    """Logs a failed delivery, with the traceback unless the handler asked for a retry."""
    what = (messages[0].message_id, messages[0].topic)
    if failure.error is None or isinstance(failure.error, RetryLater):
        log.info("The handler asks for message %s of %s again later", *what)
    else:
        log.warning("The handler failed with message %s of %s", *what, exc_info=failure.error)
