"""Messages to the listener, several at a time, and what becomes of each.

A message leaves its process queue when the listener took it, or when it was sent back. One that could
neither be consumed nor sent back stays there, holds back its queue's offset, and is tried again here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from turbopump.client.figures import TopicFigures
from turbopump.client.message import MessageExt
from turbopump.client.process_queue import ProcessQueue
from turbopump.client.send_back import SendBack
from turbopump.protocol import bodies
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

AGAIN_S = 5.0  # until a message that could not be sent back is tried again here


class ConsumeStatus(Enum):
    CONSUME_SUCCESS = "CR_SUCCESS"
    RECONSUME_LATER = "CR_LATER"


Listener = Callable[[Sequence[MessageExt]], Awaitable[ConsumeStatus]]
"""Receives messages. An exception means RECONSUME_LATER."""


@dataclass(frozen=True, slots=True)
class Batch:
    held: ProcessQueue
    messages: tuple[MessageExt, ...]


class Consuming:
    def __init__(
        self,
        listener: Listener,
        send_back: SendBack,
        clock: Clock,
        figures: Callable[[str], TopicFigures],
        at_once: int,
        batch_size: int,
    ) -> None:
        self._listener = listener
        self._send_back = send_back
        self._clock = clock
        self._figures = figures
        self._at_once = at_once
        self._batch_size = batch_size
        self._waiting: deque[Batch] = deque()  # bounded by the limits of the process queues
        self._running: set[asyncio.Task[None]] = set()
        self._stopped = False

    def submit(self, held: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        for start in range(0, len(messages), self._batch_size):
            self._waiting.append(Batch(held, tuple(messages[start : start + self._batch_size])))
        self._begin()

    async def stop(self, patience_s: float) -> None:
        """Begins no batch any more and waits for those in hand; what takes longer is cancelled."""
        self._stopped = True
        self._waiting.clear()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=patience_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def directly(self, message: MessageExt) -> bodies.ConsumeMessageDirectlyResult:
        """For a tool: the listener's word on one message, without effect on any offset."""
        began_s = self._clock.monotonic()
        result = bodies.ConsumeMessageDirectlyResult()
        try:
            result.consumeResult = (await self._listener((message,))).value
        except Exception as error:
            result.consumeResult = "CR_THROW_EXCEPTION"
            result.remark = f"{type(error).__name__}: {error}"
        result.spentTimeMills = round((self._clock.monotonic() - began_s) * 1000)
        return result

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._at_once and not self._stopped:
            task = asyncio.get_running_loop().create_task(self._consume(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._begin()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("Consuming failed; the message stays where it is", exc_info=error)

    async def _consume(self, batch: Batch) -> None:
        held = batch.held
        if held.dropped:
            return
        began_s = self._clock.monotonic()
        is_consumed = await self._listen(batch.messages)
        self._count(batch, is_consumed, began_s)
        held.last_consume_ms = self._clock.now_ms()
        if held.dropped:  # whoever has the queue now will see these messages
            return
        left = [] if is_consumed else [one for one in batch.messages if not await self._send_back.send(one)]
        kept = {message.offset for message in left}
        held.finish(one.offset for one in batch.messages if one.offset not in kept)
        if left:
            again = [replace(message, local_retries=message.local_retries + 1) for message in left]
            asyncio.get_running_loop().call_later(AGAIN_S, self.submit, held, again)

    async def _listen(self, messages: tuple[MessageExt, ...]) -> bool:
        try:
            return await self._listener(messages) is ConsumeStatus.CONSUME_SUCCESS
        except Exception:
            log.exception("The listener failed with message %s", messages[0].message_id)
            return False

    def _count(self, batch: Batch, is_consumed: bool, began_s: float) -> None:
        now_s = self._clock.monotonic()
        figures = self._figures(batch.messages[0].queue.topic)
        count = len(batch.messages)
        if is_consumed:
            figures.consumed.add(now_s, count, (now_s - began_s) * 1000)
        else:
            figures.failed.add(now_s, count)
            figures.failed_in_hour.add(now_s, count)
