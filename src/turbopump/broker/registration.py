"""Telling the name servers which topics this broker has, so that clients find them.

In: the topic table and the news of its changes. Out: a registration (103) of the whole table at start and
each period, of the changed topics alone at once after a change, and a goodbye (104) at stop. Each name
server has its own task: one that is down or slow delays nobody, and is told everything again when it is
back. Logs say what changed: reached, refused, lost.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from turbopump.broker.config import Identity, NameServerConfig
from turbopump.protocol.bodies import KVTable, RegisterBrokerBody, TopicConfigSerializeWrapper
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.headers.namesrv import RegisterBrokerRequest, UnregisterBrokerRequest
from turbopump.protocol.record import crc31
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 10.0
GOODBYE_S = 3.0
SETTLE_S = 3.0


class TopicTable(Protocol):
    def registrations(self, names: Iterable[str] | None = None) -> TopicConfigSerializeWrapper: ...
    def mark_ordered(self, ordered: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """How this broker introduces itself."""

    identity: Identity
    address: str
    ha_address: str


class NameServerRegistration:
    def __init__(
        self, client: Client, topics: TopicTable, endpoint: BrokerEndpoint, config: NameServerConfig
    ) -> None:
        addresses = dict.fromkeys(config.addresses)
        self._peers = [_NameServer(address, client, topics, endpoint, config) for address in addresses]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(peer.run(), name=f"register {peer.address}") for peer in self._peers
        ]

    def changed(self, names: Iterable[str]) -> None:
        """These topics are new or different; those gone again by the time they are told are left out."""
        names = list(names)
        for peer in self._peers:
            peer.changed(names)

    async def registered(self, timeout_s: float = SETTLE_S) -> None:
        """Returns when each name server was told of us once or cannot be reached, or the time is over."""
        await _all([peer.tried.wait() for peer in self._peers], timeout_s)

    async def settled(self, timeout_s: float = SETTLE_S) -> None:
        """Returns when every name server in reach knows the changes so far, or the time is over."""
        await _all([peer.settled() for peer in self._peers], timeout_s)

    async def stop(self) -> None:
        """Says goodbye to the name servers that know us; one that does not answer is not waited for long."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(peer.leave() for peer in self._peers))


class _NameServer:
    """One name server: what it knows, and the task that tells it the rest."""

    def __init__(
        self,
        address: str,
        client: Client,
        topics: TopicTable,
        endpoint: BrokerEndpoint,
        config: NameServerConfig,
    ) -> None:
        self.address = address
        self.tried = asyncio.Event()
        self._client = client
        self._topics = topics
        self._endpoint = endpoint
        self._period_s = config.period_ms / 1000
        self._timeout_s = config.timeout_ms / 1000
        self._pending: dict[str, None] = {}  # an ordered set of topic names
        self._knows_us = False
        self._trouble: str | None = ""  # None: all is well; empty: not tried yet
        self._next_full = 0.0
        self._retry_s = FIRST_RETRY_S
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._watched: Connection | None = None

    def changed(self, names: Iterable[str]) -> None:
        self._pending.update(dict.fromkeys(names))
        self._settled.clear()
        self._wake.set()

    async def settled(self) -> None:
        """At once when it does not know us: then it may be down, and nobody should wait for it."""
        if self._knows_us:
            await self._settled.wait()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._knows_us or loop.time() >= self._next_full:
                self._pending.clear()
                told = await self._tell(self._topics.registrations())
                self.tried.set()
                if not told:
                    await asyncio.sleep(self._retry_s)
                    self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
                    continue
                self._next_full = loop.time() + self._period_s
                self._retry_s = FIRST_RETRY_S
            elif self._pending:
                topics = self._topics.registrations(self._pending)
                self._pending.clear()
                if topics.topicConfigTable:  # otherwise they are gone again
                    await self._tell(topics)
            else:
                self._settled.set()
                await self._sleep(self._next_full - loop.time())

    async def leave(self) -> None:
        if not self._knows_us:
            return
        self._watched = None  # from here on its end is no news
        identity = self._endpoint.identity
        header = UnregisterBrokerRequest(
            brokerName=identity.broker_name,
            brokerAddr=self._endpoint.address,
            clusterName=identity.cluster_name,
            brokerId=identity.broker_id,
        )
        with contextlib.suppress(OSError):
            await self._client.call(self.address, request(RequestCode.UNREGISTER_BROKER, header), GOODBYE_S)

    async def _tell(self, topics: TopicConfigSerializeWrapper) -> bool:
        """Whether it knows these topics now. If not, it may never have known us: the whole table is next."""
        try:
            connection = await self._client.connect(self.address)
            answer = await self._client.call(self.address, self._registration(topics), self._timeout_s)
        except OSError as error:
            self._lost(f"cannot be reached: {error}")
            return False
        if answer.code != ResponseCode.SUCCESS:
            self._lost(f"refused the registration: {answer.code} {answer.remark}")
            return False
        self._known_on(connection)
        self._take_order(answer.body)
        return self._knows_us

    def _registration(self, topics: TopicConfigSerializeWrapper) -> Command:
        body = RegisterBrokerBody(topicConfigSerializeWrapper=topics).encode()
        identity = self._endpoint.identity
        header = RegisterBrokerRequest(
            brokerName=identity.broker_name,
            brokerAddr=self._endpoint.address,
            clusterName=identity.cluster_name,
            haServerAddr=self._endpoint.ha_address,
            brokerId=identity.broker_id,
            enableActingMaster=False,
            compressed=False,
            bodyCrc32=crc31(body),
        )
        return request(RequestCode.REGISTER_BROKER, header, body)

    def _known_on(self, connection: Connection) -> None:
        """A name server forgets a broker when its connection ends, so we have to know of that end."""
        if connection.is_closing:
            self._lost("closed the connection")
            return
        self._knows_us = True
        if self._trouble is not None:
            log.info("Registered with name server %s", self.address)
            self._trouble = None
        if connection is not self._watched:
            self._watched = connection
            connection.on_closed.append(self._connection_closed)

    def _connection_closed(self, connection: Connection) -> None:
        if connection is self._watched:
            self._watched = None
            self._lost("closed the connection")
            self._wake.set()

    def _lost(self, trouble: str) -> None:
        self._knows_us = False
        self._settled.set()
        if not self._trouble:
            log.warning("Name server %s %s", self.address, trouble)
            self._trouble = trouble

    def _take_order(self, body: bytes) -> None:
        if not body:
            return
        try:
            ordered = KVTable.decode(body).table
        except BrokenBody as error:
            log.warning("Name server %s sent order topics that cannot be read: %s", self.address, error)
        else:
            self._topics.mark_ordered(ordered)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()
        self._wake.clear()


async def _all(waits: list[Coroutine[Any, Any, Any]], timeout_s: float) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)
    for task in tasks:
        task.cancel()
