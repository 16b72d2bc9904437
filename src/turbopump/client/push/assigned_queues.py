"""The queues that are ours, and how they come and go; which they are is for `division.py` to say.

A queue that comes is locked first if the consumer is ordered, begins where the group is, and is read by a
loop of its own. One that goes has its offset committed, for whoever takes it; while an ordered handler is
still at work on it, it is leaving, and nobody's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from turbopump.client.counted_log import CountedLog
from turbopump.client.group.offsets import OffsetStore
from turbopump.client.group.rebalancer import FAILURES, Assignment, AssignmentSource, Rebalancer
from turbopump.client.instance import complain
from turbopump.client.message import MessageQueue
from turbopump.client.push.locks import OrderedQueueLocks
from turbopump.client.push.process_queue import ProcessQueue
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

LOCKED_S = 0.5  # another still has the lock of a queue that is ours now: look again
PULL_IDLE_S = 120.0  # a queue whose loop has not pulled for so long is taken anew


class QueueDelivery(Protocol):
    """What queues need of those who deliver their messages."""

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None: ...

    async def leave(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """False: not yet, a handler is at work."""


@dataclass
class AssignedQueues:
    group: str
    clock: Clock
    offsets: OffsetStore
    deliveries: QueueDelivery
    start_of: Callable[[MessageQueue], Awaitable[int]]
    pull: Callable[[MessageQueue, ProcessQueue], Coroutine[Any, Any, None]]
    topics: Callable[[], Sequence[str]]
    is_paused: Callable[[], bool]
    divided: Callable[[str, Assignment], None]
    """Told a topic when what is ours of it has changed."""
    locks: OrderedQueueLocks | None
    share_of: AssignmentSource
    interval_s: float = 20.0
    ours: dict[MessageQueue, ProcessQueue] = field(default_factory=dict, init=False)
    _leaving: dict[MessageQueue, ProcessQueue] = field(default_factory=dict, init=False)
    _pulls: dict[MessageQueue, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _farewells: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _failures: CountedLog = field(default_factory=lambda: CountedLog(log), init=False)

    def __post_init__(self) -> None:
        self._division = Rebalancer(self, self._share, self.interval_s)

    async def keep_balanced(self) -> None:
        """Until cancelled."""
        await self._division.keep()

    async def balance(self) -> bool:
        return await self._division.balance()

    def look_soon(self) -> None:
        self._division.look_again()

    def positions(self) -> dict[MessageQueue, int]:
        return {queue: held.committable for queue, held in self.ours.items()}

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """The group is to go on elsewhere in this queue: give it up, and take it again from there."""
        held = self.ours.pop(queue, None)
        if held is None:
            return
        held.dropped = True
        self._leaving[queue] = held
        self._stop_pulling(queue)
        log.info("Group %s goes on in %s at offset %d", self.group, queue, offset)
        await self._commit(queue, offset)
        self._say_farewell(self._come_back(queue, held))

    def pull_again(self, topic: str) -> None:
        """The subscription has changed: a pull that waits at a broker has the old one."""
        for queue, held in self.ours.items():
            if queue.topic == topic and queue in self._pulls:
                self._stop_pulling(queue)
                self._begin_pulling(queue, held)

    async def pull_no_more(self) -> None:
        pulls = list(self._pulls.values())
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)

    async def leave_all(self) -> None:
        """At the end: offsets, then locks, so that whoever has a queue next sees how far it is."""
        for farewell in list(self._farewells):
            farewell.cancel()
        every = {**self.ours, **self._leaving}
        unkept = [(queue, held.committable) for queue, held in every.items() if not held.dropped]
        await asyncio.gather(*(self._commit(queue, offset) for queue, offset in unkept))
        if self.locks is not None and every:
            await self.locks.unlock(every)
        for held in every.values():
            held.dropped = True
        self.ours.clear()

    # What the division asks

    def held(self) -> Collection[MessageQueue]:
        return self.ours

    async def take(self, queue: MessageQueue) -> bool:
        """False: not now, try again."""
        if queue in self._leaving:
            return False
        if self.locks is not None and not await self.locks.lock(queue):
            log.info("%s is still locked by another member", queue)
            asyncio.get_running_loop().call_later(LOCKED_S, self.look_soon)
            return False
        try:
            start = await self.start_of(queue)
        except FAILURES as error:
            self._failures.log(queue, "Where to begin in %s cannot be known yet: %s", queue, error)
            return False
        held = self.ours[queue] = ProcessQueue(start)
        if self.locks is not None:
            self.locks.given(held)
        self.deliveries.begin(queue, held)
        self._begin_pulling(queue, held)
        return True

    async def drop(self, queue: MessageQueue) -> None:
        """The queue is another's, who goes on where we committed."""
        held = self.ours.pop(queue, None)
        if held is None:
            return
        self._stop_pulling(queue)
        if await self.deliveries.leave(queue, held):
            await self._hand_over(queue, held)
            return
        self._leaving[queue] = held
        self._say_farewell(self._leave_later(queue, held))

    async def _share(self, topic: str) -> Assignment:
        """While we pause, everything stays as it is."""
        if self.is_paused():
            own = tuple(queue for queue in self.ours if queue.topic == topic)
            return Assignment(own, own)
        for queue in [queue for queue, held in self.ours.items() if self._is_stuck(held)]:
            log.warning("%s was not pulled for %d s; it is taken anew", queue, PULL_IDLE_S)
            await self.drop(queue)
        return await self.share_of(topic)

    def _is_stuck(self, held: ProcessQueue) -> bool:
        if not held.last_pull_ms or held.count:
            return False
        return self.clock.now_ms() - held.last_pull_ms > PULL_IDLE_S * 1000

    # One queue

    def _say_farewell(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)
        task.add_done_callback(complain)

    async def _leave_later(self, queue: MessageQueue, held: ProcessQueue) -> None:
        while not await self.deliveries.leave(queue, held):
            continue
        await self._hand_over(queue, held)
        self._leaving.pop(queue, None)

    async def _come_back(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """To be taken anew when no ordered handler works on what was there before."""
        while not await self.deliveries.leave(queue, held):
            continue
        self._leaving.pop(queue, None)
        self.look_soon()

    async def _hand_over(self, queue: MessageQueue, held: ProcessQueue) -> None:
        await self._commit(queue, held.committable)
        if self.locks is not None:
            await self.locks.unlock([queue])

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self.offsets.commit(queue, offset)
        except FAILURES as error:
            log.warning("Offset %d of %s is not committed: %s", offset, queue, error)

    def _begin_pulling(self, queue: MessageQueue, held: ProcessQueue) -> None:
        pull = self._pulls[queue] = asyncio.get_running_loop().create_task(self.pull(queue, held))
        pull.add_done_callback(lambda task: self._pull_ended(queue, held, task))

    def _stop_pulling(self, queue: MessageQueue) -> None:
        pull = self._pulls.pop(queue, None)
        if pull is not None and pull is not asyncio.current_task():
            pull.cancel()

    def _pull_ended(self, queue: MessageQueue, held: ProcessQueue, task: asyncio.Task[None]) -> None:
        """A loop that died by a fault of ours is begun anew, from what was committed."""
        complain(task)
        if not task.cancelled() and task.exception() is not None and self.ours.get(queue) is held:
            held.dropped = True
            del self.ours[queue]
            self._pulls.pop(queue, None)
            self.look_soon()
