"""Which queues are ours, and how they come and go.

Looked at every 20 seconds, and at once when a broker says that the group has other members. Nobody decides
it: every member computes the same from the same lists (`rebalance.py`). A queue that comes is locked first if
the consumer is ordered, begins where the group is, and is read by a loop of its own; one that goes has its
offset committed, for whoever takes it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from turbopump.client.heartbeats import Heartbeats
from turbopump.client.instance import complain
from turbopump.client.message import MessageQueue
from turbopump.client.process_queue import ProcessQueue
from turbopump.client.push.locks import QueueLocks
from turbopump.client.push.offsets import Offsets
from turbopump.client.push.pulling import FAILURES
from turbopump.client.rebalance import share, shift
from turbopump.client.routes import Routes
from turbopump.client.strategies import Strategy
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

UNBALANCED_S = 1.0  # something could not be had: look again soon
LOCKED_S = 0.5  # another still has the lock of a queue that is ours now
PULL_IDLE_S = 120.0  # a queue whose loop has not pulled for so long is taken anew

Changed = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], Awaitable[None]]
"""Told a topic, all its queues and ours, when ours have changed."""


class Deliveries(Protocol):
    """What queues need of those who deliver their messages."""

    def begin(self, queue: MessageQueue, held: ProcessQueue) -> None: ...

    async def leave(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """False: not yet, a handler is at work."""


@dataclass
class Queues:
    group: str
    client_id: str
    routes: Routes
    heartbeats: Heartbeats
    clock: Clock
    offsets: Offsets
    deliveries: Deliveries
    start_of: Callable[[MessageQueue], Awaitable[int]]
    pull: Callable[[MessageQueue, ProcessQueue], Coroutine[Any, Any, None]]
    topics: Callable[[], Sequence[str]]
    is_paused: Callable[[], bool]
    changed: Changed
    strategy: Strategy
    locks: QueueLocks | None
    shares: bool
    """False: every member has every queue."""
    interval_s: float = 20.0
    held: dict[MessageQueue, ProcessQueue] = field(default_factory=dict, init=False)
    _pulls: dict[MessageQueue, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _due: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _again_s: float = field(default=UNBALANCED_S, init=False)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def look_soon(self) -> None:
        self._due.set()

    async def keep_balanced(self) -> None:
        """Until cancelled."""
        while True:
            self._due.clear()
            self._again_s = UNBALANCED_S
            is_balanced = self.is_paused() or await self.balance()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.interval_s if is_balanced else self._again_s):
                    await self._due.wait()

    async def balance(self) -> bool:
        """True when we hold exactly what is ours."""
        async with self._changing:
            wanted = list(self.topics())
            gone = [queue for queue in self.held if queue.topic not in wanted]
            given_up = await asyncio.gather(*(self._drop(queue) for queue in gone))
            return all([await self._balance_topic(topic) for topic in wanted]) and all(given_up)

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """The group is to go on elsewhere in this queue: give it up, and take it again from there."""
        held = self.held.get(queue)
        if held is None:
            return
        held.dropped = True
        await self.deliveries.leave(queue, held)
        self._forget(queue)
        log.info("Group %s goes on in %s at offset %d", self.group, queue, offset)
        await self.commit_one(queue, offset)
        self.look_soon()

    async def pull_no_more(self) -> None:
        pulls = list(self._pulls.values())
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)

    async def leave_all(self) -> None:
        """At the end: offsets, then locks, so that whoever has a queue next sees how far it is."""
        await asyncio.gather(*(self.commit_one(queue, held.committable) for queue, held in self.held.items()))
        if self.locks is not None and self.held:
            await self.locks.unlock(self.held)
        for held in self.held.values():
            held.dropped = True
        self.held.clear()

    def positions(self) -> dict[MessageQueue, int]:
        return {queue: held.committable for queue, held in self.held.items()}

    async def commit_one(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self.offsets.commit(queue, offset)
        except FAILURES as error:
            log.warning("Offset %d of %s is not committed: %s", offset, queue, error)

    # One topic

    async def _balance_topic(self, topic: str) -> bool:
        try:
            queues = await self._queues(topic)
            members = await self._members(topic)
        except FAILURES as error:
            log.info("Queues of %s cannot be divided now: %s", topic, error)
            return False
        if self.client_id not in members:  # then our queues are others' by now, until we are back
            self.heartbeats.renew()
        mine = self._mine(queues, members)
        change = shift([queue for queue in self.held if queue.topic == topic], mine)
        stuck = [queue for queue in mine if self._is_stuck(queue)]
        given_up = await asyncio.gather(*(self._drop(queue) for queue in (*change.dropped, *stuck)))
        taken = await asyncio.gather(*(self._take(queue) for queue in (*change.taken, *stuck)))
        if any(given_up) or any(taken):
            own = sorted(queue for queue in self.held if queue.topic == topic)
            log.info("Group %s, topic %s: %d queues are ours", self.group, topic, len(own))
            await self.changed(topic, queues, own)
        return self.client_id in members and all(taken) and all(given_up)

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        await self.routes.renew(topic)  # what was known serves while a name server is away, or new itself
        return (await self.routes.find(topic)).subscribe

    async def _members(self, topic: str) -> list[str]:
        return await self.heartbeats.members(self.group, topic) if self.shares else [self.client_id]

    def _mine(self, queues: Sequence[MessageQueue], members: Sequence[str]) -> tuple[MessageQueue, ...]:
        if not self.shares:
            return tuple(queues)
        try:
            return tuple(sorted(share(queues, members, self.client_id, self.strategy)))
        except Exception:  # the user's own: what we have stays ours until it does better
            log.exception("The allocation strategy failed")
            return tuple(queue for queue in queues if queue in self.held)

    def _is_stuck(self, queue: MessageQueue) -> bool:
        """Nothing reads it: its loop has died, or it was to be another's for a moment."""
        held = self.held.get(queue)
        if held is None or held.leaving:
            return held is not None
        if not held.last_pull_ms or held.count:
            return False
        return self.clock.now_ms() - held.last_pull_ms > PULL_IDLE_S * 1000 and not self.is_paused()

    # One queue

    async def _take(self, queue: MessageQueue) -> bool:
        if queue in self.held:  # it is still being given up
            return False
        if self.locks is not None and not await self.locks.lock(queue):
            log.info("%s is still locked by another member", queue)
            self._again_s = LOCKED_S
            return False
        try:
            start = await self.start_of(queue)
        except FAILURES as error:
            log.warning("Where to begin in %s cannot be known yet: %s", queue, error)
            return False
        held = self.held[queue] = ProcessQueue(start)
        if self.locks is not None:
            self.locks.given(held)
        self.deliveries.begin(queue, held)
        self._begin_pulling(queue, held)
        return True

    def pull_again(self, topic: str) -> None:
        """The subscription has changed: a pull that waits at a broker has the old one."""
        for queue, held in self.held.items():
            if queue.topic == topic and queue in self._pulls:
                self._stop_pulling(queue)
                self._begin_pulling(queue, held)

    def _begin_pulling(self, queue: MessageQueue, held: ProcessQueue) -> None:
        pull = self._pulls[queue] = asyncio.get_running_loop().create_task(self.pull(queue, held))
        pull.add_done_callback(lambda task: self._pull_ended(queue, held, task))

    async def _drop(self, queue: MessageQueue) -> bool:
        """The queue is another's, who goes on where we committed. False: not yet."""
        held = self.held.get(queue)
        if held is None:
            return True
        self._stop_pulling(queue)
        if not await self.deliveries.leave(queue, held):
            await self.commit_one(queue, held.committable)
            return False
        self._forget(queue)
        await self.commit_one(queue, held.committable)
        if self.locks is not None:
            await self.locks.unlock([queue])
        return True

    def _forget(self, queue: MessageQueue) -> None:
        self.held.pop(queue, None)
        self._stop_pulling(queue)

    def _stop_pulling(self, queue: MessageQueue) -> None:
        pull = self._pulls.pop(queue, None)
        if pull is not None and pull is not asyncio.current_task():
            pull.cancel()

    def _pull_ended(self, queue: MessageQueue, held: ProcessQueue, task: asyncio.Task[None]) -> None:
        """A loop that died by a fault of ours is begun anew, from what was committed."""
        complain(task)
        if not task.cancelled() and task.exception() is not None and self.held.get(queue) is held:
            held.dropped = True
            self._forget(queue)
            self.look_soon()
