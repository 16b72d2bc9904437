"""The queues assigned to a push consumer, and how they are taken and given up; `rebalancer.py` says which.

A new queue is locked first if the consumer is ordered, begins at the offset of the group, and is read by a
loop of its own. When a queue is given up, its offset is committed for the next member; while an ordered
handler still works on it, the queue is leaving, and no member reads it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from turbopump.client.counted_log import CountedLog
from turbopump.client.group.offsets import OffsetStore
from turbopump.client.group.rebalancer import FAILURES, Assignment, AssignmentSource, Rebalancer
from turbopump.client.message import MessageQueue
from turbopump.client.push.locks import OrderedQueueLocks
from turbopump.client.push.process_queue import ProcessQueue
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

LOCKED_S = 0.5  # until the next try when another member still has the lock
PULL_IDLE_S = 120.0  # a queue that was not pulled for longer is given up and taken again


class QueueDelivery(Protocol):
    """What `AssignedQueues` uses of the part that calls handlers: begins and gives up queues."""

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None: ...

    async def leave(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Stops delivering messages of a queue; False: not yet, a handler still works on it, call again."""


class QueueMember(Protocol):
    """What `AssignedQueues` needs of the consumer that the queues are assigned to."""

    is_paused: bool

    @property
    def group(self) -> str: ...

    def topics(self) -> Sequence[str]: ...

    def assignment_changed(self, topic: str, assignment: Assignment) -> None:
        """Called with a topic when its assigned queues have changed."""


@dataclass
class AssignedQueues:
    """Holds the queues assigned to this member (`rebalancer.QueueHolder`), with a pull loop for each."""

    member: QueueMember
    clock: Clock
    offsets: OffsetStore
    deliveries: QueueDelivery
    start_of: Callable[[MessageQueue], Awaitable[int]]
    pull: Callable[[MessageQueue, ProcessQueue], Coroutine[Any, Any, None]]
    locks: OrderedQueueLocks | None
    assignment_of: AssignmentSource
    interval_s: float = 20.0
    ours: dict[MessageQueue, ProcessQueue] = field(default_factory=dict, init=False)
    _leaving: dict[MessageQueue, ProcessQueue] = field(default_factory=dict, init=False)
    _pulls: dict[MessageQueue, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _departures: Tasks = field(default_factory=lambda: Tasks(log), init=False)
    _pull_tasks: Tasks = field(default_factory=lambda: Tasks(log), init=False)
    _failures: CountedLog = field(default_factory=lambda: CountedLog(log), init=False)

    def __post_init__(self) -> None:
        self._rebalancer = Rebalancer(self, self._assignment, self.interval_s)

    async def run(self) -> None:
        """Takes and gives up queues by regular rebalances until cancelled."""
        await self._rebalancer.run()

    async def rebalance(self) -> bool:
        return await self._rebalancer.rebalance()

    def rebalance_soon(self) -> None:
        self._rebalancer.rebalance_soon()

    def positions(self) -> dict[MessageQueue, int]:
        return {queue: held.committable for queue, held in self.ours.items()}

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """Continues a queue at another offset: commits the offset, gives up the queue, and takes it again."""
        held = self.ours.pop(queue, None)
        if held is None:
            return
        held.dropped = True
        self._leaving[queue] = held
        self._stop_pull(queue)
        log.info("Group %s continues in %s at offset %d", self.member.group, queue, offset)
        await self._commit(queue, offset)
        self._depart(self._come_back(queue, held))

    def pull_again(self, topic: str) -> None:
        """Restarts the pulls of a topic, because a pull that waits at a broker has the old subscription."""
        for queue, held in self.ours.items():
            if queue.topic == topic and queue in self._pulls:
                self._stop_pull(queue)
                self._start_pull(queue, held)

    async def stop_pulling(self) -> None:
        await self._pull_tasks.close()

    async def leave_all(self) -> None:
        """Gives up all queues: commits offsets, then unlocks, so that the next member sees the offsets."""
        await self._departures.close()
        every = {**self.ours, **self._leaving}
        unkept = [(queue, held.committable) for queue, held in every.items() if not held.dropped]
        await asyncio.gather(*(self._commit(queue, offset) for queue, offset in unkept))
        if self.locks is not None and every:
            await self.locks.unlock(every)
        for held in every.values():
            held.dropped = True
        self.ours.clear()

    # Requests of the rebalancer

    def topics(self) -> Sequence[str]:
        return self.member.topics()

    def assignment_changed(self, topic: str, assignment: Assignment) -> None:
        self.member.assignment_changed(topic, assignment)

    def held(self) -> Collection[MessageQueue]:
        return self.ours

    async def take(self, queue: MessageQueue) -> bool:
        """Locks a queue if ordered, and starts reading it; False: not possible now, try again later."""
        if queue in self._leaving:
            return False
        if self.locks is not None and not await self.locks.lock(queue):
            if not self.locks.is_away(queue.broker):
                log.info("%s is still locked by another member", queue)
                asyncio.get_running_loop().call_later(LOCKED_S, self.rebalance_soon)
            return False
        try:
            start = await self.start_of(queue)
        except FAILURES as error:
            self._failures.log(queue, "Cannot determine the start offset of %s yet: %s", queue, error)
            return False
        held = self.ours[queue] = ProcessQueue(start)
        if self.locks is not None:
            self.locks.granted(held)
        self.deliveries.begin(queue, held)
        self._start_pull(queue, held)
        return True

    async def drop(self, queue: MessageQueue) -> None:
        """Gives up a queue: commits its offset and unlocks it, later if an ordered handler still works on it.

        The next member continues at the committed offset.
        """
        held = self.ours.pop(queue, None)
        if held is None:
            return
        self._stop_pull(queue)
        if await self.deliveries.leave(queue, held):
            await self._hand_over(queue, held)
            return
        self._leaving[queue] = held
        self._depart(self._leave_later(queue, held))

    async def _assignment(self, topic: str) -> Assignment:
        """Returns this member's assignment of a topic (while paused: what it holds); drops stuck queues."""
        if self.member.is_paused:
            own = tuple(queue for queue in self.ours if queue.topic == topic)
            return Assignment(own, own)
        for queue in [queue for queue, held in self.ours.items() if self._is_stuck(held)]:
            log.warning("%s was not pulled for %d s; taking it again", queue, PULL_IDLE_S)
            await self.drop(queue)
        return await self.assignment_of(topic)

    def _is_stuck(self, held: ProcessQueue) -> bool:
        if not held.last_pull_ms or held.count:
            return False
        return self.clock.now_ms() - held.last_pull_ms > PULL_IDLE_S * 1000

    # One queue

    def _depart(self, work: Coroutine[Any, Any, None]) -> None:
        self._departures.start(work, name="give up a queue")

    async def _leave_later(self, queue: MessageQueue, held: ProcessQueue) -> None:
        while not await self.deliveries.leave(queue, held):
            continue
        await self._hand_over(queue, held)
        self._leaving.pop(queue, None)

    async def _come_back(self, queue: MessageQueue, held: ProcessQueue) -> None:
        """Waits until no ordered handler works on a moved queue; then a rebalance may take it again."""
        while not await self.deliveries.leave(queue, held):
            continue
        self._leaving.pop(queue, None)
        self.rebalance_soon()

    async def _hand_over(self, queue: MessageQueue, held: ProcessQueue) -> None:
        await self._commit(queue, held.committable)
        if self.locks is not None:
            await self.locks.unlock([queue])

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self.offsets.commit(queue, offset)
        except FAILURES as error:
            log.warning("Cannot commit offset %d of %s: %s", offset, queue, error)

    def _start_pull(self, queue: MessageQueue, held: ProcessQueue) -> None:
        pull = self._pulls[queue] = self._pull_tasks.start(self.pull(queue, held), name=f"pull {queue}")
        pull.add_done_callback(lambda task: self._pull_ended(queue, held, task))

    def _stop_pull(self, queue: MessageQueue) -> None:
        pull = self._pulls.pop(queue, None)
        if pull is not None and pull is not asyncio.current_task():
            pull.cancel()

    def _pull_ended(self, queue: MessageQueue, held: ProcessQueue, task: asyncio.Task[None]) -> None:
        """Gives up a queue whose pull loop failed: a rebalance takes it again at the committed offset."""
        if not task.cancelled() and task.exception() is not None and self.ours.get(queue) is held:
            held.dropped = True
            del self.ours[queue]
            self._pulls.pop(queue, None)
            self.rebalance_soon()
