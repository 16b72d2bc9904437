"""Connecting through SOCKS5 proxies (RFC 1928, user and password by RFC 1929), chosen by the address.

In: an address to connect to. Out: the same as from any network, a protocol whose transport leads there.
Listening and resolving names are left to the network below.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from turbopump.runtime.network import Listener, Network, ProtocolFactory

EVERYTHING = "0.0.0.0/0"  # also names and IPv6
VERSION, CONNECT, BY_PASSWORD, PASSWORD_VERSION = 5, 1, 2, 1
NO_METHOD = 0xFF
IPV4, NAME, IPV6 = 1, 3, 4
MAX_TEXT_BYTES = 255  # of a host name, a user and a password
REFUSALS = (
    "", "general failure", "not allowed by its rules", "network unreachable", "host unreachable",
    "connection refused", "TTL expired", "command not supported", "kind of address not supported",
)  # fmt: skip


class ProxyRefused(ConnectionError):
    """Raised when a SOCKS proxy does not connect us, or cannot be asked to."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A SOCKS5 proxy, and the hosts that are reached through it."""

    hosts: str
    """A network such as 10.0.0.0/8, or EVERYTHING for all hosts."""
    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)

    def serves(self, host: str) -> bool:
        if self.hosts == EVERYTHING:
            return True
        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(self.hosts, strict=False)
        except ValueError:  # a name
            return False


class SocksNetwork:
    """A network that connects to a host through the first proxy that serves it, else directly.

    `direct` connects to hosts that no proxy serves, `plain` to the proxies.
    """

    def __init__(
        self, plain: Network, direct: Network, proxies: Sequence[Proxy], tls: ssl.SSLContext | None = None
    ) -> None:
        """`plain` connects to proxies, `direct` to other hosts; `tls` encrypts end to end through a proxy."""
        self._plain = plain
        self._direct = direct
        self._proxies = tuple(proxies)
        self._tls = tls

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        return await self._plain.listen(factory, host, port)

    async def resolve(self, host: str) -> str:
        return await self._plain.resolve(host)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        proxy = next((one for one in self._proxies if one.serves(host)), None)
        if proxy is None:
            return await self._direct.connect(factory, host, port)
        made = await self._plain.connect(ProxyConnection, proxy.host, proxy.port)
        connection = cast(ProxyConnection, made)
        try:
            await request_connection(connection, proxy, host, port)
            return await self._hand_over(connection, factory(), host)
        except BaseException:
            connection.transport.abort()
            raise

    async def _hand_over(
        self, connection: "ProxyConnection", protocol: asyncio.Protocol, host: str
    ) -> asyncio.Protocol:
        """Gives the established connection to the caller's protocol."""
        transport = connection.transport
        if self._tls is not None:
            loop = asyncio.get_running_loop()
            encrypted = await loop.start_tls(transport, protocol, self._tls, server_hostname=host)
            assert encrypted is not None
            protocol.connection_made(encrypted)
            return protocol
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if rest := connection.unread():
            protocol.data_received(rest)
        return protocol


async def request_connection(connection: "ProxyConnection", proxy: Proxy, host: str, port: int) -> None:
    """Asks the proxy for a connection to an address. Raises ProxyRefused."""
    methods = bytes([0, BY_PASSWORD]) if proxy.user else bytes([0])
    connection.write(bytes([VERSION, len(methods)]) + methods)
    version, method = await connection.read(2)
    if version != VERSION:
        raise ProxyRefused(f"{proxy.host}:{proxy.port} is not a SOCKS5 proxy")
    if method == BY_PASSWORD and proxy.user:
        connection.write(bytes([PASSWORD_VERSION]) + _text(proxy.user) + _text(proxy.password))
        if (await connection.read(2))[1] != 0:
            raise ProxyRefused(f"the proxy {proxy.host}:{proxy.port} rejects this user and password")
    elif method != 0:
        wants = "requires user and password"
        if method not in (BY_PASSWORD, NO_METHOD):
            wants = f"requires authentication method {method}, which is not supported"
        raise ProxyRefused(f"the proxy {proxy.host}:{proxy.port} {wants}")
    connection.write(bytes([VERSION, CONNECT, 0]) + address_of(host) + port.to_bytes(2, "big"))
    _, reply, _, kind = await connection.read(4)
    if reply != 0:
        why = REFUSALS[reply] if reply < len(REFUSALS) else f"code {reply}"
        raise ProxyRefused(f"the proxy {proxy.host}:{proxy.port} cannot connect to {host}:{port}: {why}")
    size = {IPV4: 4, IPV6: 16}.get(kind) or (await connection.read(1))[0]
    await connection.read(size + 2)  # where it is connected from: not needed


def address_of(host: str) -> bytes:
    """Encodes a host as a SOCKS5 request has it: an IP address, or a name that the proxy resolves."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes([NAME]) + _text(host)
    return bytes([IPV4 if address.version == 4 else IPV6]) + address.packed


def _text(text: str) -> bytes:
    data = text.encode("idna") if not text.isascii() and "." in text else text.encode()
    if len(data) > MAX_TEXT_BYTES:
        raise ProxyRefused(
            f"SOCKS names, users and passwords must have at most {MAX_TEXT_BYTES} bytes, got {len(data)}"
        )
    return bytes([len(data)]) + data


class ProxyConnection(asyncio.Protocol):
    """Protocol of a connection to a proxy, until the proxy has connected us to the address asked for."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = bytearray()
        self._changed = asyncio.Event()
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._changed.set()

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    async def read(self, count: int) -> bytes:
        """Returns the next `count` bytes. Raises ProxyRefused if the proxy closes before they came."""
        while len(self._received) < count:
            if self._is_lost:
                raise ProxyRefused("the proxy closed the connection")
            self._changed.clear()
            await self._changed.wait()
        found = bytes(self._received[:count])
        del self._received[:count]
        return found

    def unread(self) -> bytes:
        """Returns the bytes that came after the proxy's last answer, without removing them."""
        return bytes(self._received)
