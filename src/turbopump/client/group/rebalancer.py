"""Which queues are ours, kept so: what a member of a group holds follows what is its share of each topic.

The share comes from a function (the group's strategy over the members that brokers know, or whatever the
user assigned); taking and giving up a queue is the holder's matter. Looks again regularly, at once when
asked to, and soon when something could not be had.
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
UNBALANCED_S = 1.0  # something could not be had: look again soon

FAILURES = (OSError, Refused, BrokenBody, BrokenRecord)
"""What a broker or the way to it may cause. It is told, and tried again."""


@dataclass(frozen=True, slots=True)
class Assignment:
    queues: tuple[MessageQueue, ...]
    """All of the topic."""
    mine: tuple[MessageQueue, ...]
    is_settled: bool = True
    """False: it will be another one soon."""


AssignmentSource = Callable[[str], Awaitable[Assignment]]
"""Of a topic. May raise one of FAILURES: then what is held stays."""


class QueueHolder(Protocol):
    def topics(self) -> Iterable[str]: ...

    def held(self) -> Collection[MessageQueue]: ...

    async def take(self, queue: MessageQueue) -> bool:
        """False: not now, try again."""

    async def drop(self, queue: MessageQueue) -> None: ...

    def divided(self, topic: str, assignment: Assignment) -> None:
        """What is held of the topic has changed."""


class Rebalancer:
    def __init__(
        self, holder: QueueHolder, share_of: AssignmentSource, interval_s: float = BALANCE_S
    ) -> None:
        self._holder = holder
        self._share_of = share_of
        self._interval_s = interval_s
        self._due = asyncio.Event()
        self._missing: set[str] = set()
        self._failures = CountedLog(log, logging.INFO)
        self._one_at_a_time = asyncio.Lock()

    def look_again(self) -> None:
        """Something has changed: divide anew as soon as possible."""
        self._due.set()

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            self._due.clear()
            pause_s = self._interval_s if await self.balance() else UNBALANCED_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._due.wait()

    async def balance(self) -> bool:
        """True when exactly what is ours is held."""
        async with self._one_at_a_time:
            topics = set(self._holder.topics())
            strays = [queue for queue in self._holder.held() if queue.topic not in topics]
            await asyncio.gather(*(self._holder.drop(queue) for queue in strays))
            return all([await self._balance_topic(topic) for topic in sorted(topics)])

    async def _balance_topic(self, topic: str) -> bool:
        try:
            ours = await self._share_of(topic)
        except TopicNotFound as error:
            self._complain_of_missing(topic, error)
            return False
        except FAILURES as error:
            self._failures.log(topic, "Queues of %s cannot be divided now: %s", topic, error)
            return False
        except Exception:  # the user's own strategy: what we have stays ours until it does better
            log.exception("Queues of %s cannot be divided: the allocation strategy failed", topic)
            return False
        if topic in self._missing:
            self._missing.discard(topic)
            log.info("Topic %s exists now: it is consumed", topic)
        change = assignment_change(
            [queue for queue in self._holder.held() if queue.topic == topic], ours.mine
        )
        await asyncio.gather(*(self._holder.drop(queue) for queue in change.dropped))
        taken = await asyncio.gather(*(self._holder.take(queue) for queue in change.taken))
        if change.dropped or any(taken):
            log.info("Topic %s: %d queues are ours", topic, len(ours.mine))
            self._holder.divided(topic, ours)
        return ours.is_settled and all(taken)

    def _complain_of_missing(self, topic: str, error: TopicNotFound) -> None:
        """Once: it may be a misspelt name. A group's retry topic comes with its first retry."""
        if topic.startswith(RETRY_PREFIX):
            self._failures.log(topic, "Queues of %s cannot be divided now: %s", topic, error)
        elif topic not in self._missing:
            self._missing.add(topic)
            log.warning(
                "Topic %s does not exist, so nothing is consumed from it: check the name, or create it with "
                "`turbopump admin updateTopic` or Admin.topics.create; it is consumed as soon as it is there",
                topic,
            )


@dataclass
class GroupAssignment:
    """By the group's strategy, out of the members that a broker of the topic knows."""

    instance: ClientInstance
    group: str
    strategy: Strategy
    is_broadcast: bool = False
    """Then every member has all queues."""

    async def __call__(self, topic: str) -> Assignment:
        queues = await readable_queues(self.instance, topic)
        if self.is_broadcast:
            return Assignment(queues, queues)
        members = await self.instance.heartbeats.members(self.group, topic)
        me = self.instance.client_id
        if me not in members:  # then our queues are others' by now, until we are back
            self.instance.heartbeats.renew()
        return Assignment(queues, own_queues(queues, members, me, self.strategy), me in members)


async def readable_queues(instance: ClientInstance, topic: str) -> tuple[MessageQueue, ...]:
    """As a name server says now, or what was known before: a name server that has just started knows no
    topic until brokers tell it. Raises TopicNotFound or OSError when nothing is known.
    """
    await instance.routes.renew(topic)
    return (await instance.routes.find(topic)).subscribe
