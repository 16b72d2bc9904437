"""A listening server: accepts connections within its bounds, closes idle ones, stops without losing answers.

What a frame means is decided by the router it was given. A port asked as 0 is chosen so that the port two
below and the one above are free as well: a broker puts its fast port and its replication port there.
"""

import asyncio
import contextlib
import errno
import logging
from typing import Protocol

from turbopump.protocol.addresses import MAX_PORT
from turbopump.remoting.connection import Connection, Serve, Shortcut
from turbopump.remoting.limits import Limits, Unfinished
from turbopump.remoting.patience import Patience
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Listener, Network, ProtocolFactory
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

NEIGHBOURS = (-2, 1)  # of a broker's port: fast port and replication port
PORT_ATTEMPTS = 64
ABORT_S = 1.0  # an aborted connection is gone in the next turn of the loop


class FrameHandler(Protocol):
    """What a server gives the frames of its connections to: a `Router`."""

    @property
    def serve(self) -> Serve:
        """Called with the frames of a read event."""

    @property
    def shortcut(self) -> Shortcut | None:
        """Called with the bytes of a read event before `serve`; None if there is no such way."""


class Server:
    """Listens on one or more ports and gives the frames of accepted connections to `router`."""

    def __init__(
        self, router: FrameHandler, network: Network, clock: Clock, limits: Limits | None = None
    ) -> None:
        self.router = router
        """Serves the connections that begin from now on."""
        self.patience: Patience | None = None
        """Of all its connections; they may wait for ever without."""
        self._network = network
        self._clock = clock
        self._limits = limits or Limits()
        self._unfinished: Unfinished[Connection] = Unfinished()
        self._refused = RateLimitedLog(log, self._limits.log_interval_s)
        self._misbehaved = RateLimitedLog(log, self._limits.log_interval_s)
        self._failures = RateLimitedLog(log, self._limits.log_interval_s, logging.ERROR)
        self._listeners: list[Listener] = []
        self._sweeper: asyncio.Task[None] | None = None
        self._all_closed = asyncio.Event()
        self._is_stopping = False
        self._deaf: dict[Connection, int] = {}  # those that leave too much unread, longest first: how much
        self._unread = 0  # the sum of these
        self.connections: dict[Connection, None] = {}  # in the order of their coming

    @property
    def waiting(self) -> int:
        """Requests that were read and not begun, because too many of the same peer are under way."""
        return sum(connection.waiting for connection in self.connections)

    @property
    def waits_s(self) -> float:
        """How long the first of them has been waiting."""
        return max((connection.waits_s for connection in self.connections), default=0.0)

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port. May be called again, for a second port served alike."""
        self._is_stopping = False
        listener = await listen(self._network, self._accept, host, port)
        self._listeners.append(listener)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="close idle connections")
        return listener.port

    async def stop(self, drain_s: float = 5.0) -> None:
        """Accepts and reads no more, lets running handlers answer for up to `drain_s`, then closes all."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
            self._sweeper = None
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
        return _Accepted(
            self.router.serve, self._limits, self._unfinished, self._misbehaved, self._failures, self
        )

    def _leaves_unread(self, connection: Connection) -> None:
        """Called when the output of one is full, and then after each write to it."""
        unread = connection.unread
        self._unread += unread - self._deaf.get(connection, 0)
        self._deaf[connection] = unread
        if self._unread > self._limits.unread_bytes:
            self._count_unread()
        while self._unread > self._limits.unread_bytes:
            longest = next(iter(self._deaf))
            words = "Closing %s: too many answers are left unread, and it has been deaf for longest"
            self._misbehaved.log(self._clock.monotonic(), words, longest)
            longest.abort()

    def _count_unread(self) -> None:
        """Some may have read a little since they were last written to. Each has more than `output_low`, so
        there are never many.
        """
        for deaf in self._deaf:
            self._deaf[deaf] = deaf.unread
        self._unread = sum(self._deaf.values())

    def _leaves_nothing(self, connection: Connection) -> None:
        """It reads again, or is given up."""
        self._unread -= self._deaf.pop(connection, 0)

    def _lost(self, connection: Connection) -> None:
        self._leaves_nothing(connection)
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_closed.set()

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(self._limits.sweep_s)
            now = self._clock.monotonic()
            for connection in list(self.connections):
                connection.examine(now)
            self._bound_unread(now)

    def _bound_unread(self, now: float) -> None:
        """Those count as well that leave less unread than makes them deaf: there may be very many."""
        unread = {connection: connection.unread for connection in self.connections}
        total = sum(unread.values())
        for most in sorted(unread, key=unread.__getitem__, reverse=True):
            if total <= self._limits.unread_bytes:
                break
            words = "Closing %s: too many answers are left unread, most of them by this one: %d bytes"
            self._misbehaved.log(now, words, most, unread[most])
            total -= unread[most]
            most.abort()


class _Accepted(Connection):
    """A connection that tells its server when it begins and ends, and when its peer does not read."""

    __slots__ = ("_server",)

    def __init__(
        self,
        serve: Serve,
        limits: Limits,
        unfinished: Unfinished[Connection],
        peer_errors: RateLimitedLog,
        failures: RateLimitedLog,
        server: Server,
    ) -> None:
        super().__init__(serve, limits, unfinished, peer_errors, failures, server.router.shortcut)
        self._server = server
        self._patience = server.patience

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections[self] = None
        if self._server._is_stopping:  # was accepted just before the listener closed
            self.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._server._leaves_unread(self)

    def _leaves_unread(self) -> None:
        super()._leaves_unread()
        if not self.is_closing:
            self._server._leaves_unread(self)

    def resume_writing(self) -> None:
        self._server._leaves_nothing(self)
        super().resume_writing()

    def abort(self) -> None:
        self._server._leaves_nothing(self)
        super().abort()

    def connection_lost(self, error: Exception | None) -> None:
        try:
            super().connection_lost(error)
        finally:
            self._server._lost(self)


class _Refusal(asyncio.Protocol):
    """One connection too many: closed without a word."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def listen(network: Network, factory: ProtocolFactory, host: str, port: int) -> Listener:
    """Listens on `port`, or for 0 on one whose neighbours are free at this moment too."""
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
