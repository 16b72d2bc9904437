"""Heartbeats: tell the brokers of the client's topics for which groups it produces and consumes.

A broker treats a broken connection as members that have left. So a lost connection causes a new heartbeat at
once, and a heartbeat that failed is repeated every second (one that access control refused, at the next
interval). Both go to the brokers concerned only: a broker that is down must not make every client send a
heartbeat each second to all the others.
"""

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable

from turbopump.client.name_servers import successful
from turbopump.client.routes import RouteCache, TopicRoute
from turbopump.client.short_heartbeats import ShortHeartbeats
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import AccessRefused, Refused, TopicNotFound
from turbopump.protocol.headers.client import (
    GetConsumerListByGroupRequest,
    HeartbeatResponse,
    UnregisterClientRequest,
)
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

HEARTBEAT_S = 30.0
RETRY_S = 1.0
CALL_TIMEOUT_S = 3.0
SETTLED_S = 60.0  # after that a broker that came back knows all members: they find it and send a heartbeat


class Heartbeats:
    """Sends heartbeats, made by `describe`, to the brokers of `topics`: at intervals, and when asked to."""

    def __init__(
        self,
        client: Client,
        routes: RouteCache,
        clock: Clock,
        topics: Callable[[], Iterable[str]],
        describe: Callable[[], bodies.HeartbeatData],
        interval_s: float = HEARTBEAT_S,
        timeout_s: float = CALL_TIMEOUT_S,
        short: ShortHeartbeats | None = None,
    ) -> None:
        self._client = client
        self._routes = routes
        self._clock = clock
        self._topics = topics
        self._describe = describe
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._short = short
        self._due = asyncio.Event()
        self._all_due = False  # to all brokers, not only to those that do not know this client
        self._told: dict[
            str, Connection
        ] = {}  # address → the connection over which the broker knows this client
        self._told_at: dict[str, float] = {}  # address → since when the broker knows this client
        self._under_way: Counter[str] = Counter()  # address → heartbeats that are not answered yet
        self._silent: set[str] = set()  # brokers whose failure was logged
        self.versions: dict[str, int] = {}
        """Address → version of the broker."""
        self.refused: dict[str, AccessRefused] = {}
        """Address → why access control of the broker refused the last heartbeat."""

    async def announce(self, to_all: bool = True) -> bool:
        """Sends heartbeats to the topics' masters, of consumers to slaves too; False: one failed, or none.

        `to_all` False: only to those that do not know this client.
        """
        described = self._describe()
        if not described.producerDataSet and not described.consumerDataSet:
            return True
        addresses = await self._addresses(masters_only=not described.consumerDataSet)
        told = sorted(address for address in addresses if to_all or self._is_unaware(address))
        heard = await asyncio.gather(*(self._tell(address, described) for address in told))
        return bool(addresses) and all(heard)

    async def refused_by_all(self) -> AccessRefused | None:
        """Returns why access control of every broker of the topics refused the last heartbeat, else None."""
        addresses = await self._addresses(masters_only=not self._describe().consumerDataSet)
        if not addresses or not addresses <= self.refused.keys():
            return None
        return self.refused[min(addresses)]

    async def tell(self, address: str) -> bool:
        """Sends a heartbeat to one broker at once, whatever topics that broker has; False: it failed."""
        return await self._tell(address, self._describe())

    async def keep(self) -> None:
        """Sends heartbeats at intervals, soon again after a failure or `renew`, until cancelled."""
        next_to_all = self._clock.monotonic()
        while True:
            to_all = self._all_due or self._clock.monotonic() >= next_to_all
            self._due.clear()
            self._all_due = False
            succeeded = await self.announce(to_all)
            now = self._clock.monotonic()
            next_to_all = now + self._interval_s if to_all else next_to_all
            may_wait = succeeded or self._are_failures_refusals()
            pause_s = max(0.0, next_to_all - now) if may_wait else RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._due.wait()
                    await self._clock.sleep(
                        RETRY_S
                    )  # a broker needs a moment to restart; also keeps this from a tight loop

    def renew(self) -> None:
        """Makes `keep` send heartbeats to all brokers in a second."""
        self._all_due = True
        self._due.set()

    async def members(self, group: str, topic: str) -> list[str]:
        """Returns the client ids of a consumer group's members, from the first broker of the topic to answer.

        A broker that has just come back does not know all members, and its answer would give their queues to
        this one: others are asked first. One that does not know the group gets a heartbeat in a second,
        unless one is on its way. Raises Refused or OSError.
        """
        route = await self._routes.find(topic)
        failure: OSError | None = None
        for address in sorted(_masters_first(route), key=self._is_new):
            question = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequest(group))
            try:
                answer = await self._client.call(address, question, self._timeout_s)
            except OSError as error:
                failure = error
                continue
            if answer.code != ResponseCode.SUCCESS and not self._under_way[address]:
                self.renew()
            return bodies.ConsumerListBody.decode(successful(answer).body).consumerIdList
        raise failure or ConnectionError(f"no broker of topic {topic} is known")

    def _is_unaware(self, address: str) -> bool:
        """Returns whether the broker does not know this client: no connection, or its heartbeat failed."""
        connection = self._told.get(address)
        return connection is None or connection.is_closing or address in self._silent

    def _is_new(self, address: str) -> bool:
        """Returns whether the broker has known this client for a short time only, or does not know it."""
        connection = self._told.get(address)
        if connection is None or connection.is_closing:
            return True
        return self._clock.monotonic() - self._told_at.get(address, math.inf) < SETTLED_S

    async def leave(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Unregisters this client as member of the given group at all connected brokers; ignores failures.

        Then other members need not wait until its heartbeats expire.
        """
        question = UnregisterClientRequest(
            clientID=self._describe().clientID or "",
            producerGroup=producer_group,
            consumerGroup=consumer_group,
        )
        await asyncio.gather(
            *(
                self._client.call(address, request(RequestCode.UNREGISTER_CLIENT, question), self._timeout_s)
                for address, connection in self._told.items()
                if not connection.is_closing
            ),
            return_exceptions=True,
        )

    async def _addresses(self, masters_only: bool) -> set[str]:
        found: set[str] = set()
        for topic in self._topics():
            with contextlib.suppress(OSError, TopicNotFound):
                for ids in (await self._routes.find(topic)).brokers.values():
                    found.update(address for number, address in ids.items() if not (masters_only and number))
        return found

    async def _tell(self, address: str, described: bodies.HeartbeatData) -> bool:
        self._under_way[address] += 1
        try:
            connection = await self._client.connect(address)
            self._watch(address, connection)
            answer = successful(await self._beat(address, described))
        except (OSError, Refused) as error:
            level = (
                logging.DEBUG if address in self._silent else logging.WARNING
            )  # warn once, until it succeeds
            log.log(level, "Heartbeat to broker %s failed: %s", address, error)
            self._silent.add(address)
            self._note(address, error)
            return False
        finally:
            self._under_way[address] -= 1
        if address in self._silent:
            self._silent.discard(address)
            log.info("Heartbeat to broker %s succeeds again", address)
        self._note(address, None)
        self.versions[address] = answer.version
        self._told_at.setdefault(address, self._clock.monotonic())
        return True

    def _are_failures_refusals(self) -> bool:
        """Returns whether access control is why all failed: that rarely changes in a second."""
        return bool(self._silent) and self._silent <= self.refused.keys()

    def _note(self, address: str, error: Exception | None) -> None:
        """Notes whether access control of the broker has refused a heartbeat; no answer leaves it open."""
        if isinstance(error, AccessRefused):
            self.refused[address] = error
        elif not isinstance(error, OSError):
            self.refused.pop(address, None)

    async def _beat(self, address: str, described: bodies.HeartbeatData) -> Command:
        told = described if self._short is None else self._short.message(address, described)
        question = request(RequestCode.HEART_BEAT, body=told.encode())
        answer = await self._client.call(address, question, self._timeout_s)
        if self._short is not None:
            self._short.heard(address, described, HeartbeatResponse.from_ext(answer.ext))
        return answer

    def _watch(self, address: str, connection: Connection) -> None:
        if self._told.get(address) is not connection:
            self._told[address] = connection
            self._told_at.pop(address, None)
            if self._short is not None:
                self._short.forget(address)
            connection.on_closed.append(lambda _: self._due.set())


def _masters_first(route: TopicRoute) -> list[str]:
    """Returns the addresses of all the route's servers, masters before slaves.

    Slaves know the members of groups too.
    """
    numbered = [(number, address) for ids in route.brokers.values() for number, address in ids.items()]
    return [address for _, address in sorted(numbered, key=lambda one: one[0])]
