"""Routes: which brokers have which queues of a topic, asked from a name server and cached until in doubt.

A route has the queues to send to, the queues to read from, and the addresses of brokers. Name servers are
independent, so when one does not answer, the next is asked; when none does, the last known route is used.

A broker may have slaves that can be read too. A caller that finds an address silent reports it with `failed`:
for a while other servers of the broker are preferred, then it is tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from turbopump.client.counted_log import CountedLog
from turbopump.client.message import MessageQueue
from turbopump.client.name_servers import NameServers
from turbopump.protocol import bodies
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import BrokenBody, Refused, TopicNotFound, refusal
from turbopump.protocol.headers.namesrv import GetRouteInfoRequest
from turbopump.protocol.names import AUTO_CREATE_TOPIC
from turbopump.protocol.permissions import READ, WRITE
from turbopump.runtime.chance import Chance

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 3.0
NEW_TOPIC_QUEUES = 4  # asked for when a send creates the topic
AWAY_S = 10.0  # how long an address that failed is avoided


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of a broker, by id and address: id 0 is the master, others are slaves."""

    id: int
    address: str


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of a topic, and the addresses of its brokers: name → id → address, id 0 is the master."""

    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    unplaced: tuple[str, ...] = ()
    """Brokers with readable queues whose address is not known."""
    without_master: tuple[str, ...] = ()
    """Brokers with writable queues whose master is away: their slaves can be read."""

    @property
    def readable(self) -> frozenset[str]:
        """Names of all brokers with readable queues, even if their address is not known."""
        return frozenset((*(queue.broker for queue in self.subscribe), *self.unplaced))

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of all servers of the topic's brokers."""
        return frozenset(address for servers in self.brokers.values() for address in servers.values())

    def master(self, broker: str) -> str | None:
        return self.brokers.get(broker, {}).get(MASTER_ID)

    def reader(self, broker: str) -> str | None:
        """Returns the master's address, else that of the slave with the lowest id; None: none is known."""
        replica = self.replica(broker)
        return replica.address if replica is not None else None

    def replica(self, broker: str, wanted: int = MASTER_ID, away: Collection[str] = ()) -> Replica | None:
        """Returns the server of a broker to read from, preferably with id `wanted`; None: none is known.

        If a wanted slave is missing, it is the next one; else any, lowest id first. Addresses in `away` come
        last.
        """
        known = self.brokers.get(broker, {})
        first = [wanted] if wanted == MASTER_ID else [wanted, wanted + 1]
        order = [*(number for number in first if number in known), *sorted(known)]
        order.sort(key=lambda number: known[number] in away)
        return Replica(order[0], known[order[0]]) if order else None


def route_of(topic: str, data: bodies.TopicRouteData) -> TopicRoute:
    """Converts a name server's answer to the route of `topic`: queues to send to, to read, and brokers.

    For an order topic the text `broker:n;broker:n` alone says to which queues one can send.
    """
    brokers = {broker.brokerName: dict(broker.brokerAddrs) for broker in data.brokerDatas}
    publish: list[MessageQueue] = []
    subscribe: list[MessageQueue] = []
    for queues in sorted(data.queueDatas, key=lambda queues: queues.brokerName):
        name = queues.brokerName
        if queues.perm & WRITE and MASTER_ID in brokers.get(name, {}):
            publish += [MessageQueue(topic, name, number) for number in range(queues.writeQueueNums)]
        if queues.perm & READ and name in brokers:
            subscribe += [MessageQueue(topic, name, number) for number in range(queues.readQueueNums)]
    if ordered := _of_order(topic, data.orderTopicConf or ""):
        publish = ordered
    unplaced = {one.brokerName for one in data.queueDatas if one.perm & READ} - brokers.keys()
    writable = {one.brokerName for one in data.queueDatas if one.perm & WRITE} & brokers.keys()
    without_master = sorted(name for name in writable if MASTER_ID not in brokers[name])
    return TopicRoute(
        tuple(publish), tuple(subscribe), brokers, tuple(sorted(unplaced)), tuple(without_master)
    )


def _of_order(topic: str, text: str) -> list[MessageQueue]:
    parts = [part.split(":") for part in text.split(";") if part]
    return [
        MessageQueue(topic, name, number)
        for name, *count in parts
        if count and count[0].isdecimal()
        for number in range(int(count[0]))
    ]


def route_of_new(topic: str, template: TopicRoute, most: int = NEW_TOPIC_QUEUES) -> TopicRoute:
    """Returns the route of a topic that a send will create: up to `most` queues per broker of `template`."""
    queues = tuple(
        MessageQueue(topic, queue.broker, queue.id) for queue in template.publish if queue.id < most
    )
    return TopicRoute(queues, queues, template.brokers)


class RouteCache:
    """The topic routes that a client has asked name servers for, and the addresses that failed lately."""

    def __init__(self, name_servers: NameServers, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._name_servers = name_servers
        self._timeout_s = timeout_s
        self._known: dict[str, TopicRoute] = {}
        self._bodies: dict[str, bytes] = {}  # the answer that each known route was made of
        self._failures = CountedLog(log, logging.INFO)
        self._doubted: set[str] = set()
        self._led_before: dict[str, dict[str, str]] = {}  # address → brokers it was the master of → a topic
        self._away: dict[str, float] = {}  # address → when it may be the first choice again
        self.on_new_address: Callable[[], None] = lambda: None
        """Called when a route that was known has a server that it did not have: one that came back."""

    async def find(self, topic: str) -> TopicRoute:
        """Returns the cached route, or asks for it if missing or in doubt. Raises TopicNotFound or OSError.

        Raises TopicNotFound when no broker has the topic. When no name server answers, or one refuses for
        another reason, a cached route in doubt is returned; without one, OSError or the refusal is raised.
        """
        known = self._known.get(topic)
        if known is not None and topic not in self._doubted:
            return known
        try:
            return await self.refresh(topic)
        except TopicNotFound:
            raise
        except (OSError, Refused, BrokenBody) as error:
            if known is None:
                raise
            self._cannot_refresh(topic, error)
            return known

    def led_from(self, address: str) -> list[tuple[str, str]]:
        """Returns the topics and brokers whose master is, or was, at an address, a topic for each broker."""
        found = dict(self._led_before.get(address, {}))
        for topic, route in self._known.items():
            for broker in route.brokers:
                if route.master(broker) == address:
                    found.setdefault(broker, topic)
        return [(topic, broker) for broker, topic in found.items()]

    def _note_moved(self, topic: str, before: TopicRoute, now: TopicRoute) -> None:
        for broker in before.brokers:
            address = before.master(broker)
            if address is not None and now.master(broker) != address:
                self._led_before.setdefault(address, {})[broker] = topic

    def known(self, topic: str) -> TopicRoute | None:
        """Returns the cached route without a request, even if it is in doubt; None: there is none."""
        return self._known.get(topic)

    async def find_or_template(self, topic: str, queues: int = NEW_TOPIC_QUEUES) -> TopicRoute:
        """Returns the route for a send; for a new topic the queues that the send will create.

        Raises TopicNotFound when brokers do not create topics, else as `find`.
        """
        try:
            return await self.find(topic)
        except TopicNotFound:
            return route_of_new(topic, await self.find(AUTO_CREATE_TOPIC), queues)

    async def refresh(self, topic: str) -> TopicRoute:
        """Asks a name server now and caches the route; TopicNotFound, which is raised, drops the cached one.

        Raises another Refused, or OSError when no name server answers: then the cached route stays.
        """
        answer = await self._name_servers.ask(_question(topic), self._timeout_s)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self._known.pop(topic, None)
            self._doubted.discard(topic)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer.code, answer.remark)
        before = self._known.get(topic)
        # Nearly every answer is that of the last poll: 40 us less, 1.4 ms for a topic on 100 brokers.
        if before is not None and self._bodies.get(topic) == answer.body:
            self._doubted.discard(topic)
            return before
        route = self._known[topic] = route_of(topic, bodies.TopicRouteData.decode(answer.body))
        self._bodies[topic] = answer.body
        self._doubted.discard(topic)
        if before is not None:
            self._note_moved(topic, before, route)
            if not route.addresses <= before.addresses:
                self.on_new_address()
        return route

    async def refresh_known(self, topics: Iterable[str]) -> None:
        """Refreshes the routes of these topics and all known ones, each as `renew` does."""
        for topic in {*topics, *self._known}:
            await self.renew(topic)

    async def renew(self, topic: str) -> None:
        """Refreshes one route; on any failure the old route stays. One other than TopicNotFound is logged."""
        kept = self._known.get(topic)
        try:
            await self.refresh(topic)
        except TopicNotFound:  # a name server that has just started may know no topic yet
            if kept is not None:
                self._known[topic] = kept
        except (OSError, Refused, BrokenBody) as error:
            self._cannot_refresh(topic, error)

    async def return_home(self) -> None:
        """Uses the name server that was chosen first again, once it answers all known routes as they are.

        A server that has just started does not know all brokers yet. To be called after `refresh_known`.
        """
        servers = self._name_servers
        if not servers.is_away or not self._known:
            return
        for topic, known in list(self._known.items()):
            try:
                answer = await servers.ask_home(_question(topic), self._timeout_s)
                is_same = answer.code == ResponseCode.SUCCESS and (
                    self._bodies.get(topic) == answer.body
                    or known == route_of(topic, bodies.TopicRouteData.decode(answer.body))
                )
            except (OSError, BrokenBody):
                return
            if not is_same:
                return
        if servers.is_away:
            servers.return_home()

    def _cannot_refresh(self, topic: str, error: Exception) -> None:
        self._failures.log(topic, "Cannot refresh the route of %s: %s", topic, error)

    async def reader(self, queue: MessageQueue) -> str:
        """Returns the address at which to read a queue: the master, else a slave.

        Raises as `find`, or ConnectionError when no address is known.
        """
        return (await self.replica(queue)).address

    async def replica(self, queue: MessageQueue, wanted: int = MASTER_ID) -> Replica:
        """Returns the server to read a queue from, preferably the one with id `wanted`.

        Raises as `find`, or ConnectionError when no address is known.
        """
        route = await self.find(queue.topic)
        found = route.replica(queue.broker, wanted, self._away_now() if self._away else ())
        if found is None:
            self.doubt(queue.topic)
            raise ConnectionError(f"no address of broker {queue.broker} is known")
        return found

    async def ask_replica(
        self, queue: MessageQueue, ask: Callable[[Replica], Awaitable[T]], wanted: int = MASTER_ID
    ) -> T:
        """Returns `await ask(server)` for the queue's `wanted` server, or for another if it is unreachable.

        A server that is connected and silent has used up the time: its TimeoutError is raised, and the next
        call goes to another server.
        """
        replica = await self.replica(queue, wanted)
        try:
            return await ask(replica)
        except OSError as error:
            self.failed(queue.topic, replica.address)
            other = None if isinstance(error, TimeoutError) else await self._other(queue, replica)
            if other is None:
                raise
            log.info(
                "Broker %s cannot be reached at %s; asking %s", queue.broker, replica.address, other.address
            )
        return await ask(other)

    async def _other(self, queue: MessageQueue, than: Replica) -> Replica | None:
        try:
            found = await self.replica(queue, than.id)
        except (OSError, Refused):  # the route is not known any more
            return None
        return found if found.address != than.address else None

    def failed(self, topic: str, address: str) -> None:
        """Notes that an address did not answer: avoids it for AWAY_S seconds, and doubts the route."""
        self._away[address] = asyncio.get_running_loop().time() + AWAY_S
        self.doubt(topic)

    def _away_now(self) -> Collection[str]:
        now = asyncio.get_running_loop().time()
        self._away = {address: until for address, until in self._away.items() if until > now}
        return self._away

    def sent_to_master(self, queue: MessageQueue) -> None:
        """Doubts the route if it has no master of the queue's broker: a slave has just named one."""
        route = self._known.get(queue.topic)
        if route is not None and route.master(queue.broker) is None:
            self.doubt(queue.topic)

    def doubt(self, topic: str) -> None:
        """Marks the cached route as doubtful, so that the next `find` asks a name server."""
        self._doubted.add(topic)


def _question(topic: str) -> Command:
    header = GetRouteInfoRequest(topic=topic, acceptStandardJsonOnly=True)
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)


class RoundRobin:
    """Chooses the queues of each topic in turn, and if possible none of the broker to avoid."""

    def __init__(self, chance: Chance) -> None:
        self._first = chance.randrange(1 << 16)
        self._last: dict[
            str, int
        ] = {}  # per topic: with one counter, two alternating topics would use half their queues each

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        topic = queues[0].topic
        first = self._last.get(topic, self._first) + 1
        for number in range(first, first + len(queues)):
            queue = queues[number % len(queues)]
            if queue.broker != avoid:
                break
        self._last[topic] = number
        return queue
