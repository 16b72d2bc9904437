"""Reads a whole topic: first what its queues hold, in the order of storing, then new messages as they arrive.

Waits for a topic that does not exist yet, continues after a broker was away, and reads queues that are added.
Uses no offsets of a consumer group, so it affects no consumer.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from turbopump.client.message import MessageQueue
from turbopump.client.pull.puller import Puller, PullResult
from turbopump.client.routes import RouteCache
from turbopump.client.world import HOLD_S
from turbopump.filter import text_of
from turbopump.protocol.errors import SystemBusy, TopicNotFound
from turbopump.protocol.names import SQL92, TAG
from turbopump.protocol.record import Record
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import TaskScope

RETRY_S = 1.0
EMPTY_PAUSE_S = 0.1  # after a pull without result, for a broker that does not hold pulls
NEW_QUEUES_S = 30.0

StartOf = Callable[[MessageQueue], Awaitable[int]]
"""Returns the offset at which to begin in a queue."""

Take = Callable[[Record, MessageQueue], bool]
"""Receives each record and its queue; returns False to end the reading."""


class NoSuchQueue(LookupError):
    """Raised when `TopicReader.only` names a queue id that the topic does not have."""


@dataclass
class TopicReader:
    """Reads the stored records of a topic in the order of storing, then new ones as they arrive."""

    puller: Puller
    routes: RouteCache
    clock: Clock
    topic: str
    tags: frozenset[str] = frozenset()  # empty: all
    notice: Callable[[str], None] = field(default=lambda text: None)
    """Called with texts for a person who waits, such as "there is no topic yet"."""
    sql: str = ""  # instead of tags; the broker chooses
    only: frozenset[int] = frozenset()
    """Ids of the queues to read, of each broker; empty: all."""

    _away: set[str] = field(default_factory=set, init=False)  # brokers whose silence was noticed already

    async def run(self, start: StartOf, take: Take) -> None:
        """Passes records of all queues, from offset `start(queue)` on, to `take` until that returns False."""
        queues, is_new = await self._queues()
        begins = {queue: 0 if is_new else await start(queue) for queue in queues}
        ends = {queue: await self.puller.max_offset(queue) for queue in queues}
        streams = [self._between(queue, begins[queue], ends[queue]) for queue in queues]
        async for number, record in in_order(streams):
            if not take(record, queues[number]):
                return
        await self._follow({queue: max(begins[queue], ends[queue]) for queue in queues}, take)

    async def _queues(self) -> tuple[tuple[MessageQueue, ...], bool]:
        """Waits until the topic exists; returns the queues to read, and whether the topic is new."""
        waited = False
        while True:
            try:
                return self._chosen((await self.routes.refresh(self.topic)).subscribe), waited
            except TopicNotFound:
                if not waited:
                    self.notice(f"there is no topic {self.topic} yet: waiting for it")
                waited = True
                await self.clock.sleep(RETRY_S)

    async def _between(self, queue: MessageQueue, offset: int, end: int) -> AsyncIterator[Record]:
        while offset < end:
            result = await self._pull(queue, offset, hold_s=0)
            for record in result.records:
                if record.queue_offset < end and self._wanted(record):
                    yield record
            if result.next_offset <= offset:
                return  # the queue was cut meanwhile
            offset = result.next_offset

    async def _follow(self, positions: dict[MessageQueue, int], take: Take) -> None:
        enough = asyncio.Event()

        async def follow_one(queue: MessageQueue, offset: int) -> None:
            while True:
                result = await self._pull(queue, offset, HOLD_S)
                for record in result.records:
                    if not enough.is_set() and self._wanted(record) and not take(record, queue):
                        enough.set()
                if result.next_offset == offset:
                    await self.clock.sleep(EMPTY_PAUSE_S)
                offset = result.next_offset

        async with TaskScope() as tasks:
            for queue, at in positions.items():
                tasks.start(follow_one(queue, at))
            while not enough.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(enough.wait(), NEW_QUEUES_S)
                for queue in await self._added(positions):
                    positions[queue] = 0
                    tasks.start(follow_one(queue, 0))
            tasks.cancel()

    async def _added(self, known: dict[MessageQueue, int]) -> list[MessageQueue]:
        try:
            route = await self.routes.refresh(self.topic)
        except (OSError, TopicNotFound):  # the name server or the topic may come back; the pulls continue
            return []
        return [queue for queue in route.subscribe if queue not in known and self._is_chosen(queue)]

    def _chosen(self, queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
        if missing := self.only - {queue.id for queue in queues}:
            there = ", ".join(str(one) for one in sorted({queue.id for queue in queues}))
            raise NoSuchQueue(f"topic {self.topic} has no queue {min(missing)}, only {there}")
        return tuple(queue for queue in queues if self._is_chosen(queue))

    def _is_chosen(self, queue: MessageQueue) -> bool:
        return not self.only or queue.id in self.only

    async def _pull(self, queue: MessageQueue, offset: int, hold_s: float) -> PullResult:
        expression = self.sql or text_of(sorted(self.tags))
        kind = SQL92 if self.sql else TAG
        while True:
            try:
                result = await self.puller.pull(queue, offset, expression, hold_s=hold_s, kind=kind)
            except (OSError, SystemBusy, TopicNotFound) as error:  # a restart may show as any of them
                if queue.broker not in self._away:
                    self.notice(f"broker {queue.broker} does not answer, trying again: {error}")
                    self._away.add(queue.broker)
                self.routes.doubt(queue.topic)
                await self.clock.sleep(RETRY_S)
            else:
                self._away.discard(queue.broker)
                return result

    def _wanted(self, record: Record) -> bool:
        """Returns whether the record has a wanted tag; True if all tags are wanted.

        Compares the text of the tag, because the broker compared only its hash.
        """
        return not self.tags or record.tags in self.tags


async def in_order(streams: list[AsyncIterator[Record]]) -> AsyncIterator[tuple[int, Record]]:
    """Merges streams by the time of storing; yields the index of its stream with each record."""
    heads: list[tuple[int, int, Record]] = []
    for number, stream in enumerate(streams):
        if (record := await anext(stream, None)) is not None:
            heappush(heads, (record.store_timestamp, number, record))
    while heads:
        _, number, record = heappop(heads)
        yield number, record
        if (following := await anext(streams[number], None)) is not None:
            heappush(heads, (following.store_timestamp, number, following))
