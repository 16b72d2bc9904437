"""The name server's root: builds the parts, starts and stops them in order.

Several may live in one process, beside brokers: nothing here is global.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.kv import KeyValues
from turbopump.namesrv.requests import Requests
from turbopump.namesrv.routes import MinIdChanged, Removed, Routes
from turbopump.protocol.addresses import join_address
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import request
from turbopump.protocol.headers.namesrv import NotifyMinBrokerIdChangeRequest
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.http import TEXT, HttpServer, name_server_pages
from turbopump.remoting.limits import Limits, connections_within
from turbopump.remoting.router import Router
from turbopump.remoting.server import Server
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk
from turbopump.runtime.network import Network, descriptor_limit

log = logging.getLogger(__name__)

MAX_NOTICES = 1024  # on their way to brokers


class NameServer:
    def __init__(
        self,
        config: NamesrvConfig,
        network: Network,
        clock: Clock,
        disk: Disk,
        servers: int = 1,
        host: str = "",
    ) -> None:
        """`servers` share the descriptors of this process. `host` is where others find it, if it is known."""
        self._clock = clock
        self._routes = Routes(config.support_acting_master, config.delete_topic_with_registration)
        self._values = KeyValues(disk, config.kv_config_path)
        self._requests = Requests(
            config, self._routes, self._values, clock, disk, self._removed, self._notify
        )
        self._router = Router(self._requests.table())
        limits = Limits(idle_s=config.idle_s, max_connections=connections_within(descriptor_limit(), servers))
        self._server = Server(self._router, network, clock, limits)
        self._http = HttpServer({**name_server_pages(self._addresses), "/health": self._health}, network)
        self._host = host
        self._client = Client(network, clock)
        self._notices: set[asyncio.Task[None]] = set()
        self._scan: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.port = 0
        self.http_port = 0

    def on_routes_changed(self, told: Callable[[], None] | None) -> None:
        """`told` is called whenever a topic has other queues than before."""
        self._routes.on_change = told

    async def start(self) -> int:
        """Returns the port. Raises OSError when an address is taken."""
        config = self._requests.config
        self._values.load()
        try:
            self.port = await self._server.start(config.bind_address, config.listen_port)
            if config.http_port >= 0:
                self.http_port = await self._http.start(config.bind_address, config.http_port)
        except OSError:
            await self._server.stop(0)
            raise
        self._scan = asyncio.create_task(self._expire(), name="expire brokers")
        log.info("Name server listens on %s:%d", config.bind_address, self.port)
        return self.port

    async def stop(self, drain_s: float = 3.0) -> None:
        # Connections end now because we end, not because the brokers behind them do: nobody is told of it.
        self._is_stopping = True
        tasks = [*self._notices, *((self._scan,) if self._scan else ())]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._http.stop()
        await self._server.stop(drain_s)
        await self._router.close()
        await self._client.close()

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(self._requests.config.scan_interval_ms / 1000)
            self._removed(self._routes.expire(self._clock.now_ms()))

    def _removed(self, removed: Removed) -> None:
        for name in removed.brokers:
            log.info("An address of broker %s is gone", name)
        for connection in removed.connections:
            assert isinstance(connection, Connection)
            connection.close()
        for notice in removed.notices:
            self._notify(notice)

    def _notify(self, notice: MinIdChanged) -> None:
        if self._is_stopping or not self._requests.config.notify_min_broker_id_changed:
            return
        if len(self._notices) >= MAX_NOTICES:
            return
        task = asyncio.create_task(self._tell(notice), name=f"tell {notice.broker_name}")
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _tell(self, notice: MinIdChanged) -> None:
        header = NotifyMinBrokerIdChangeRequest(
            minBrokerId=notice.min_id,
            brokerName=notice.broker_name,
            minBrokerAddr=notice.min_address,
            offlineBrokerAddr=notice.offline_address,
            haBrokerAddr=notice.ha_address,
        )
        for address in notice.tell:
            try:
                notify = request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header)
                await self._client.send_oneway(address, notify)
            except (OSError, ValueError) as error:
                log.info("Broker %s was not told of its group's change: %s", address, error)

    def _addresses(self) -> str:
        """The list that is configured, else this server alone."""
        if configured := self._requests.config.name_servers:
            return configured
        return join_address(self._host, self.port) if self._host else ""

    def _health(self) -> tuple[int, str, bytes]:
        return 200, TEXT, b"ok\n"
