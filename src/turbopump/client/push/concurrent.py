"""Messages to handlers, several at a time and in no particular order, and what becomes of each.

A message leaves its process queue when its handler took it, or when it was sent back. One that could neither
be consumed nor sent back stays there, holds back its queue's offset, and is tried again here.
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
from turbopump.client.instance import complain
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.handler_invoker import HandlerInvoker
from turbopump.client.push.handlers import Handler, Messages
from turbopump.client.push.process_queue import ProcessQueue
from turbopump.client.push.workers import CoroutinePool, ThreadPool, WorkerPoolSize
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

AGAIN_S = 5.0  # until a message that could not be sent back is tried again here
EXPIRED_LEVEL = 3
EXPIRED_AT_ONCE = 16  # of one queue in one look


_OF_ONE_QUEUE = attrgetter("held", "figures")


class HandlerCall:
    """One call of a handler."""

    __slots__ = (
        "_calling",
        "_monotonic",
        "began_s",
        "ended_s",
        "failure",
        "figures",
        "handler",
        "held",
        "lacks",
        "messages",
    )

    def __init__(
        self,
        calling: HandlerInvoker,
        held: ProcessQueue,
        handler: Handler,
        messages: Messages,
        figures: TopicConsumeStats,
        monotonic: Callable[[], float],
    ) -> None:
        self._calling = calling
        self._monotonic = monotonic
        self.held = held
        self.handler = handler
        self.messages = messages
        self.figures = figures
        self.lacks = handler.size - len(messages)
        self.began_s = -1.0
        self.ended_s = -1.0
        self.failure: DeliveryFailure | None = None

    def absorb(self, other: "HandlerCall") -> bool:
        """Of the same queue and handler, when there is room for all of it; it is not delivered twice."""
        if other.held is not self.held or other.handler is not self.handler:
            return False
        if len(other.messages) > self.lacks:
            return False
        self.messages += other.messages
        self.lacks -= len(other.messages)
        return True

    def run(self) -> None:
        if not self.held.dropped:
            self.began_s = self._monotonic()
            self.failure = self._calling.run(self.handler, self.messages)
            self.ended_s = self._monotonic()

    async def deliver(self) -> bool:
        if self.held.dropped:
            return True
        self.began_s = self._monotonic()
        self.failure = await self._calling.deliver(self.handler, self.messages)
        self.ended_s = self._monotonic()
        return self.failure is None


class ConcurrentDelivery:
    """`send_back` is None when broadcasting: there is no second delivery then."""

    def __init__(
        self,
        calling: HandlerInvoker,
        send_back: SendBack | None,
        clock: Clock,
        figures: Callable[[str], TopicConsumeStats],
        crew: WorkerPoolSize,
    ) -> None:
        self.calling = calling
        self.clock = clock
        self._send_back = send_back
        self._figures = figures
        self._coroutines = CoroutinePool[HandlerCall](crew, self._ended, clock)
        self._threads = ThreadPool[HandlerCall](crew, self._ended, calling.group)
        self._mending: set[asyncio.Task[None]] = set()
        self._stopped = False

    # Life of a queue

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """Nothing to prepare: what is pulled is delivered."""

    async def leave(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """What still runs has no effect any more, so the queue can go at once."""
        held.dropped = True
        return True

    def submit(self, queue: MessageQueue, held: ProcessQueue, messages: Messages) -> None:
        if self._stopped or not messages:
            return
        figures = self._figures(queue.topic)
        for handler, own in self.calling.by_handler(messages):
            self._submit(held, handler, own, figures)

    def _submit(
        self, held: ProcessQueue, handler: Handler, messages: Messages, figures: TopicConsumeStats
    ) -> None:
        calling, monotonic, size = self.calling, self.clock.monotonic, handler.size
        deliveries = [
            HandlerCall(calling, held, handler, messages[start : start + size], figures, monotonic)
            for start in range(0, len(messages), size)
        ]
        (self._coroutines if handler.is_async else self._threads).submit(deliveries)

    # What becomes of it

    def _ended(self, deliveries: list[HandlerCall]) -> None:
        """Those of one queue mostly come together, and are then counted and finished together."""
        now_ms = self.clock.now_ms()
        for (held, figures), own in groupby(deliveries, _OF_ONE_QUEUE):
            held.last_consume_ms = now_ms
            done: Messages = []
            took_s = ended_s = 0.0
            for delivery in own:
                if delivery.began_s < 0:  # not delivered: the queue is another's, or another batch had it
                    continue
                ended_s = delivery.ended_s
                if delivery.failure is None:
                    done += delivery.messages
                    took_s += ended_s - delivery.began_s
                else:
                    figures.count_failed(len(delivery.messages), ended_s)
                    if not held.dropped:
                        self._mend(self._send_away(delivery, delivery.failure))
            if done:
                figures.consumed.add(ended_s, len(done), took_s * 1000)
                if not held.dropped:  # else whoever has the queue now will see these messages
                    held.finish(done)

    async def _send_away(self, delivery: HandlerCall, failure: DeliveryFailure) -> None:
        held, messages = delivery.held, delivery.messages
        complain_of(failure, messages)
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
            asyncio.get_running_loop().call_later(AGAIN_S, self._try_again, delivery, left)

    def _try_again(self, delivery: HandlerCall, messages: Messages) -> None:
        if not (self._stopped or delivery.held.dropped):
            self._submit(delivery.held, delivery.handler, messages, delivery.figures)

    def _mend(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._mending.add(task)
        task.add_done_callback(self._mending.discard)
        task.add_done_callback(complain)

    async def expire(self, held_queues: Iterable[ProcessQueue], timeout_s: float) -> None:
        """A message that is in work for so long is sent back, so that its queue can go on. Whoever works on
        it is counted no more: one that blocks for ever costs a worker, not the consumer.
        """
        now_s = self.clock.monotonic()
        late = [
            delivery
            for pool in (self._coroutines, self._threads)
            for delivery in pool.in_hand()
            if 0 <= delivery.began_s < now_s - timeout_s
        ]
        for held in held_queues:
            for _ in range(EXPIRED_AT_ONCE):
                first = held.first(1)
                found = [one for one in late if one.held is held and first and first[0] in one.messages]
                if not found or not await self._give_up(found[0], first[0]):
                    break

    async def _give_up(self, delivery: HandlerCall, message: MessageExt) -> bool:
        held = delivery.held
        if self._send_back is not None:
            log.warning("Message %s is in work for too long and is sent back", message.message_id)
            if not await self._send_back.send(message, EXPIRED_LEVEL):
                return False
        if held.holds(message):
            held.finish([message])
        if not any(held.holds(one) for one in delivery.messages):
            self._coroutines.abandon(delivery)
            self._threads.abandon(delivery)
        return True

    # Workers

    def resize(self) -> None:
        self._coroutines.resize()
        self._threads.resize()

    async def stop(self, patience_s: float) -> None:
        """Begins nothing any more and waits for what is in hand; what takes longer is given up."""
        self._stopped = True
        self._coroutines.forget_waiting()
        self._threads.forget_waiting()
        try:
            async with asyncio.timeout(patience_s):
                await self._coroutines.quiet()
                await self._threads.quiet()
                while self._mending:
                    await asyncio.gather(*self._mending, return_exceptions=True)
        except TimeoutError:
            log.warning("Handlers of %s did not end within %s s", self.calling.group, patience_s)
        for task in list(self._mending):
            task.cancel()
        self._threads.end()
        await self._coroutines.end()


def complain_of(failure: DeliveryFailure, messages: Messages) -> None:
    """In the log, with the traceback when it was not meant."""
    what = (messages[0].message_id, messages[0].topic)
    if failure.error is None or isinstance(failure.error, RetryLater):
        log.info("Message %s of %s is wanted again later", *what)
    else:
        log.warning("The handler failed with message %s of %s", *what, exc_info=failure.error)
