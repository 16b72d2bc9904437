"""Binds the two ports of a broker, and finds the addresses that others use for it.

In: what the broker listens on. Out: two bound servers that refuse everything until a router serves them, the
address that clients are told, the one stamped on records. No request is served here.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from turbopump.broker.address import advertised
from turbopump.broker.config import ListenConfig
from turbopump.protocol.addresses import FAST_PORT_STEP, HA_PORT_STEP
from turbopump.protocol.frame import Frame
from turbopump.protocol.ids import pack_host
from turbopump.remoting.connection import Connection
from turbopump.remoting.limits import Limits, connections_within
from turbopump.remoting.server import Server
from turbopump.remoting.tls_settings import TlsSettings
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network, descriptor_limit


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """The bound main and fast port of a broker, and the addresses that others use for it."""

    servers: tuple[Server, Server]
    """Those of main and fast port."""
    port: int
    """Main port; the fast port is two below."""
    host: str
    """Host under which clients reach this broker: a name or an address."""
    warning: str = ""
    """Says when clients on other machines cannot use it."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def ha_address(self, listening: ListenConfig) -> str:
        """Returns the address under which slaves reach this broker."""
        return f"{listening.ha_address or self.host}:{listening.ha_port or self.port + HA_PORT_STEP}"

    async def store_host(self, network: Network) -> bytes:
        """Returns the packed address and port that are stamped on records; resolves a host name."""
        try:
            return pack_host(self.host, self.port)
        except ValueError:
            return pack_host(await network.resolve(self.host), self.port)


async def bind(
    listening: ListenConfig,
    network: Network,
    clock: Clock,
    primary_address: Callable[[], str | None],
    stack: contextlib.AsyncExitStack,
) -> BrokerPorts:
    """Binds main and fast port until the stack is closed; the servers serve no request yet."""
    connections = connections_within(descriptor_limit(), servers=2)
    limits = Limits(idle_s=listening.idle_seconds, max_connections=connections)
    main, fast = (Server(_NotReady(), network, clock, limits) for _ in range(2))
    port = await main.start(listening.bind_address, listening.port)
    stack.push_async_callback(main.stop)
    if port + FAST_PORT_STEP > 0:
        await fast.start(listening.bind_address, port + FAST_PORT_STEP)
        stack.push_async_callback(fast.stop)
    chosen = advertised(listening.advertised_address, listening.bind_address, primary_address)
    return BrokerPorts((main, fast), port, chosen.address, chosen.warning)


def clear_text_warnings(tls: TlsSettings | None) -> list[str]:
    """Returns a warning if clients have to encrypt, but this broker does not when it dials other servers."""
    if tls is None or tls.mode != "enforcing" or tls.enabled:
        return []
    return [
        "tlsServerMode=enforcing, but tlsEnable=false: name servers, the master and members of a group "
        "are dialled in clear text"
    ]


class _NotReady:
    """Serves a port that is bound while the broker is not ready: closes each connection with a request.

    Clients try again.
    """

    shortcut = None

    def serve(self, connection: Connection, frames: list[Frame]) -> None:
        connection.close()
