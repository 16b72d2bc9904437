"""Connecting through SOCKS5 proxies (RFC 1928, user and password by RFC 1929), chosen by the address.

What comes in: who wants to be connected where. What goes out: the same as from any network, a protocol whose
transport leads there. Listening and names are left to the network below.
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
LONGEST_TEXT = 255  # of a name, a user and a password
REFUSALS = (
    "", "general failure", "not allowed by its rules", "network unreachable", "host unreachable",
    "connection refused", "TTL expired", "command not supported", "kind of address not supported",
)  # fmt: skip


class ProxyRefused(ConnectionError):
    """The proxy answers, and does not connect us."""


@dataclass(frozen=True, slots=True)
class Proxy:
    hosts: str
    """A network such as 10.0.0.0/8; who is in it is reached through this proxy. EVERYTHING: all."""
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
    """`direct` is for hosts that no proxy serves, `plain` leads to proxies. The first that serves counts."""

    def __init__(
        self, plain: Network, direct: Network, proxies: Sequence[Proxy], tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls` encrypts what goes through a proxy, beyond it."""
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
        talk = cast(Talk, await self._plain.connect(Talk, proxy.host, proxy.port))
        try:
            await introduce(talk, proxy, host, port)
            return await self._hand_over(talk, factory(), host)
        except BaseException:
            talk.transport.abort()
            raise

    async def _hand_over(self, talk: "Talk", protocol: asyncio.Protocol, host: str) -> asyncio.Protocol:
        """The connection stands: from here on it is the user's."""
        transport = talk.transport
        if self._tls is not None:
            loop = asyncio.get_running_loop()
            encrypted = await loop.start_tls(transport, protocol, self._tls, server_hostname=host)
            assert encrypted is not None
            protocol.connection_made(encrypted)
            return protocol
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if rest := talk.rest():
            protocol.data_received(rest)
        return protocol


async def introduce(talk: "Talk", proxy: Proxy, host: str, port: int) -> None:
    """Asks the proxy for a connection to there. Raises ProxyRefused."""
    methods = bytes([0, BY_PASSWORD]) if proxy.user else bytes([0])
    talk.say(bytes([VERSION, len(methods)]) + methods)
    version, method = await talk.hear(2)
    if version != VERSION:
        raise ProxyRefused(f"{proxy.host}:{proxy.port} is no SOCKS5 proxy")
    if method == BY_PASSWORD and proxy.user:
        talk.say(bytes([PASSWORD_VERSION]) + _text(proxy.user) + _text(proxy.password))
        if (await talk.hear(2))[1] != 0:
            raise ProxyRefused(f"the proxy {proxy.host}:{proxy.port} does not take this user and password")
    elif method != 0:
        wants = "wants user and password" if method in (BY_PASSWORD, NO_METHOD) else "wants what we cannot"
        raise ProxyRefused(f"the proxy {proxy.host}:{proxy.port} {wants}")
    talk.say(bytes([VERSION, CONNECT, 0]) + address_of(host) + port.to_bytes(2, "big"))
    _, reply, _, kind = await talk.hear(4)
    if reply != 0:
        why = REFUSALS[reply] if reply < len(REFUSALS) else f"code {reply}"
        raise ProxyRefused(f"the proxy {proxy.host}:{proxy.port} cannot connect to {host}:{port}: {why}")
    size = {IPV4: 4, IPV6: 16}.get(kind) or (await talk.hear(1))[0]
    await talk.hear(size + 2)  # where it is connected from; nobody needs it


def address_of(host: str) -> bytes:
    """As a request has it: names are for the proxy to look up."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes([NAME]) + _text(host)
    return bytes([IPV4 if address.version == 4 else IPV6]) + address.packed


def _text(text: str) -> bytes:
    data = text.encode("idna") if not text.isascii() and "." in text else text.encode()
    if len(data) > LONGEST_TEXT:
        raise ProxyRefused(f"SOCKS takes at most {LONGEST_TEXT} bytes, not {len(data)}")
    return bytes([len(data)]) + data


class Talk(asyncio.Protocol):
    """With a proxy, until it has connected us."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._heard = bytearray()
        self._news = asyncio.Event()
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        self._news.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._news.set()

    def say(self, data: bytes) -> None:
        self.transport.write(data)

    async def hear(self, count: int) -> bytes:
        while len(self._heard) < count:
            if self._is_lost:
                raise ProxyRefused("the proxy closed the connection")
            self._news.clear()
            await self._news.wait()
        found = bytes(self._heard[:count])
        del self._heard[:count]
        return found

    def rest(self) -> bytes:
        """What came after the proxy's last word."""
        return bytes(self._heard)
