"""Listening server: accepts connections within limits, closes idle ones, stops without losing answers.

What a frame means is decided by the router it was given. For port 0 it chooses one of which the port
two below and the one above are free as well: a broker has its fast port and its replication port there.
"""

import asyncio
import contextlib
import errno
import logging
from typing import Protocol, cast

from turbopump.protocol.addresses import MAX_PORT
from turbopump.remoting.accepted import AcceptedConnection
from turbopump.remoting.connection import Connection, ConnectionGroup, Serve, Shortcut
from turbopump.remoting.late_requests import LateRequests
from turbopump.remoting.limits import Limits
from turbopump.remoting.unread import UnreadAnswers
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Listener, Network, ProtocolFactory
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

NEIGHBOURS = (-2, 1)  # of a broker's port: fast port and replication port
PORT_ATTEMPTS = 64
ABORT_S = 1.0  # an aborted connection ends in the next turn of the loop


class FrameHandler(Protocol):
    """Interface of what serves the connections of a server, such as `Router`."""

    @property
    def serve(self) -> Serve:
        """Function that serves the frames of a read event."""

    @property
    def shortcut(self) -> Shortcut | None:
        """Function that is called with the bytes of a read event before `serve`; None without one."""


class Server:
    """Listens on one or more ports and gives the frames of accepted connections to `router`."""

    def __init__(
        self, router: FrameHandler, network: Network, clock: Clock, limits: Limits | None = None
    ) -> None:
        self.router = router
        """Serves the connections that begin from now on; `serve_by` changes those that are open, too."""
        self.late_requests: LateRequests | None = None
        """Measures how long requests waited, and has those answered that are too late; None: none is."""
        self._network = network
        self._clock = clock
        self._limits = limits or Limits()
        self._group = ConnectionGroup.of(self._limits, log)
        self._unread = UnreadAnswers(self._limits.unread_bytes, clock, self._group.peer_errors)
        self._refused = RateLimitedLog(log, self._limits.log_interval_s)
        self._listeners: list[Listener] = []
        self._tasks = Tasks(log)
        self._all_closed = asyncio.Event()
        self._is_stopping = False
        self.connections: dict[AcceptedConnection, None] = {}  # in the order in which they were accepted

    @property
    def waiting(self) -> int:
        """Number of requests that were read but not begun: too many of the same peer are in flight."""
        return sum(connection.waiting for connection in self.connections)

    @property
    def waits_s(self) -> float:
        """Seconds for which the request that has waited longest was not begun; 0 if none waits."""
        return max((connection.waits_s for connection in self.connections), default=0.0)

    def serve_by(self, router: FrameHandler) -> None:
        """Has another router serve all connections from now on, those that are open included."""
        self.router = router
        for connection in self.connections:
            connection.serve_by(router.serve, router.shortcut, self.late_requests)

    async def start(self, host: str, port: int) -> int:
        """Starts to listen and returns the port; may be called again to serve another port too."""
        self._is_stopping = False
        listener = await listen(self._network, self._accept, host, port)
        self._listeners.append(listener)
        if not self._tasks:
            self._tasks.start(self._sweep(), name="close idle connections")
        return listener.port

    async def stop(self, drain_s: float = 5.0) -> None:
        """Stops accepting and reading, lets running handlers answer for up to `drain_s`, then closes all."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        await self._tasks.close()
        for connection in list(self.connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            await self._closed(drain_s)
        if self.connections:
            log.warning(
                "Stopping with %d connections that did not end in %s s", len(self.connections), drain_s
            )
        for connection in list(self.connections):
            connection.abort()
        with contextlib.suppress(TimeoutError):
            await self._closed(ABORT_S)

    async def _closed(self, timeout_s: float) -> None:
        self._all_closed.clear()
        if self.connections:
            async with asyncio.timeout(timeout_s):
                await self._all_closed.wait()

    def _accept(self) -> asyncio.Protocol:
        if len(self.connections) >= self._limits.max_connections:
            self._refused.log(
                self._clock.monotonic(), "Refusing connections: %d are open", len(self.connections)
            )
            return _Refusal()
        return AcceptedConnection(
            self.router.serve,
            self.router.shortcut,
            self._group,
            self.late_requests,
            self._unread,
            self._opened,
        )

    def _opened(self, connection: AcceptedConnection) -> None:
        self.connections[connection] = None
        connection.on_closed.append(self._lost)
        if self._is_stopping:  # was accepted just before the listener closed
            connection.abort()

    def _lost(self, connection: Connection) -> None:
        self._unread.forget(connection)
        self.connections.pop(cast(AcceptedConnection, connection), None)
        if not self.connections:
            self._all_closed.set()

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(self._limits.sweep_s)
            now = self._clock.monotonic()
            for connection in list(self.connections):
                connection.examine(now)
            self._unread.bound(self.connections, now)


class _Refusal(asyncio.Protocol):
    """Protocol that closes a connection as soon as it is accepted: there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def listen(network: Network, factory: ProtocolFactory, host: str, port: int) -> Listener:
    """Returns a listener on `port`; for 0, on a free port p where p - 2 and p + 1 are free too."""
    if port:
        return await network.listen(factory, host, port)
    for _ in range(PORT_ATTEMPTS):
        listener = await network.listen(factory, host, 0)
        if await _neighbours_free(network, host, listener.port):
            return listener
        listener.close()
    raise OSError(errno.EADDRINUSE, f"no port with free neighbours on {host} in {PORT_ATTEMPTS} attempts")


async def _neighbours_free(network: Network, host: str, port: int) -> bool:
    for step in NEIGHBOURS:
        if not 0 < port + step <= MAX_PORT:
            return False
        try:
            (await network.listen(_Refusal, host, port + step)).close()
        except OSError:
            return False
    return True
