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
    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stop accepting. Connections that exist go on."""


class Network(Protocol):
    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        """Raises OSError when the address cannot be had."""

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        """Raises OSError when nobody answers."""

    async def resolve(self, host: str) -> str:
        """An address of a host name. Raises OSError when it has none."""


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
    """TCP. `TCP_NODELAY` is asyncio's default for stream sockets. With `tls` we connect encrypted."""

    BACKLOG = 1024

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        loop = asyncio.get_running_loop()
        if host == ALL_IPV6 and socket.has_dualstack_ipv6():  # asyncio would leave IPv4 peers outside
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
        found.sort(key=lambda row: row[0] != socket.AF_INET)  # what most clients can reach comes first
        return str(found[0][4][0])


_dialled: "weakref.WeakSet[asyncio.Transport]" = weakref.WeakSet()
_dialled_with_tls: set[asyncio.Transport] = set()
"""Those of uvloop cannot be held weakly: they are let go of at the first dial after they were closed."""


def _remember(transport: asyncio.Transport) -> None:
    try:
        _dialled.add(transport)
    except TypeError:
        _dialled_with_tls.difference_update([one for one in _dialled_with_tls if one.is_closing()])
        _dialled_with_tls.add(transport)


def _let_go() -> None:
    """In a forked process: connections are the parent's. Held here too, they would outlive it, and peers
    would not see that it is gone. Their numbers stay taken, in case somebody still closes them.
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
    """Seconds since the newest bytes of a connection came to this machine, read or not; 0 if nobody knows.

    `now` is the loop's time. A simulated network says `received_at` in the same time.
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
    """How many files and connections this process may have open. Servers raise it first, then ask."""
    import resource  # only POSIX has it, and clients run elsewhere too

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft
