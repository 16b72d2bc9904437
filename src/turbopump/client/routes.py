"""Which brokers have which queues of a topic: asked from a name server, kept until in doubt.

A route answers three questions: to which queues can one send, from which can one read, and at which address
is a broker. Name servers know nothing of each other, so when one does not answer, the next is asked; when
none does, what was known still serves.

A broker may have slaves that can be read too. Whoever finds one of these addresses silent says so with
`failed`; for a while others are preferred then, and after that it is tried again.
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
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody, Refused, TopicNotFound, refusal
from turbopump.protocol.headers.namesrv import GetRouteInfoRequest
from turbopump.protocol.names import AUTO_CREATE_TOPIC
from turbopump.protocol.permissions import READ, WRITE
from turbopump.runtime.chance import Chance

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 3.0
NEW_TOPIC_QUEUES = 4  # asked for when a send creates the topic
AWAY_S = 10.0  # an address that failed is not the first choice for so long


@dataclass(frozen=True, slots=True)
class Replica:
    """One server of a broker: 0 is the master, others are slaves."""

    id: int
    address: str


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """One topic's queues and the brokers that have them: name → id → address, 0 being the master."""

    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    unplaced: tuple[str, ...] = ()
    """Brokers that have readable queues and no address."""

    @property
    def readable(self) -> frozenset[str]:
        """Every broker that has queues to read, whether it can be reached or not."""
        return frozenset((*(queue.broker for queue in self.subscribe), *self.unplaced))

    def master(self, broker: str) -> str | None:
        return self.brokers.get(broker, {}).get(MASTER_ID)

    def reader(self, broker: str) -> str | None:
        """The master, or while it is away the replica with the lowest id."""
        replica = self.replica(broker)
        return replica.address if replica is not None else None

    def replica(self, broker: str, wanted: int = MASTER_ID, away: Collection[str] = ()) -> Replica | None:
        """Where to read: the wanted one; of slaves, if it is missing, the next; else any, lowest id first.
        Addresses that are away come last.
        """
        known = self.brokers.get(broker, {})
        first = [wanted] if wanted == MASTER_ID else [wanted, wanted + 1]
        order = [*(number for number in first if number in known), *sorted(known)]
        order.sort(key=lambda number: known[number] in away)
        return Replica(order[0], known[order[0]]) if order else None


def route_of(topic: str, data: bodies.TopicRouteData) -> TopicRoute:
    """An order topic's text `broker:n;broker:n` says by itself to which queues one can send."""
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
    return TopicRoute(tuple(publish), tuple(subscribe), brokers, tuple(sorted(unplaced)))


def _of_order(topic: str, text: str) -> list[MessageQueue]:
    parts = [part.split(":") for part in text.split(";") if part]
    return [
        MessageQueue(topic, name, number)
        for name, *count in parts
        if count and count[0].isdecimal()
        for number in range(int(count[0]))
    ]


def route_of_new(topic: str, template: TopicRoute, most: int = NEW_TOPIC_QUEUES) -> TopicRoute:
    """What the topic will be when a send creates it after the pattern of TBW102, with so many queues."""
    queues = tuple(
        MessageQueue(topic, queue.broker, queue.id) for queue in template.publish if queue.id < most
    )
    return TopicRoute(queues, queues, template.brokers)


class RouteCache:
    def __init__(self, name_servers: NameServers, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._name_servers = name_servers
        self._timeout_s = timeout_s
        self._known: dict[str, TopicRoute] = {}
        self._failures = CountedLog(log, logging.INFO)
        self._doubted: set[str] = set()
        self._away: dict[str, float] = {}  # address → when it may be the first choice again

    async def find(self, topic: str) -> TopicRoute:
        """Raises TopicNotFound when no broker has the topic, OSError when no name server answers."""
        known = self._known.get(topic)
        if known is not None and topic not in self._doubted:
            return known
        try:
            return await self.refresh(topic)
        except OSError:
            if known is None:
                raise
            return known

    def known(self, topic: str) -> TopicRoute | None:
        """Without asking anyone, also when it is in doubt."""
        return self._known.get(topic)

    async def find_or_template(self, topic: str, queues: int = NEW_TOPIC_QUEUES) -> TopicRoute:
        """For a send: a topic that no one has gets the queues that the send will create."""
        try:
            return await self.find(topic)
        except TopicNotFound:
            return route_of_new(topic, await self.find(AUTO_CREATE_TOPIC), queues)

    async def refresh(self, topic: str) -> TopicRoute:
        header = GetRouteInfoRequest(topic=topic, acceptStandardJsonOnly=True)
        question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer = await self._name_servers.ask(question, self._timeout_s)
        self._doubted.discard(topic)
        if answer.code != 0:
            self._known.pop(topic, None)
            raise refusal(answer.code, answer.remark)
        route = self._known[topic] = route_of(topic, bodies.TopicRouteData.decode(answer.body))
        return route

    async def refresh_known(self, topics: Iterable[str]) -> None:
        """Of these topics and all that are known. What cannot be had now stays as it was."""
        for topic in {*topics, *self._known}:
            await self.renew(topic)

    async def renew(self, topic: str) -> None:
        """Asked for again now; what cannot be had stays as it was."""
        kept = self._known.get(topic)
        try:
            await self.refresh(topic)
        except TopicNotFound:
            if kept is not None:
                self._known[topic] = kept
        except (OSError, Refused, BrokenBody) as error:
            self._failures.log(topic, "The route of %s is not refreshed: %s", topic, error)

    async def reader(self, queue: MessageQueue) -> str:
        """The address to read this queue at. Raises as `find`, or ConnectionError when there is none."""
        return (await self.replica(queue)).address

    async def replica(self, queue: MessageQueue, wanted: int = MASTER_ID) -> Replica:
        """As `reader`, with the wish for one of the broker's servers."""
        route = await self.find(queue.topic)
        found = route.replica(queue.broker, wanted, self._away_now() if self._away else ())
        if found is None:
            self.doubt(queue.topic)
            raise ConnectionError(f"no address of broker {queue.broker} is known")
        return found

    async def ask_replica(
        self, queue: MessageQueue, ask: Callable[[Replica], Awaitable[T]], wanted: int = MASTER_ID
    ) -> T:
        """What one of the broker's servers says: the wanted one, or at once another when it is not there.
        One that is there and silent has used up the time: then it is the next call that goes elsewhere.
        """
        replica = await self.replica(queue, wanted)
        try:
            return await ask(replica)
        except OSError as error:
            self.failed(queue.topic, replica.address)
            other = None if isinstance(error, TimeoutError) else await self._other(queue, replica)
            if other is None:
                raise
            log.info("Broker %s is not at %s: %s is asked", queue.broker, replica.address, other.address)
        return await ask(other)

    async def _other(self, queue: MessageQueue, than: Replica) -> Replica | None:
        try:
            found = await self.replica(queue, than.id)
        except (OSError, Refused):  # what is known by now is less than before
            return None
        return found if found.address != than.address else None

    def failed(self, topic: str, address: str) -> None:
        """It did not answer: the route may have changed, and others of its broker are asked for a while."""
        self._away[address] = asyncio.get_running_loop().time() + AWAY_S
        self.doubt(topic)

    def _away_now(self) -> Collection[str]:
        now = asyncio.get_running_loop().time()
        self._away = {address: until for address, until in self._away.items() if until > now}
        return self._away

    def doubt(self, topic: str) -> None:
        """A broker of this route failed: ask again before the next use."""
        self._doubted.add(topic)


class RoundRobin:
    """Round robin over the queues of each topic, away from the broker that has just failed when there is
    another.
    """

    def __init__(self, chance: Chance) -> None:
        self._first = chance.randrange(1 << 16)
        self._last: dict[str, int] = {}  # by topic: two that take turns must not get half their queues each

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        topic = queues[0].topic
        first = self._last.get(topic, self._first) + 1
        for number in range(first, first + len(queues)):
            queue = queues[number % len(queues)]
            if queue.broker != avoid:
                break
        self._last[topic] = number
        return queue
