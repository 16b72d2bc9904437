"""Brokers as a query sees them: which queues there are, where they end, what was stored when, how far the
group has come.

One client for each process and each set of servers, kept over micro-batches and queries: PySpark's workers
live on, and a new connection for every task would cost more than a small task. The work is done on the event
loop behind the blocking clients; a process that was forked makes its own. Nothing is decided here.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turbopump.client import background
from turbopump.client.admin import Admin
from turbopump.client.admin.clusters import Layout
from turbopump.client.instance import client_id
from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import successful
from turbopump.client.offsets import GroupOffsets
from turbopump.client.pull import Puller
from turbopump.client.routes import MASTER, Route
from turbopump.pipelines.source.offsets import BadOffsets, Ends, Positions
from turbopump.pipelines.source.settings import Access, Topics
from turbopump.protocol import bodies, names
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody, Refused, TopicNotFound
from turbopump.protocol.headers.client import UnregisterClientRequest

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE = 32  # questions under way
CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look has found."""

    topics: tuple[str, ...]
    ends: Mapping[MessageQueue, Ends]
    brokers: frozenset[str]
    """Those that are there and answered."""

    def away(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Of these, the ones of which nothing can be said now: their broker is not there."""
        return [queue for queue in queues if queue.broker not in self.brokers]


class Brokers:
    """For use on the background loop."""

    def __init__(self, access: Access) -> None:
        self._admin = Admin(
            access.name_server, use_tls=access.use_tls, tls_trust_cert_path=access.tls_trust_cert_path
        )
        self._access = access
        self._greeted: set[tuple[str, str]] = set()
        self.puller = Puller(self._admin.client, self._admin.routes, access.group)
        self.routes = self._admin.routes

    async def look(self, wanted: Topics) -> Seen:
        """Raises OSError when no name server answers."""
        layout = await self._admin.clusters.layout()
        topics = await self._topics(wanted, layout)
        masters = {one.name: one.address for one in layout.brokers if one.id == MASTER}
        routes = dict(zip(topics, await _together(self._route, topics), strict=True))
        places = [
            (topic, name, masters[name])
            for topic, route in routes.items()
            for name in sorted({queue.broker for queue in route.subscribe} & masters.keys())
        ]
        tables = await _together(lambda place: self._ends_at(place[0], place[2]), places)
        ends: dict[MessageQueue, Ends] = {}
        silent = set()
        for (topic, name, _), table in zip(places, tables, strict=True):
            if table is None:
                silent.add(name)
                continue
            known = {queue for queue in routes[topic].subscribe if queue.broker == name}
            ends |= {queue: table.get(queue, Ends(0, 0)) for queue in known if wanted.wants(queue)}
        return Seen(tuple(topics), dict(sorted(ends.items())), frozenset(masters.keys() - silent))

    async def _topics(self, wanted: Topics, layout: Layout) -> list[str]:
        if wanted.pattern is None:
            return list(wanted.names())
        matches = re.compile(wanted.pattern).fullmatch
        found = [topic for topic in await self._admin.topics.names() if matches(topic)]
        if wanted.with_system:
            return found
        own = {*layout.clusters, *(broker.name for broker in layout.brokers)}  # topics that brokers are given
        return [topic for topic in found if topic not in own and not _is_of_system(topic)]

    async def _route(self, topic: str) -> Route:
        try:
            return await self.routes.refresh(topic)
        except TopicNotFound:
            return Route((), (), {})

    async def _ends_at(self, topic: str, address: str) -> dict[MessageQueue, Ends] | None:
        """None: it does not answer. One that has just lost the topic has no queue of it."""
        try:
            table = await self._admin.topics.stats_at(address, topic)
        except OSError as error:
            log.warning("Nothing is known of topic %s at %s now: %s", topic, address, error)
            return None
        except TopicNotFound:
            return {}
        return {
            MessageQueue.of_wire(queue): Ends(max(0, one.minOffset), max(0, one.maxOffset))
            for queue, one in table.offsetTable.items()
        }

    async def offset_at(self, queue: MessageQueue, time_ms: int, ends: Ends) -> int | None:
        """The first offset stored then or later; None: there is none. Brokers of 4.x name the nearest
        message, before or behind, and any of several of one time: what they say is only where to look first.
        """
        if ends.low >= ends.high:
            return None
        hint = min(max(await self.puller.offset_at(queue, time_ms), ends.low), ends.high)

        async def is_late(offset: int) -> bool:
            found = await self.puller.pull(queue, offset, max_count=1, hold_s=0)
            return bool(found.records) and found.records[0].store_timestamp >= time_ms

        offset = await first_late(is_late, ends.low, ends.high, hint)
        return offset if offset < ends.high else None

    async def offsets_at(
        self, times_ms: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, Ends]
    ) -> dict[MessageQueue, int | None]:
        queues = list(times_ms)
        found = await _together(lambda queue: self.offset_at(queue, times_ms[queue], ends[queue]), queues)
        return dict(zip(queues, found, strict=True))

    # The group

    async def commit(self, group: str, positions: Positions) -> None:
        """So that tools see how far it is. Tools find a group by its retry topic, which a broker makes when
        it first hears of a member: so it hears of one, for a moment.
        """
        offsets = GroupOffsets(self._admin.client, self.routes, group)
        for name in {queue.broker for queue in positions}:
            topics = sorted({queue.topic for queue in positions if queue.broker == name})
            await self._greet(group, name, topics)
        await _together(lambda queue: offsets.commit(queue, positions[queue]), sorted(positions))

    async def _greet(self, group: str, broker: str, topics: list[str]) -> None:
        address = (await self.routes.find(topics[0])).master(broker)
        if address is None or (group, address) in self._greeted:
            return
        member = client_id("127.0.0.1", f"spark-{group}")
        told = bodies.HeartbeatData(clientID=member, consumerDataSet=[_consumer(group, topics)])
        hello = request(RequestCode.HEART_BEAT, body=told.encode())
        goodbye = UnregisterClientRequest(clientID=member, consumerGroup=group)
        calls, wait_s = self._admin.client, self._admin.asking.timeout_s
        successful(await calls.call(address, hello, wait_s))
        await calls.call(address, request(RequestCode.UNREGISTER_CLIENT, goodbye), wait_s)
        self._greeted.add((group, address))

    async def close(self) -> None:
        await self._admin.close()


async def first_late(is_late: Callable[[int], Awaitable[bool]], low: int, high: int, hint: int) -> int:
    """The first of [low, high) that is late, where all behind it are too; `high`: none. Looks around the
    hint first: it is mostly right, or off by one.
    """
    for probe in (hint, hint - 1, hint + 1):
        if low <= probe < high:
            low, high = (low, probe) if await is_late(probe) else (probe + 1, high)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if await is_late(middle) else (middle + 1, high)
    return high


def _consumer(group: str, topics: list[str]) -> bodies.ConsumerData:
    return bodies.ConsumerData(
        consumeFromWhere="CONSUME_FROM_FIRST_OFFSET",
        consumeType="CONSUME_ACTIVELY",
        groupName=group,
        messageModel="CLUSTERING",
        subscriptionDataSet=[bodies.SubscriptionData(topic=topic, subString="*") for topic in topics],
    )


def _is_of_system(topic: str) -> bool:
    is_reply = topic.endswith(names.REPLY_POSTFIX)
    return names.is_system_topic(topic) or names.is_retry_or_dlq(topic) or is_reply


async def _together(ask: Callable[[Any], Awaitable[T]], items: Iterable[Any]) -> list[T]:
    free = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> T:
        async with free:
            return await ask(item)

    return await asyncio.gather(*(one(item) for item in items))


# --- kept by this process --------------------------------------------------------------------------------


@dataclass
class _Kept:
    forks: int = -1
    brokers: dict[Access, Brokers] = field(default_factory=dict)


_kept = _Kept()


def shared(access: Access) -> Brokers:
    """That of this process, made when first asked for and closed when the process ends."""
    if _kept.forks != background.forks():
        background.leave_to_parent(_kept.brokers)
        _kept.forks, _kept.brokers = background.forks(), {}
    if access not in _kept.brokers:
        found = _kept.brokers[access] = background.run(_made(access))
        background.keep(found.close, CLOSE_S)
    return _kept.brokers[access]


async def _made(access: Access) -> Brokers:
    return Brokers(access)


def asked(access: Access, ask: Callable[[Brokers], Coroutine[Any, Any, T]], tries: int, pause_s: float) -> T:
    """What the servers say, asked several times where they do not answer. For any thread."""
    brokers = shared(access)
    for left in reversed(range(tries)):
        try:
            return background.run(ask(brokers))
        except (OSError, Refused, BrokenBody) as error:
            if not left:
                raise
            log.warning("Servers are asked again in %s s: %s", pause_s, error)
            time.sleep(pause_s)
    raise AssertionError("a question is asked at least once")


def some_topic(seen: Seen, wanted: Topics) -> Seen:
    """The same; raises BadOffsets when a topic that was named is nowhere."""
    there = {queue.topic for queue in seen.ends}
    if missing := [topic for topic in wanted.names() if topic not in there]:
        raise BadOffsets(
            f"no broker that is there has topic {', '.join(missing)}, or the queues of it that are wanted: "
            "check the name, or create it (mqadmin updateTopic)"
        )
    return seen
