"""Composition root of the name server: builds its parts, starts and stops them in order.

Several name servers may run in one process, beside brokers: there is no global state.
"""

import asyncio
import logging
import os
from collections.abc import Callable

from turbopump.auth.needs import is_open_at_name_server
from turbopump.auth.signature import Credentials
from turbopump.auth.signer import Signer
from turbopump.guard.control import AccessControl, ControlPlace
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.kv import KeyValueTable
from turbopump.namesrv.requests import NamesrvHandlers
from turbopump.namesrv.routes import MinBrokerIdChange, RemovedBrokers, TopicRouteTable
from turbopump.protocol.addresses import join_address
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.headers.namesrv import NotifyMinBrokerIdChangeRequest
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.http import TEXT, HttpServer, name_server_pages
from turbopump.remoting.limits import Limits, connections_within
from turbopump.remoting.proxied import proxies_of
from turbopump.remoting.router import Router
from turbopump.remoting.server import Server
from turbopump.remoting.tls import networks_of
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk
from turbopump.runtime.network import Network, descriptor_limit
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

MAX_NOTICES = 1024  # being sent to brokers


class NameServer:
    """A name server: routes and key-value table behind a listening port, and pages over HTTP."""

    def __init__(
        self,
        config: NamesrvConfig,
        network: Network,
        clock: Clock,
        disk: Disk,
        servers: int = 1,
        host: str = "",
        credentials: Credentials | None = None,
    ) -> None:
        """`servers`: how many share this process's descriptors; `host`: its address for others, if known.

        What it tells brokers is signed with `credentials`; without, with those of the configuration.
        Raises ConfigError for TLS settings or files that cannot be used.
        """
        self._clock = clock
        self._routes = TopicRouteTable(config.support_acting_master, config.delete_topic_with_registration)
        self._values = KeyValueTable(disk, config.kv_config_path)
        self._requests = NamesrvHandlers(
            config, self._routes, self._values, clock, disk, self._removed, self._notify
        )
        limits = Limits(idle_s=config.idle_s, max_connections=connections_within(descriptor_limit(), servers))
        self._network = network
        self._networks = networks_of(config.tls, network, disk, proxies_of(config.proxies))
        for warning in self._networks.warnings:
            log.warning(warning)
        self._control = self._access_control(config, disk)
        self._router = self._guarded_router()
        self._server = Server(self._router, self._networks.requests, clock, limits)
        pages = {**name_server_pages(self._addresses), "/health": self._health}
        self._http = HttpServer(pages, self._networks.pages)
        self._host = host
        own = credentials or config.access.inner_credentials
        self._client = Client(self._networks.requests, clock, sign=None if own is None else Signer(own))
        self._notices = Tasks(log)
        self._tasks = Tasks(log)
        self._is_stopping = False
        self.port = 0
        self.http_port = 0

    def on_routes_changed(self, callback: Callable[[], None] | None) -> None:
        """Sets the function that is called whenever the queues of a topic change."""
        self._routes.on_change = callback

    def to_itself(self) -> Network | None:
        """Returns a network on which this process reaches its own port; None: it has no certificate."""
        return self._networks.to_itself(self._network)

    async def start(self) -> int:
        """Loads the key-value table and listens; returns the port. Raises OSError if an address is taken."""
        config = self._requests.config
        self._values.load()
        if self._control is not None:
            await asyncio.to_thread(self._control.open)
        try:
            self.port = await self._server.start(config.bind_address, config.listen_port)
            if config.http_port >= 0:
                self.http_port = await self._http.start(config.bind_address, config.http_port)
        except OSError:
            await self._server.stop(0)
            raise
        self._tasks.start(self._expire(), name="expire brokers")
        for work in () if self._control is None else self._control.tasks:
            self._tasks.start(work(), name="access control")
        self._tasks.start(self._networks.watch(self._clock), name="reload TLS certificates")
        log.info("Name server listens on %s:%d", config.bind_address, self.port)
        return self.port

    async def stop(self, drain_s: float = 3.0) -> None:
        # Connections end now because this server ends, not the brokers behind them: no notice is sent.
        self._is_stopping = True
        await self._notices.close()
        await self._tasks.close()
        await self._http.stop()
        await self._server.stop(drain_s)
        await self._router.close()
        await self._client.close()
        if self._control is not None:
            await self._control.close()

    def _access_control(self, config: NamesrvConfig, disk: Disk) -> AccessControl | None:
        """Returns this server's access control; None: everybody may do everything."""
        if not config.access.is_on:
            return None
        place = ControlPlace(
            cluster=config.cluster_name,
            directory=os.path.dirname(config.kv_config_path),
            is_open=is_open_at_name_server if config.name_server_reads == "open" else None,
            is_encrypted=self._networks.is_enforcing,
        )
        return AccessControl(config.access, place, disk, asyncio.to_thread, self._clock)

    def _guarded_router(self) -> Router:
        routes = self._requests.routes()
        if self._control is None:
            return Router(routes)
        return Router(
            {**self._control.around(routes), **self._control.routes()}, before=(self._control.link,)
        )

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(self._requests.config.scan_interval_ms / 1000)
            self._removed(self._routes.expire(self._clock.now_ms()))

    def _removed(self, removed: RemovedBrokers) -> None:
        for name in removed.brokers:
            log.info("Removed an address of broker %s", name)
        for connection in removed.connections:
            assert isinstance(connection, Connection)
            connection.close()
        for notice in removed.notices:
            self._notify(notice)

    def _notify(self, notice: MinBrokerIdChange) -> None:
        if self._is_stopping or not self._requests.config.notify_min_broker_id_changed:
            return
        if len(self._notices) >= MAX_NOTICES:
            return
        self._notices.start(self._send_notice(notice), name=f"notify {notice.broker_name}")

    async def _send_notice(self, notice: MinBrokerIdChange) -> None:
        header = NotifyMinBrokerIdChangeRequest(
            minBrokerId=notice.min_id,
            brokerName=notice.broker_name,
            minBrokerAddr=notice.min_address,
            offlineBrokerAddr=notice.offline_address,
            haBrokerAddr=notice.ha_address,
        )
        for address in notice.recipients:
            try:
                notify = request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header)
                await self._client.send_oneway(address, notify)
            except (OSError, ValueError) as error:
                log.info("Cannot notify broker %s of the change in its group: %s", address, error)

    def _addresses(self) -> str:
        """Returns the configured name servers, or this server's address; empty if its host is unknown."""
        if configured := self._requests.config.name_servers:
            return configured
        return join_address(self._host, self.port) if self._host else ""

    def _health(self) -> tuple[int, str, bytes]:
        return 200, TEXT, b"ok\n"
