"""Keeps the queues that a member of a group holds equal to its assignment of each topic.

The assignment comes from a function (the group's strategy over the members that brokers know, or the user's
own assignment); the holder takes and gives up queues. Rebalances regularly, at once when asked to, and soon
when a queue could not be taken.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from turbopump.client.counted_log import CountedLog
from turbopump.client.group.rebalance import Strategy, assignment_change, own_queues
from turbopump.client.instance import ClientInstance
from turbopump.client.message import MessageQueue
from turbopump.protocol.errors import BrokenBody, BrokenRecord, Refused, TopicNotFound
from turbopump.protocol.names import RETRY_PREFIX

log = logging.getLogger(__name__)

BALANCE_S = 20.0
UNBALANCED_S = 1.0  # until the next try when a queue could not be taken

FAILURES = (OSError, Refused, BrokenBody, BrokenRecord)
"""What a broker or the connection to it may cause. It is logged, and tried again."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """All readable queues of a topic, and those of them that are assigned to this member."""

    queues: tuple[MessageQueue, ...]
    """All readable queues of the topic."""
    mine: tuple[MessageQueue, ...]
    is_settled: bool = True
    """False: it will change soon, because brokers do not know this member."""


AssignmentSource = Callable[[str], Awaitable[Assignment]]
"""Returns the assignment of a topic. May raise one of FAILURES: then nothing changes."""


class QueueHolder(Protocol):
    """Interface of a consumer to its `Rebalancer`, which makes it take and drop queues."""

    def topics(self) -> Iterable[str]: ...

    def held(self) -> Collection[MessageQueue]: ...

    async def take(self, queue: MessageQueue) -> bool:
        """Takes a queue and begins to read it; False: that is not possible now, and is tried again."""

    async def drop(self, queue: MessageQueue) -> None: ...

    def assignment_changed(self, topic: str, assignment: Assignment) -> None:
        """Called after queues of a topic were taken or dropped."""


class Rebalancer:
    """Takes and gives up queues so that a holder has exactly its assignment."""

    def __init__(
        self, holder: QueueHolder, assignment_of: AssignmentSource, interval_s: float = BALANCE_S
    ) -> None:
        self._holder = holder
        self._assignment_of = assignment_of
        self._interval_s = interval_s
        self._due = asyncio.Event()
        self._missing: set[str] = set()
        self._failures = CountedLog(log, logging.INFO)
        self._one_at_a_time = asyncio.Lock()

    def rebalance_soon(self) -> None:
        """Makes `run` rebalance at once instead of at the end of its interval."""
        self._due.set()

    async def run(self) -> None:
        """Rebalances at intervals, at once after `rebalance_soon`, soon after a failure, until cancelled."""
        while True:
            self._due.clear()
            pause_s = self._interval_s if await self.rebalance() else UNBALANCED_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._due.wait()

    async def rebalance(self) -> bool:
        """Rebalances all topics now; returns whether exactly the assigned queues are held."""
        async with self._one_at_a_time:
            topics = set(self._holder.topics())
            unsubscribed = [queue for queue in self._holder.held() if queue.topic not in topics]
            await asyncio.gather(*(self._holder.drop(queue) for queue in unsubscribed))
            return all([await self._rebalance_topic(topic) for topic in sorted(topics)])

    async def _rebalance_topic(self, topic: str) -> bool:
        try:
            ours = await self._assignment_of(topic)
        except TopicNotFound as error:
            self._log_missing(topic, error)
            return False
        except FAILURES as error:
            self._failures.log(topic, "Cannot assign queues of %s now: %s", topic, error)
            return False
        except Exception:  # a strategy of the user failed: nothing changes until it works
            log.exception("Cannot assign queues of %s: the allocation strategy failed", topic)
            return False
        if topic in self._missing:
            self._missing.discard(topic)
            log.info("Topic %s exists now; consuming it", topic)
        change = assignment_change(
            [queue for queue in self._holder.held() if queue.topic == topic], ours.mine
        )
        await asyncio.gather(*(self._holder.drop(queue) for queue in change.dropped))
        taken = await asyncio.gather(*(self._holder.take(queue) for queue in change.taken))
        if change.dropped or any(taken):
            log.info("Topic %s: %d queues are assigned to this consumer", topic, len(ours.mine))
            self._holder.assignment_changed(topic, ours)
        return ours.is_settled and all(taken)

    def _log_missing(self, topic: str, error: TopicNotFound) -> None:
        """Logs that a topic does not exist: a warning once per topic, for retry topics a rate-limited line.

        The name may be misspelt. A retry topic is created with the first retry.
        """
        if topic.startswith(RETRY_PREFIX):
            self._failures.log(topic, "Cannot assign queues of %s now: %s", topic, error)
        elif topic not in self._missing:
            self._missing.add(topic)
            log.warning(
                "Topic %s does not exist, so nothing is consumed from it: check the name, or create it with "
                "`turbopump admin updateTopic` or Admin.topics.create; consuming starts when it exists",
                topic,
            )


@dataclass
class GroupAssignment:
    """Assigns a topic's queues by the group's strategy among its members; all queues when broadcasting.

    The members are those that a broker of the topic knows.
    """

    instance: ClientInstance
    group: str
    strategy: Strategy
    is_broadcast: bool = False
    """Whether every member has all queues."""

    async def __call__(self, topic: str) -> Assignment:
        queues = await readable_queues(self.instance, topic)
        if self.is_broadcast:
            return Assignment(queues, queues)
        members = await self.instance.heartbeats.members(self.group, topic)
        me = self.instance.client_id
        if me not in members:  # other members have our queues until a heartbeat makes us known again
            self.instance.heartbeats.renew()
        return Assignment(queues, own_queues(queues, members, me, self.strategy), me in members)


async def readable_queues(instance: ClientInstance, topic: str) -> tuple[MessageQueue, ...]:
    """Returns the readable queues of a topic, by a fresh route, or else by the last known one.

    A name server that has just started knows no topic until brokers register. Raises TopicNotFound or OSError
    when no route is known.
    """
    await instance.routes.renew(topic)
    return (await instance.routes.find(topic)).subscribe
