"""Being a member of a consumer group: heartbeats to every broker that has a queue for us.

A broker takes a broken connection for a member that has left, so a lost connection is answered with a new
heartbeat at once, and a broker that did not hear one is told again every second.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from turbopump.client.name_servers import successful
from turbopump.client.routes import Route, Routes
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import Refused, TopicNotFound
from turbopump.protocol.headers.client import GetConsumerListByGroupRequest, UnregisterClientRequest
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

HEARTBEAT_S = 30.0
RETRY_S = 1.0
CALL_TIMEOUT_S = 3.0


class Membership:
    """`describe` says at each heartbeat who we are and what we subscribe to."""

    def __init__(
        self,
        client: Client,
        routes: Routes,
        clock: Clock,
        group: str,
        topics: Iterable[str],
        describe: Callable[[], bodies.HeartbeatData],
    ) -> None:
        self._client = client
        self._routes = routes
        self._clock = clock
        self._group = group
        self._topics = tuple(topics)
        self._describe = describe
        self._due = asyncio.Event()
        self._told: dict[str, Connection] = {}  # by address; through it the broker knows us

    async def announce(self) -> bool:
        """Tells every broker of our topics. False when one of them did not hear it, or none is known yet."""
        addresses = await self._addresses()
        heard = await asyncio.gather(*(self._tell(address) for address in sorted(addresses)))
        return bool(addresses) and all(heard)

    async def keep(self) -> None:
        """Heartbeats until cancelled."""
        while True:
            self._due.clear()
            pause_s = HEARTBEAT_S if await self.announce() else RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._due.wait()
                    await self._clock.sleep(RETRY_S)  # a restart takes a moment, and never in a tight loop

    def renew(self) -> None:
        """A broker does not know us, or no longer: tell all of them soon."""
        self._due.set()

    async def members(self, topic: str) -> list[str]:
        """The ids of the group's members, from any broker of the topic. Raises Refused or OSError."""
        route = await self._routes.find(topic)
        failure: OSError | None = None
        for address in _one_of_each_broker(route):
            question = request(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequest(self._group)
            )
            try:
                answer = await self._client.call(address, question, CALL_TIMEOUT_S)
            except OSError as error:
                failure = error
                continue
            return bodies.ConsumerListBody.decode(successful(answer).body).consumerIdList
        raise failure or ConnectionError(f"no broker of topic {topic} is known")

    async def leave(self) -> None:
        """Says goodbye to every broker that knows us, so that the others need not wait for our absence."""
        client_id = self._describe().clientID or ""
        question = UnregisterClientRequest(clientID=client_id, consumerGroup=self._group)
        await asyncio.gather(
            *(
                self._client.call(address, request(RequestCode.UNREGISTER_CLIENT, question), CALL_TIMEOUT_S)
                for address in self._told
            ),
            return_exceptions=True,
        )

    async def _addresses(self) -> set[str]:
        found: set[str] = set()
        for topic in self._topics:
            with contextlib.suppress(OSError, TopicNotFound):
                brokers = (await self._routes.find(topic)).brokers
                found.update(address for ids in brokers.values() for address in ids.values())
        return found

    async def _tell(self, address: str) -> bool:
        try:
            connection = await self._client.connect(address)
            self._watch(address, connection)
            question = request(RequestCode.HEART_BEAT, body=self._describe().encode())
            successful(await self._client.call(address, question, CALL_TIMEOUT_S))
        except (OSError, Refused) as error:
            log.warning("Broker %s did not take the heartbeat of group %s: %s", address, self._group, error)
            return False
        return True

    def _watch(self, address: str, connection: Connection) -> None:
        if self._told.get(address) is not connection:
            self._told[address] = connection
            connection.on_closed.append(lambda _: self.renew())


def _one_of_each_broker(route: Route) -> list[str]:
    return [address for name in route.brokers if (address := route.reader(name)) is not None]
