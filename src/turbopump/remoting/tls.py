"""TLS beside plain connections on one port, and TLS to other servers: networks around the network below.

In: a `Network`, the contexts and settings of a server. Out: networks with the same interface, so that what
listens or dials does not know of TLS. The first byte of an accepted connection decides: 0x16 begins a TLS
handshake, and no frame, greeting or HTTP request begins with it. From then on a plain connection has its own
protocol at the transport, as if nothing had been in between.

Peers that stay silent, or do not end their handshake, are bounded by number and time (`pending.py`).
"""

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from turbopump.remoting.certificate_user import user_of
from turbopump.remoting.connection import TLS_HANDSHAKE, peer_address
from turbopump.remoting.pending import PendingConnections
from turbopump.remoting.proxied import ProxiedNetwork
from turbopump.remoting.tls_contexts import TlsContexts
from turbopump.remoting.tls_layer import TlsLayer
from turbopump.remoting.tls_settings import Mode, TlsSettings
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk, Workers
from turbopump.runtime.network import Listener, Network, ProtocolFactory
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

LOG_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class ServerNetworks:
    """The networks of one server, by what they are for."""

    requests: Network
    """The network for clients, name servers and the remoting port of a master."""
    copies: Network
    """The network for replication and DLedger: peers that cannot encrypt may be admitted."""
    pages: Network
    """The network for HTTP."""
    contexts: TlsContexts | None
    """None: TLS is not used."""

    @property
    def settings(self) -> TlsSettings | None:
        """The settings with those of `tlsConfigFile`; None without TLS."""
        return self.contexts.settings if self.contexts is not None else None

    @property
    def is_enforcing(self) -> bool:
        """Whether clients can only connect with TLS."""
        return self.contexts is not None and self.contexts.settings.mode == "enforcing"

    @property
    def warnings(self) -> Sequence[str]:
        return self.contexts.warnings if self.contexts is not None else ()

    def to_itself(self, below: Network) -> Network | None:
        """Returns a network on which this process reaches its own ports; None: it has no certificate."""
        if self.contexts is None or not self.is_enforcing:
            return below
        context = self.contexts.to_itself()
        return None if context is None else DiallingNetwork(below, context)

    async def watch(self, clock: Clock, workers: Workers | None = None) -> None:
        """Uses new certificates when their files change; ends at once without TLS."""
        if self.contexts is not None:
            await self.contexts.watch(clock, workers)


def networks_of(
    settings: TlsSettings, network: Network, disk: Disk, proxies: Sequence[str] = ()
) -> ServerNetworks:
    """Returns the networks of a server; `proxies`: addresses that name their clients by the PROXY protocol.

    Raises ConfigError for settings or files that cannot be used.
    """
    contexts = TlsContexts(settings, disk)
    settings = contexts.settings
    for_clients = ProxiedNetwork(network, proxies) if proxies else network
    if contexts.server is None and contexts.client is None:
        return ServerNetworks(for_clients, network, network, None)
    pending = PendingConnections()

    def made(below: Network, mode: Mode, plain_peers: tuple[str, ...] = ()) -> TlsNetwork:
        return TlsNetwork(below, contexts, pending, mode, plain_peers)

    return ServerNetworks(
        made(for_clients, settings.mode),
        made(network, settings.mode, settings.plain_peers),
        made(network, settings.http_mode),
        contexts,
    )


class TlsNetwork:
    """A network whose listeners accept TLS by a mode, and which dials with TLS if it has a context for it."""

    def __init__(
        self,
        network: Network,
        contexts: TlsContexts,
        pending: PendingConnections,
        mode: Mode,
        plain_peers: Sequence[str] = (),
    ) -> None:
        """`plain_peers` (addresses or networks) are accepted and dialled without TLS."""
        self._network = network
        self._contexts = contexts
        self._pending = pending
        self._mode = mode
        self._plain_peers = [ipaddress.ip_network(one, strict=False) for one in plain_peers]

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        if self._mode == "disabled":
            return await self._network.listen(factory, host, port)
        gate = _Gate(self._contexts, self._pending, factory, self._takes_plain)
        return _TlsListener(await self._network.listen(gate.accept, host, port), gate)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        context = self._contexts.client
        if context is None or (self._plain_peers and self._is_plain(await self._network.resolve(host))):
            return await self._network.connect(factory, host, port)
        return await _connect_tls(context, self._network, factory, host, port)

    async def resolve(self, host: str) -> str:
        return await self._network.resolve(host)

    def _takes_plain(self, peer: str) -> bool:
        return self._mode == "permissive" or self._is_plain(peer)

    def _is_plain(self, peer: str) -> bool:
        if not self._plain_peers:
            return False
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._plain_peers)


class DiallingNetwork:
    """A network that dials with one TLS context, and listens without."""

    def __init__(self, network: Network, context: ssl.SSLContext) -> None:
        self._network = network
        self._context = context
        self.listen = network.listen
        self.resolve = network.resolve

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        return await _connect_tls(self._context, self._network, factory, host, port)


async def _connect_tls(
    context: ssl.SSLContext, network: Network, factory: ProtocolFactory, host: str, port: int
) -> asyncio.Protocol:
    """Dials, and returns the protocol once the handshake has succeeded. Raises OSError."""
    done: asyncio.Future[asyncio.Protocol] = asyncio.get_running_loop().create_future()

    def established(layer: TlsLayer) -> asyncio.Protocol:
        protocol = factory()
        if not done.done():
            done.set_result(protocol)
        return protocol

    def failed(error: Exception | None) -> None:
        if done.done():
            return
        words = f"the TLS handshake with {host}:{port} failed: {error or 'the other side closed it'}"
        done.set_exception(error if isinstance(error, OSError) else ConnectionError(words))

    layer = TlsLayer(context, established, failed, server_hostname=host)
    await network.connect(lambda: layer, host, port)
    try:
        return await done
    except BaseException:
        layer.abort()
        raise


class _TlsListener:
    """A listener that ends pending connections with itself."""

    def __init__(self, below: Listener, gate: "_Gate") -> None:
        self._below = below
        self._gate = gate

    @property
    def port(self) -> int:
        return self._below.port

    def close(self) -> None:
        self._below.close()
        self._gate.close()


class _Gate:
    """What the connections of one listener share until they are decided."""

    def __init__(
        self,
        contexts: TlsContexts,
        pending: PendingConnections,
        factory: ProtocolFactory,
        takes_plain: Callable[[str], bool],
    ) -> None:
        self.contexts = contexts
        self.pending = pending
        self.factory = factory
        self.takes_plain = takes_plain
        self.undecided: dict[UndecidedConnection, None] = {}
        self.refused = RateLimitedLog(log, LOG_INTERVAL_S)

    def accept(self) -> asyncio.Protocol:
        return UndecidedConnection(self)

    def close(self) -> None:
        for connection in list(self.undecided):
            connection.abort()


class UndecidedConnection(asyncio.Protocol):
    """An accepted connection whose first byte, or the rest of whose TLS handshake, has not come yet."""

    def __init__(self, gate: _Gate) -> None:
        self._gate = gate
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._gate.undecided[self] = None
        self._gate.pending.accepted(self)

    def data_received(self, data: bytes) -> None:
        if data[0] == TLS_HANDSHAKE:
            self._shake_hands(data)
        else:
            self._go_on_plain(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._decided()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def give_up(self, why: str) -> None:
        """Ends the connection, with a log line: it took too long, or too many others wait."""
        self._refuse("Closing %s: %s", why)
        self.abort()

    def _go_on_plain(self, data: bytes) -> None:
        """Gives the transport to a protocol of its own, if a plain connection is accepted."""
        self._decided()
        transport = self._open
        if not self._gate.takes_plain(peer_address(transport)[0]):
            self._refuse("Closing %s: %s", "it does not use TLS, which is enforced here")
            transport.close()
            return
        protocol = self._gate.factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_closing():
            protocol.data_received(data)

    def _shake_hands(self, data: bytes) -> None:
        context = self._gate.contexts.server
        assert context is not None, "a listener that accepts TLS has a certificate"
        self._gate.pending.begun(self)
        layer = TlsLayer(context, self._established, self._failed)
        transport = self._open
        transport.set_protocol(layer)
        layer.connection_made(transport)
        layer.data_received(data)

    def _established(self, layer: TlsLayer) -> asyncio.Protocol:
        self._decided()
        layer.user = user_of(layer.ssl_object.getpeercert(), self._gate.contexts.settings.user_rule)
        return self._gate.factory()

    def _failed(self, error: Exception | None) -> None:
        if self in self._gate.undecided:
            self._decided()
            if error is not None:
                self._refuse("Closing %s: its TLS handshake failed: %s", error)

    def _decided(self) -> None:
        self._gate.undecided.pop(self, None)
        self._gate.pending.ended(self)

    def _refuse(self, text: str, why: object) -> None:
        ip, port = peer_address(self._open)
        self._gate.refused.log(asyncio.get_running_loop().time(), text, f"{ip}:{port}", why)

    @property
    def _open(self) -> asyncio.Transport:
        assert self._transport is not None, "the connection has not begun"
        return self._transport
