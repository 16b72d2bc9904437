"""Registers this broker and its topics with the name servers, so that clients find them.

In: the topic table and its changes. Out: a registration (103) of the whole table at start and
each period, of the changed topics alone at once after a change, and an unregistration (104) at stop. Each
name server has its own task: one that is down or slow delays no other, and gets the whole table again when
it is back. Changes of its state are logged: reached, refused, lost.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from turbopump.broker.config import BrokerIdentity, NameServerConfig
from turbopump.protocol.bodies import KVTable, RegisterBrokerBody, TopicConfigSerializeWrapper
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.headers.namesrv import (
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)
from turbopump.protocol.record import crc31
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
MAX_RETRY_S = 10.0
UNREGISTER_TIMEOUT_S = 3.0
SETTLE_TIMEOUT_S = 3.0


class RegisteredTopics(Protocol):
    """Interface of the topic table that registration uses."""

    def registrations(self, names: Iterable[str] | None = None) -> TopicConfigSerializeWrapper: ...
    def mark_ordered(self, ordered: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Cluster, broker name, id, address and replication address that this broker registers under."""

    identity: BrokerIdentity
    address: str
    ha_address: str


class NameServerRegistration:
    """Keeps the broker and its topics registered with all name servers, in one task for each."""

    def __init__(
        self, client: Client, topics: RegisteredTopics, endpoint: BrokerEndpoint, config: NameServerConfig
    ) -> None:
        addresses = dict.fromkeys(config.addresses)
        self.master: tuple[str, str] | None = None
        """Addresses of this broker's master, for clients and for slaves, as a name server said last."""
        self.on_master: Callable[[], None] | None = None
        """Called when `master` has become known or has changed."""
        self._peers = [
            _NameServer(address, client, topics, endpoint, config, self._take_master) for address in addresses
        ]
        self._tasks = Tasks(log)

    def start(self) -> None:
        for peer in self._peers:
            self._tasks.start(peer.run(), name=f"register {peer.address}")

    def changed(self, names: Iterable[str]) -> None:
        """Has new or changed topics registered soon with every name server, by the background tasks.

        Topics that are deleted again before the request is sent are left out.
        """
        names = list(names)
        for peer in self._peers:
            peer.changed(names)

    def refresh(self) -> None:
        """Registers everything again soon: the answers tell a slave where its master is."""
        for peer in self._peers:
            peer.refresh()

    def _take_master(self, answer: RegisterBrokerResponse) -> None:
        if not answer.masterAddr or not answer.haServerAddr:
            return
        found = answer.masterAddr, answer.haServerAddr
        if found == self.master:
            return
        self.master = found
        if self.on_master is not None:
            self.on_master()

    async def registered(self, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Waits until registration with each name server was tried once, or for `timeout_s`."""
        await _all([peer.tried.wait() for peer in self._peers], timeout_s)

    async def settled(self, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Waits until every reachable name server has all changes so far, or for `timeout_s`."""
        await _all([peer.settled() for peer in self._peers], timeout_s)

    async def pause(self) -> None:
        """Registers nothing more; what the name servers know stays."""
        await self._tasks.close()

    async def stop(self) -> None:
        """Unregisters from the name servers that know this broker, each within `UNREGISTER_TIMEOUT_S`."""
        await self.pause()
        await asyncio.gather(*(peer.leave() for peer in self._peers))


class _NameServer:
    """Registration with one name server: whether it knows this broker, and the loop that keeps it current."""

    def __init__(
        self,
        address: str,
        client: Client,
        topics: RegisteredTopics,
        endpoint: BrokerEndpoint,
        config: NameServerConfig,
        take_master: Callable[[RegisterBrokerResponse], None],
    ) -> None:
        self.address = address
        self.tried = asyncio.Event()
        self._client = client
        self._topics = topics
        self._endpoint = endpoint
        self._take_master = take_master
        self._period_s = config.period_ms / 1000
        self._timeout_s = config.timeout_ms / 1000
        self._pending: dict[str, None] = {}  # an ordered set of topic names
        self._knows_us = False
        self._trouble: str | None = ""  # None: registered; empty: not tried yet
        self._next_full = 0.0
        self._retry_s = FIRST_RETRY_S
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._watched: Connection | None = None

    def changed(self, names: Iterable[str]) -> None:
        self._pending.update(dict.fromkeys(names))
        self._settled.clear()
        self._wake.set()

    def refresh(self) -> None:
        """Makes the whole table the next thing to be registered."""
        self._next_full = 0.0
        self._wake.set()

    async def settled(self) -> None:
        """Waits until the name server has all changes so far, unless the broker is not registered there."""
        if self._knows_us:
            await self._settled.wait()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._knows_us or loop.time() >= self._next_full:
                self._pending.clear()
                is_known = await self._register(self._topics.registrations())
                self.tried.set()
                if not is_known:
                    await asyncio.sleep(self._retry_s)
                    self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)
                    continue
                self._next_full = loop.time() + self._period_s
                self._retry_s = FIRST_RETRY_S
            elif self._pending:
                topics = self._topics.registrations(self._pending)
                self._pending.clear()
                if topics.topicConfigTable:  # otherwise they were deleted again
                    await self._register(topics)
            else:
                self._settled.set()
                await self._sleep(self._next_full - loop.time())

    async def leave(self) -> None:
        """Unregisters the broker, if the name server knows it."""
        if not self._knows_us:
            return
        self._watched = None  # its end is expected from here on
        identity = self._endpoint.identity
        header = UnregisterBrokerRequest(
            brokerName=identity.broker_name,
            brokerAddr=self._endpoint.address,
            clusterName=identity.cluster_name,
            brokerId=identity.broker_id,
        )
        with contextlib.suppress(OSError):
            await self._client.call(
                self.address, request(RequestCode.UNREGISTER_BROKER, header), UNREGISTER_TIMEOUT_S
            )

    async def _register(self, topics: TopicConfigSerializeWrapper) -> bool:
        """Sends a registration of `topics`. Returns whether the name server knows the broker afterwards.

        False: unreachable, refused or disconnected, so the whole table has to be sent next.
        """
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
        self._take_master(RegisterBrokerResponse.from_ext(answer.ext))
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
        """Marks the broker as registered over `connection`, and as lost when that connection closes.

        A name server drops a broker when its connection ends.
        """
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
    tasks = Tasks(log)
    if started := [tasks.start(wait) for wait in waits]:
        await asyncio.wait(started, timeout=timeout_s)
    await tasks.close()
