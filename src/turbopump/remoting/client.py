"""Client side of remoting: one connection per address, dialled when first needed and after it broke.

Idle connections are closed by the same rules as those of a server. Requests that the other side sends on a
dialled connection go to the router given here.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping

from turbopump.protocol.addresses import split_address
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.packed_send import PackedSend
from turbopump.remoting.connection import Connection, ConnectionClosed, ConnectionGroup, Sign
from turbopump.remoting.dialled import DialledConnection
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Router
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

GO_AWAY = int(ResponseCode.GO_AWAY)
CONNECT_TIMEOUT_S = 3.0
CALL_TIMEOUT_S = 3.0
RETIRE_S = 3.0  # for calls under way on a connection whose server answered GO_AWAY
CLOSE_TIMEOUT_S = 1.0  # for what is written and not sent yet


class Unaddressable(ConnectionError):
    """Raised when an address, perhaps from a route, is not of the form host:port."""


class Client:
    """Calls servers by address, over connections that it opens, shares among callers and closes."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        router: Router | None = None,
        limits: Limits | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        extra: Mapping[str, str] | None = None,
        sign: Sign | None = None,
    ) -> None:
        """`extra` are header fields that are added to every request; `sign` then signs it."""
        self._network = network
        self._clock = clock
        self._router = router or Router({})
        self._limits = limits or Limits()
        self._connect_timeout_s = connect_timeout_s
        self._group = ConnectionGroup.of(self._limits, log)
        self._connections: dict[str, DialledConnection] = {}
        self._tasks = Tasks(log)
        self._dials: dict[str, asyncio.Task[DialledConnection]] = {}
        self.extra = dict(extra or {})
        self._sign = sign
        self._retired: set[Connection] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False
        self._all_closed = asyncio.Event()

    async def call(
        self, address: str, request: Command | PackedSend, timeout_s: float = CALL_TIMEOUT_S
    ) -> Command:
        """Sends a request and returns its answer, whatever the code; raises OSError, such as TimeoutError.

        If the answer is GO_AWAY, the server is asked once more, on another connection.
        """
        started = self._clock.monotonic()
        connection, answer = await self._call(address, request, timeout_s)
        if answer.code != GO_AWAY:
            return answer
        self._retire(address, connection)
        left_s = timeout_s - (self._clock.monotonic() - started)
        return (await self._call(address, request, max(0.0, left_s)))[1]

    async def _call(
        self, address: str, request: Command | PackedSend, timeout_s: float
    ) -> tuple[DialledConnection, Command]:
        answer = self.ask(address, request, timeout_s)
        if answer is not None:
            return self._connections[address], await answer
        started = self._clock.monotonic()
        connection = await self._ready(address, timeout_s)
        left_s = timeout_s - (self._clock.monotonic() - started)
        return connection, await connection.ask(request, max(0.0, left_s))

    def ask(
        self, address: str, request: Command | PackedSend, timeout_s: float
    ) -> asyncio.Future[Command] | None:
        """Writes a request at once and returns the future of its answer; None if no connection is ready.

        Then `call` has to wait for a connection first. Raises OSError.
        """
        if self.extra:
            self._mark(request)
        connection = self._connections.get(address)
        if connection is None or connection.is_closing or connection.is_full:
            return None
        return connection.ask(request, timeout_s)

    def silent(self, codes: Collection[int], for_s: float) -> list[str]:
        """Returns the addresses where a request of these codes waits so long, and nothing came since."""
        return [
            address for address, connection in self._connections.items() if connection.is_silent(codes, for_s)
        ]

    def is_waiting(self, codes: Collection[int]) -> bool:
        """Whether a request of these codes waits for its answer at any address."""
        return any(connection.is_waiting(codes) for connection in self._connections.values())

    def abandon(self, address: str) -> None:
        """Ends the connection to an address at once: its calls fail, and the next one dials again."""
        if (connection := self._connections.get(address)) is not None:
            connection.abort()

    async def send_oneway(
        self, address: str, request: Command | PackedSend, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        """Writes a one-way request, after waiting for a connection that is not full; raises OSError."""
        connection = self._connections.get(address)
        if connection is None or connection.is_closing or connection.is_full:
            connection = await self._ready(address, timeout_s)
        if self.extra:
            self._mark(request)
        connection.send_oneway(request)

    def _mark(self, request: Command | PackedSend) -> None:
        """Adds the `extra` fields to a Command; a packed send already has them.

        The maker of a packed send reads `extra`.
        """
        if isinstance(request, Command):
            request.ext = {**(request.ext or {}), **self.extra}

    async def _ready(self, address: str, timeout_s: float) -> DialledConnection:
        """Returns a connection, dialled if needed, that can be written to; raises OSError, TimeoutError."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                connection = await self.connect(address)
                while connection.is_full:
                    await connection.writable()
                return connection
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"{address} took no request in {timeout_s} s") from None
            raise

    async def connect(self, address: str) -> DialledConnection:
        """Returns the open connection to `address`, or dials one; concurrent callers share the dial."""
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closing:
            return connection
        if self._closed:
            raise ConnectionClosed("this client is closed")
        dial = self._dials.get(address)
        if dial is None:
            dial = self._dials[address] = self._tasks.start(
                self._dial(address), f"dial {address}", log_failure=False
            )
            dial.add_done_callback(lambda ended: self._dialled(address, ended))
        return await asyncio.shield(dial)  # one impatient caller must not end the dial of the others

    async def close(self) -> None:
        """Closes all connections after what was written has been sent, within 1 s; running calls fail."""
        self._closed = True
        await self._tasks.close()
        for connection in (*self._connections.values(), *self._retired):
            connection.close()
        if self._connections:
            self._all_closed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._all_closed.wait()
        for connection in list(self._connections.values()):
            connection.abort()
        await self._router.close()

    async def _dial(self, address: str) -> DialledConnection:
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise Unaddressable(str(error)) from None
        connection = DialledConnection(self._router.serve, self._group, self._sign)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._network.connect(lambda: connection, host, port)
        except TimeoutError:
            raise TimeoutError(f"{address} did not accept in {self._connect_timeout_s} s") from None
        self._connections[address] = connection
        connection.on_closed.append(lambda closed: self._forget(address, closed))
        if self._sweeper is None:
            self._sweeper = self._tasks.start(self._sweep(), "close idle connections")
        return connection

    async def _sweep(self) -> None:
        """Closes idle connections, checking every `sweep_s` seconds; ends when there is no connection.

        A client without connections does not wake up.
        """
        while self._connections or self._retired:
            await self._clock.sleep(self._limits.sweep_s)
            now = self._clock.monotonic()
            for connection in (*self._connections.values(), *self._retired):
                connection.examine(now)
        self._sweeper = None

    def _retire(self, address: str, connection: DialledConnection) -> None:
        """Takes a connection out of use, and closes it after `RETIRE_S`, in which running calls may end."""
        if self._connections.get(address) is connection:
            del self._connections[address]
            self._retired.add(connection)
            connection.on_closed.append(self._retired.discard)
            asyncio.get_running_loop().call_later(RETIRE_S, connection.close)

    def _dialled(self, address: str, dial: asyncio.Task[DialledConnection]) -> None:
        self._dials.pop(address, None)
        if not dial.cancelled():
            dial.exception()  # retrieved, so that asyncio does not log it: the callers may be gone

    def _forget(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
        if not self._connections:
            self._all_closed.set()
