"""Connections that come through proxies: a network around the network below, which knows the real clients.

In: a `Network`, and the addresses of proxies. Out: a network whose accepted connections have the address that
a proxy names in its head (`protocol.proxy_head`), for everything that asks: policies by address, back-off,
quotas, audit lines, logs. The head comes before all else, TLS too. It is read from the named addresses alone:
anybody can write one. A connection from there that begins without a head is that of the machine itself.
"""

import asyncio
import logging
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any, cast

from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.proxy_head import may_be_head, read_head
from turbopump.remoting.connection import peer_address
from turbopump.remoting.pending import WaitingConnections
from turbopump.runtime.network import Listener, Network, ProtocolFactory
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

MAX_WAITING = 1024  # connections of proxies whose head has not come; with more, the oldest one is closed
HEAD_TIMEOUT_S = 10.0  # proxies send it at once
LOG_INTERVAL_S = 10.0


def proxies_of(text: str) -> tuple[str, ...]:
    """Parses addresses and networks of proxies, separated by `;`. Raises ValueError."""
    names = tuple(filter(None, map(str.strip, text.split(";"))))
    if not all(ip_network(name, strict=False).prefixlen for name in names):
        raise ValueError("a network of all addresses would believe everybody")
    return names


class ProxiedNetwork:
    """A network whose listeners take the address of a client from the head that a named proxy sends."""

    def __init__(self, network: Network, proxies: Sequence[str]) -> None:
        """`proxies`: IP addresses or networks."""
        self.connect = network.connect
        self.resolve = network.resolve
        self.waiting: WaitingConnections[HeadConnection] = WaitingConnections(
            MAX_WAITING, HEAD_TIMEOUT_S, "its proxy has not said for whom it is"
        )
        self.refused = RateLimitedLog(log, LOG_INTERVAL_S)
        self._network = network
        self._proxies = [ip_network(one, strict=False) for one in proxies]

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        listener = await self._network.listen(lambda: HeadConnection(self, factory), host, port)
        return _HeadListener(listener, self)

    def is_proxy(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


class _HeadListener:
    """A listener that ends connections whose head has not come with itself."""

    def __init__(self, below: Listener, network: ProxiedNetwork) -> None:
        self._below = below
        self._network = network

    @property
    def port(self) -> int:
        return self._below.port

    def close(self) -> None:
        self._below.close()
        for connection in self._network.waiting:
            connection.abort()


class HeadConnection(asyncio.Protocol):
    """An accepted connection before its own protocol begins: waits for the head, if a proxy has opened it."""

    def __init__(self, network: ProxiedNetwork, factory: ProtocolFactory) -> None:
        self._network = network
        self._factory = factory
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._network.is_proxy(peer_address(transport)[0]):
            self._network.waiting.add(self)
        else:
            self._begin(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not may_be_head(self._received):
            self._begin(self._open, self._received)
            return
        try:
            head = read_head(self._received)
        except BrokenFrame as error:
            self.give_up(str(error))
            return
        if head is not None:
            transport = self._open if head.client is None else ProxiedTransport(self._open, head.client)
            self._begin(transport, self._received[head.size :])

    def connection_lost(self, error: Exception | None) -> None:
        self._network.waiting.remove(self)

    def give_up(self, why: str) -> None:
        """Ends the connection, with a log line."""
        ip, port = peer_address(self._open)
        now = asyncio.get_running_loop().time()
        self._network.refused.log(now, "Closing a connection of the proxy %s:%d: %s", ip, port, why)
        self.abort()

    def abort(self) -> None:
        self._network.waiting.remove(self)
        self._open.abort()

    def _begin(self, transport: asyncio.Transport, received: bytes = b"") -> None:
        """Gives the connection to its own protocol, as if nothing had been before `received`."""
        self._network.waiting.remove(self)
        protocol = self._factory()
        self._open.set_protocol(protocol)
        protocol.connection_made(transport)
        if received and not transport.is_closing():
            protocol.data_received(received)

    @property
    def _open(self) -> asyncio.Transport:
        assert self._transport is not None, "the connection has not begun"
        return self._transport


class ProxiedTransport(asyncio.Transport):
    """The transport of a proxy's connection, with the address of the client behind it."""

    def __init__(self, below: asyncio.Transport, client: tuple[str, int]) -> None:
        super().__init__()
        self._below = below
        self._client = client
        # Called for each read event: without a call in between.
        self.write = below.write  # type: ignore[method-assign]
        self.is_closing = below.is_closing  # type: ignore[method-assign]
        self.get_write_buffer_size = below.get_write_buffer_size  # type: ignore[method-assign]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._client if name == "peername" else self._below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._below.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._below.get_protocol()

    def writelines(self, list_of_data: Any) -> None:
        self._below.writelines(list_of_data)

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._below.get_write_buffer_limits()

    def can_write_eof(self) -> bool:
        return self._below.can_write_eof()

    def write_eof(self) -> None:
        self._below.write_eof()
