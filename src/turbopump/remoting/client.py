"""The calling side: one connection per address, dialled when first needed, and again after it broke.
Those that are idle are closed, as servers do it, by the same rules.

Requests that the other side sends on such a connection go to the router given here.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from turbopump.protocol.addresses import split_address
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import RESPONSE, Command, decode
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import HEAD, JSON
from turbopump.protocol.packed_send import PackedSend
from turbopump.remoting.connection import Connection, ConnectionClosed
from turbopump.remoting.limits import Limits, Unfinished
from turbopump.remoting.router import Router
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

GO_AWAY = int(ResponseCode.GO_AWAY)
CONNECT_TIMEOUT_S = 3.0
CALL_TIMEOUT_S = 3.0
RETIRE_S = 3.0  # for what is under way on a connection whose server has sent us away
CLOSE_TIMEOUT_S = 1.0  # for what is written and not sent yet


class Unaddressable(ConnectionError):
    """What stands for an address, perhaps in a route, is none."""


class Client:
    def __init__(
        self,
        network: Network,
        clock: Clock,
        router: Router | None = None,
        limits: Limits | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """`extra` are header fields that go with every request."""
        self._network = network
        self._clock = clock
        self._router = router or Router({})
        self._limits = limits or Limits()
        self._connect_timeout_s = connect_timeout_s
        self._unfinished: Unfinished[Connection] = Unfinished()
        self._misbehaved = RateLimitedLog(log, self._limits.log_interval_s)
        self._failures = RateLimitedLog(log, self._limits.log_interval_s, logging.ERROR)
        self._connections: dict[str, Connection] = {}
        self._dials: dict[str, asyncio.Task[Connection]] = {}
        self.extra = dict(extra or {})
        self._retired: set[Connection] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False
        self._all_closed = asyncio.Event()

    async def call(
        self, address: str, request: Command | PackedSend, timeout_s: float = CALL_TIMEOUT_S
    ) -> Command:
        """The answer, whatever its code. Raises OSError: nobody there, connection lost, TimeoutError.
        A server that sends us away is asked once more, on another connection.
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
    ) -> tuple[Connection, Command]:
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
        """The same where there is nothing to wait for but the answer; None: use `call`. Raises OSError."""
        if self.extra:
            self._mark(request)
        connection = self._connections.get(address)
        if connection is None or connection.is_closing or connection.is_full:
            return None
        return connection.ask(request, timeout_s)

    async def send_oneway(
        self, address: str, request: Command | PackedSend, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        """Returns when it is on its way, which takes a while when the peer is slow. Raises OSError."""
        connection = self._connections.get(address)
        if connection is None or connection.is_closing or connection.is_full:
            connection = await self._ready(address, timeout_s)
        if self.extra:
            self._mark(request)
        connection.send_oneway(request)

    def _mark(self, request: Command | PackedSend) -> None:
        """A draft has them already: who makes one asks for `extra`."""
        if isinstance(request, Command):
            request.ext = {**(request.ext or {}), **self.extra}

    async def _ready(self, address: str, timeout_s: float) -> Connection:
        """A connection that takes more, in that time. Raises OSError."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                connection = await self.connect(address)
                while connection.is_full:
                    await connection.room()
                return connection
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"{address} took no request in {timeout_s} s") from None
            raise

    async def connect(self, address: str) -> Connection:
        """The connection to `address`. Callers that come while it is being dialled share the dial."""
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closing:
            return connection
        if self._closed:
            raise ConnectionClosed("this client is closed")
        dial = self._dials.get(address)
        if dial is None:
            dial = self._dials[address] = asyncio.create_task(self._dial(address), name=f"dial {address}")
            dial.add_done_callback(lambda ended: self._dialled(address, ended))
        return await asyncio.shield(dial)  # one impatient caller must not end the dial of the others

    async def close(self) -> None:
        """Closes all connections after what was written has been sent. Running calls fail."""
        self._closed = True
        tasks: list[asyncio.Task[Any]] = list(self._dials.values())
        if self._sweeper is not None:
            tasks.append(self._sweeper)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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

    async def _dial(self, address: str) -> Connection:
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise Unaddressable(str(error)) from None
        connection = Connection(
            self._router.serve,
            self._limits,
            self._unfinished,
            self._misbehaved,
            self._failures,
            answers,
            gathers=True,
        )
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._network.connect(lambda: connection, host, port)
        except TimeoutError:
            raise TimeoutError(f"{address} did not accept in {self._connect_timeout_s} s") from None
        self._connections[address] = connection
        connection.on_closed.append(lambda closed: self._forget(address, closed))
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="close idle connections")
        return connection

    async def _sweep(self) -> None:
        """For as long as there are connections: who has none is not woken."""
        while self._connections or self._retired:
            await self._clock.sleep(self._limits.sweep_s)
            now = self._clock.monotonic()
            for connection in (*self._connections.values(), *self._retired):
                connection.examine(now)
        self._sweeper = None

    def _retire(self, address: str, connection: Connection) -> None:
        """Nothing new goes there. What is under way has a moment to be answered."""
        if self._connections.get(address) is connection:
            del self._connections[address]
            self._retired.add(connection)
            connection.on_closed.append(self._retired.discard)
            asyncio.get_running_loop().call_later(RETIRE_S, connection.close)

    def _dialled(self, address: str, dial: asyncio.Task[Connection]) -> None:
        self._dials.pop(address, None)
        if not dial.cancelled():
            dial.exception()  # looked at: whoever waited for it may have gone

    def _forget(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
        if not self._connections:
            self._all_closed.set()


def answers(connection: Connection, data: bytes) -> tuple[int, bytes]:
    """Gives out the answers that are at the front of a read event: nearly all that a client ever reads. Stops
    at the first frame that is not whole, is no answer or is not what we write ourselves: for the router.
    """
    at, end = 0, len(data)
    while end - at > HEAD.size:
        length, header_length = HEAD.unpack_from(data, at)
        after, body_at = at + 4 + length, at + HEAD.size + header_length
        if after > end or not at + HEAD.size < body_at <= after:
            break
        try:
            command = decode((JSON, data[at + HEAD.size : body_at], data[body_at:after]))
        except BrokenFrame:
            break
        if not command.flag & RESPONSE:
            break
        connection.answered(command)
        at = after
    return at, b""
