"""The network: listening and connecting. Protocol objects are plain `asyncio.Protocol`s."""

import asyncio
import os
import socket
import ssl
import sys
import weakref
from collections.abc import Callable
from typing import Protocol

ALL_IPV6 = "::"
LAST_DATA_RECEIVED = slice(52, 56)  # of Linux' struct tcp_info: u32 tcpi_last_data_recv, milliseconds ago

ProtocolFactory = Callable[[], asyncio.Protocol]


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stops accepting. Connections that exist go on."""


class Network(Protocol):
    """Listens, connects and resolves host names."""

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        """Listens on an address. Raises OSError if it is not available."""

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        """Connects to an address and returns the protocol that `factory` made. Raises OSError."""

    async def resolve(self, host: str) -> str:
        """Returns an address of a host name. Raises OSError if it has none."""


class _SystemListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        self._server.close()


class SystemNetwork:
    """The TCP network of the operating system. With `tls`, `connect` encrypts.

    `TCP_NODELAY` is asyncio's default for stream sockets.
    """

    BACKLOG = 1024

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        loop = asyncio.get_running_loop()
        if host == ALL_IPV6 and socket.has_dualstack_ipv6():  # asyncio would not accept IPv4 peers
            both = socket.create_server(
                (host, port), family=socket.AF_INET6, backlog=self.BACKLOG, dualstack_ipv6=True
            )
            return _SystemListener(await loop.create_server(factory, sock=both, backlog=self.BACKLOG))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = await loop.create_server(
            factory, host or None, port, family=family, backlog=self.BACKLOG, reuse_address=True
        )
        return _SystemListener(server)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(factory, host, port, ssl=self._tls)
        _remember(transport)
        return protocol

    async def resolve(self, host: str) -> str:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found.sort(key=lambda row: row[0] != socket.AF_INET)  # IPv4 first: most clients can reach it
        return str(found[0][4][0])


_dialled: "weakref.WeakSet[asyncio.Transport]" = weakref.WeakSet()
_dialled_with_tls: set[asyncio.Transport] = set()
"""uvloop's transports cannot be referenced weakly: they are dropped at the first dial after they closed."""


def _remember(transport: asyncio.Transport) -> None:
    try:
        _dialled.add(transport)
    except TypeError:
        _dialled_with_tls.difference_update([one for one in _dialled_with_tls if one.is_closing()])
        _dialled_with_tls.add(transport)


def _let_go() -> None:
    """Closes, in a forked process, the connections inherited from the parent, to which they belong.

    Held open here too, they would outlive it, and peers would not see that it is gone. The descriptor numbers
    stay in use, in case the transports are still closed here.
    """
    if not _dialled and not _dialled_with_tls:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for transport in (*_dialled, *_dialled_with_tls):
        peer: socket.socket | None = transport.get_extra_info("socket")
        if peer is not None and peer.fileno() >= 0:
            os.dup2(nothing, peer.fileno(), inheritable=False)
    os.close(nothing)
    _dialled.clear()
    _dialled_with_tls.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def received_ago_s(transport: asyncio.BaseTransport, now: float) -> float:
    """Returns seconds since the newest bytes of a connection came to this machine, read or not; 0 if unknown.

    `now` is the loop's time. A simulated network gives `received_at` in the same time.
    """
    received_at: float | None = transport.get_extra_info("received_at")
    if received_at is not None:
        return now - received_at
    peer: socket.socket | None = transport.get_extra_info("socket")
    if peer is None or not hasattr(socket, "TCP_INFO"):
        return 0.0
    try:
        info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_DATA_RECEIVED.stop)
    except OSError:
        return 0.0
    return int.from_bytes(info[LAST_DATA_RECEIVED], sys.byteorder) / 1000


def descriptor_limit() -> int:
    """Returns how many files and connections this process may have open. Servers raise it first."""
    import resource  # only POSIX has it, and clients run elsewhere too

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft
