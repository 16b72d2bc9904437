"""Asks brokers what a query needs: its queues, their ends, offsets of times, and a group's progress.

One client per process and set of servers, kept over micro-batches and queries: PySpark's workers live on, and
a new connection for every task would cost more than a small task. Calls run on the event loop of the blocking
clients; a forked process makes its own client. Decisions are made in `plan.py`.
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
from turbopump.client.group.offsets import GroupOffsets
from turbopump.client.instance import client_id
from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import successful
from turbopump.client.pull.puller import Puller, PullStatus, records_of
from turbopump.client.routes import TopicRoute, route_of
from turbopump.pipelines.source.offsets import Ends, Positions, listed, named
from turbopump.pipelines.source.proofs import host_and_time, mark_of
from turbopump.pipelines.source.removed_queues import StoredQueuePuller
from turbopump.pipelines.source.settings import ClusterAccess, TopicSelection
from turbopump.pipelines.source.snapshot import ClusterSnapshot
from turbopump.protocol import bodies, names
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody, QueryNotFound, Refused, TopicNotFound
from turbopump.protocol.headers.client import UnregisterClientRequest
from turbopump.protocol.headers.namesrv import GetKVConfigRequest, GetKVConfigResponse, GetRouteInfoRequest
from turbopump.protocol.ids import offset_id

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CONCURRENT_CALLS = 32
CLOSE_TIMEOUT_S = 2.0
MARK_TIMEOUT_S = 5.0
MAX_MARK_PULLS = 2
NO_ROUTE = TopicRoute((), (), {})


class BrokerClient:
    """Async client that asks the brokers of one cluster about queues and offsets, on the background loop."""

    def __init__(self, access: ClusterAccess) -> None:
        self._admin = Admin(access.name_server, **access.client_options)
        self._access = access
        self._greeted: set[tuple[str, str]] = set()
        self._name_servers = self._admin.asking.name_servers
        self.puller = Puller(self._admin.client, self._admin.routes, access.group)
        self.routes = self._admin.routes
        self.pulls = StoredQueuePuller(self.puller, self._admin)

    async def snapshot(
        self,
        wanted: TopicSelection,
        known: Iterable[MessageQueue] = (),
        is_whole: bool = False,
        expected: Iterable[str] = (),
    ) -> ClusterSnapshot:
        """Returns wanted and `known` queues with first and next offsets, and available and missing brokers.

        `known` queues are included also where the topic no longer has them. `is_whole`: brokers that should
        be there are looked for too. Raises OSError when no name server answers.
        """
        layout = await self._admin.clusters.layout()
        topics = await self._topics(wanted, layout)
        masters = {one.name: one.address for one in layout.brokers if one.id == MASTER_ID}
        routes = dict(zip(topics, await _together(self._route, topics), strict=True))
        places = [
            (topic, name, masters[name])
            for topic, route in routes.items()
            for name in sorted({queue.broker for queue in route.subscribe} & masters.keys())
        ]
        tables = await _together(lambda place: self._ends_at(place[0], place[2]), places)
        ends: dict[MessageQueue, Ends] = {}
        silent: dict[str, str] = {}
        for (topic, name, address), table in zip(places, tables, strict=True):
            if isinstance(table, OSError):
                silent[name] = f"does not answer at {address}"
                continue
            there = {queue for queue in routes[topic].subscribe if queue.broker == name}
            ends |= {queue: table.get(queue, Ends(0, 0)) for queue in there if wanted.wants(queue)}
            if is_whole:
                _warn_of_hidden(
                    {queue: table[queue] for queue in table.keys() - there if wanted.wants(queue)}
                )
        brokers = frozenset(masters.keys() - silent.keys())
        left = [queue for queue in known if queue not in ends and queue.broker in brokers]
        ends |= await self._ends_of_removed(left, wanted, routes)
        missing = silent
        if is_whole:
            needed = await self._needed(wanted, routes)
            missing = {**missing_of({*needed, *expected}, layout), **silent}
        clusters = {one.name: one.cluster for one in layout.brokers}
        return ClusterSnapshot(tuple(topics), dict(sorted(ends.items())), brokers, missing, clusters)

    async def _ends_of_removed(
        self, queues: list[MessageQueue], wanted: TopicSelection, routes: Mapping[str, TopicRoute]
    ) -> dict[MessageQueue, Ends]:
        """Returns first and next offset of queues removed from a topic, if the broker still has the topic."""
        kept = [
            queue
            for queue in queues
            if wanted.wants(queue)
            and any(queue.broker == one.broker for one in routes.get(queue.topic, NO_ROUTE).subscribe)
        ]
        return dict(zip(kept, await _together(self._ends_of, kept), strict=True))

    async def _ends_of(self, queue: MessageQueue) -> Ends:
        low, high = await self.puller.min_offset(queue), await self.puller.max_offset(queue)
        return Ends(max(0, low), max(0, high))

    async def _needed(self, wanted: TopicSelection, routes: Mapping[str, TopicRoute]) -> set[str]:
        """Returns the names of brokers that may hold a part of the topics, by `wanted` and name servers."""
        in_routes = {name for route in routes.values() for name in route.readable}
        assigned = {queue.broker for queue in wanted.assigned[1]} if wanted.assigned is not None else set()
        asked = [names.ANY_TOPIC] if wanted.pattern is not None else list(routes)
        traces = await _together(
            lambda pair: self._trace(*pair),
            [(at, topic) for at in self._name_servers for topic in asked],
        )
        return in_routes | assigned | {name for trace in traces for name in trace}

    async def _trace(self, name_server: str, topic: str) -> set[str]:
        """Returns a topic's brokers by one name server: of its route, registered before, of an order topic.

        Our name servers keep brokers that were registered before. The route counts if there are several name
        servers: that of the only one is known. Raises Refused when a name server may not say it: without its
        answer the rows of an absent broker would be left out, and nobody would know.
        """
        absent, order = await asyncio.gather(
            self._value(name_server, names.ABSENT_BROKERS_NAMESPACE, topic),
            self._value(name_server, names.ORDER_TOPIC_NAMESPACE, topic),
        )
        routed: set[str] = set()
        if len(self._name_servers) > 1 and topic != names.ANY_TOPIC:
            routed = await self._routed(name_server, topic)
        return {*_split(absent), *(part.partition(":")[0] for part in _split(order)), *routed}

    async def _value(self, name_server: str, namespace: str, key: str) -> str:
        header = GetKVConfigRequest(namespace, key)
        try:
            answer = await self._admin.asking.ask(name_server, RequestCode.GET_KV_CONFIG, header)
        except (OSError, QueryNotFound):  # others know it too; Apache's name servers never do
            return ""
        return GetKVConfigResponse.from_ext(answer.ext).value or ""

    async def _routed(self, name_server: str, topic: str) -> set[str]:
        header = GetRouteInfoRequest(topic=topic, acceptStandardJsonOnly=True)
        try:
            answer = await self._admin.asking.ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except (OSError, TopicNotFound):
            return set()
        return set(route_of(topic, bodies.TopicRouteData.decode(answer.body)).readable)

    async def _topics(self, wanted: TopicSelection, layout: Layout) -> list[str]:
        if wanted.pattern is None:
            return list(wanted.names())
        matches = re.compile(wanted.pattern).fullmatch
        found = [topic for topic in await self._admin.topics.names() if matches(topic)]
        if wanted.with_system:
            return found
        # Every broker creates topics with the names of itself and of its cluster.
        own = {*layout.clusters, *(broker.name for broker in layout.brokers)}
        return [topic for topic in found if topic not in own and not _is_of_system(topic)]

    async def _route(self, topic: str) -> TopicRoute:
        try:
            return await self.routes.refresh(topic)
        except TopicNotFound:
            return NO_ROUTE

    async def _ends_at(self, topic: str, address: str) -> dict[MessageQueue, Ends] | OSError:
        """Returns first and next offset of a topic's queues at a broker; an OSError if it does not answer.

        The error is returned, not raised. No queues if the broker has just lost the topic.
        """
        try:
            table = await self._admin.topics.stats_at(address, topic)
        except OSError as error:
            return error
        except TopicNotFound:
            return {}
        return {
            MessageQueue.of_wire(queue): Ends(max(0, one.minOffset), max(0, one.maxOffset))
            for queue, one in table.offsetTable.items()
        }

    async def offset_at(self, queue: MessageQueue, time_ms: int, ends: Ends) -> int | None:
        """Returns the queue offset of the first message stored at `time_ms` or later; None if none is.

        Brokers of 4.x return the nearest message, before or after, and any of several with the same time:
        their answer is only where the search begins.
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

    # marks, which prove a position

    async def marks(self, at: Positions) -> dict[MessageQueue, str | None]:
        """Returns a mark (id and store time) of the record at each offset; None where there is no record.

        A queue whose broker does not answer is left out.
        """
        queues = sorted(at)
        found = await _together(lambda queue: self._mark(queue, at[queue]), queues)
        return {
            queue: mark for queue, mark in zip(queues, found, strict=True) if not isinstance(mark, Exception)
        }

    async def _mark(self, queue: MessageQueue, offset: int) -> str | Exception | None:
        try:
            for _ in range(MAX_MARK_PULLS):
                answer = await self.pulls.pull_bytes(
                    queue, offset, max_count=1, max_bytes=1, timeout_s=MARK_TIMEOUT_S
                )
                if answer.status is not PullStatus.OFFSET_ILLEGAL:
                    break
                # The group's offset was reset: the next pull gets what it asks for.
        except (OSError, Refused) as error:
            log.warning("Cannot read the record at offset %d of %s: %s", offset, named(queue), error)
            return error
        for record in records_of(answer, offset):
            if record.queue_offset == offset:
                return mark_of(offset_id(record.store_host, record.physical_offset), record.store_timestamp)
        return None

    async def resumed(
        self, marks: Mapping[MessageQueue, str | None], ends: Mapping[MessageQueue, Ends]
    ) -> dict[MessageQueue, int]:
        """Returns where replaced queues continue: at the first message, or the first newer than the mark.

        A queue that was created again, or is another cluster's, is read from its first message. A broker that
        only lost its last messages still has older ones: there the first one stored after the mark's time is
        next.
        """
        queues = sorted(marks)
        found = await _together(lambda queue: self._resumed(queue, marks[queue], ends[queue]), queues)
        return dict(zip(queues, found, strict=True))

    async def _resumed(self, queue: MessageQueue, mark: str | None, ends: Ends) -> int:
        first = await self._mark(queue, ends.low) if mark is not None and ends.low < ends.high else None
        if mark is None or not isinstance(first, str):
            return ends.low
        (host, stored_ms), (first_host, first_ms) = host_and_time(mark), host_and_time(first)
        if host != first_host or first_ms > stored_ms:
            return ends.low
        newer = await self.offset_at(queue, stored_ms + 1, ends)
        return ends.high if newer is None else newer

    # the group

    async def commit(self, group: str, positions: Positions) -> None:
        """Commits these positions as the group's consume offsets, so that tools show its progress.

        Tools find a group by its retry topic, which a broker creates when it first hears of a member: so a
        member is registered for a moment.
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
        heartbeat = bodies.HeartbeatData(clientID=member, consumerDataSet=[_consumer(group, topics)])
        hello = request(RequestCode.HEART_BEAT, body=heartbeat.encode())
        goodbye = UnregisterClientRequest(clientID=member, consumerGroup=group)
        calls, wait_s = self._admin.client, self._admin.asking.timeout_s
        successful(await calls.call(address, hello, wait_s))
        await calls.call(address, request(RequestCode.UNREGISTER_CLIENT, goodbye), wait_s)
        self._greeted.add((group, address))

    async def close(self) -> None:
        await self._admin.close()


def missing_of(needed: Iterable[str], layout: Layout) -> dict[str, str]:
    """Returns the needed brokers that have no registered master now, each with the reason."""
    masters = {one.name for one in layout.brokers if one.id == MASTER_ID}
    slaves = {one.name for one in layout.brokers} - masters
    return {
        name: "has no master now" if name in slaves else "is not registered with the name server"
        for name in sorted(needed)
        if name not in masters
    }


def _warn_of_hidden(ends: Mapping[MessageQueue, Ends]) -> None:
    """Logs a warning about messages in queues that the topic's readQueueNums hides from consumers."""
    hidden = {queue: one.high - one.low for queue, one in sorted(ends.items()) if one.high > one.low}
    if hidden:
        text = "%d messages of %s are not read: readQueueNums of the topic is lower than their queue ids"
        log.warning(text, sum(hidden.values()), listed(hidden))


def _split(value: str) -> list[str]:
    return [part for part in value.split(";") if part]


async def first_late(is_late: Callable[[int], Awaitable[bool]], low: int, high: int, hint: int) -> int:
    """Returns the first offset in [low, high) that `is_late`, as all after it are; `high` if none is.

    Tries around the hint first: it is mostly right, or off by one.
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
    free = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    async def one(item: Any) -> T:
        async with free:
            return await ask(item)

    return await asyncio.gather(*(one(item) for item in items))


# --- clients of this process -----------------------------------------------------------------------------


@dataclass
class _ProcessClients:
    """Holds the broker clients of this process, and its fork count, which shows that it was forked."""

    forks: int = -1
    brokers: dict[ClusterAccess, BrokerClient] = field(default_factory=dict)


_clients = _ProcessClients()


def shared_client(access: ClusterAccess) -> BrokerClient:
    """Returns this process's client for `access`, made at first use and closed when the process ends."""
    if _clients.forks != background.forks():
        background.leave_to_parent(_clients.brokers)
        _clients.forks, _clients.brokers = background.forks(), {}
    if access not in _clients.brokers:
        found = _clients.brokers[access] = background.run(_made(access))
        background.keep(found.close, CLOSE_TIMEOUT_S)
    return _clients.brokers[access]


async def _made(access: ClusterAccess) -> BrokerClient:
    return BrokerClient(access)


def ask_with_retries(
    access: ClusterAccess, ask: Callable[[BrokerClient], Coroutine[Any, Any, T]], tries: int, pause_s: float
) -> T:
    """Runs `ask` on the background loop and returns its result; repeats it while servers do not answer.

    For any thread. Raises the error of the last try.
    """
    brokers = shared_client(access)
    for left in reversed(range(tries)):
        try:
            return background.run(ask(brokers))
        except (OSError, Refused, BrokenBody) as error:
            if not left:
                raise
            log.warning("Cannot reach the servers; retrying in %s s: %s", pause_s, error)
            time.sleep(pause_s)
    raise AssertionError("at least one try is made")
