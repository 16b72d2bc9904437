"""A server with TLS over the network in memory, and peers that speak to it with TLS or without."""

import asyncio
import ssl
from typing import cast

from tests.unit.remoting.kit import asked, commands
from tests.unit.remoting.server_kit import Peer
from tests.unit.remoting.tls_kit import HOST, TlsFiles, client_context

from turbopump.protocol.command import Command
from turbopump.remoting.pending import PendingConnections
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.remoting.tls import TlsNetwork
from turbopump.remoting.tls_layer import TlsLayer
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork


class Scene:
    """A server with TLS in memory that answers code 1 with the body, and with the user of the certificate."""

    def __init__(self, files: TlsFiles, mode: str, max_silent: int = 100, max_handshakes: int = 100) -> None:
        self.below = MemoryNetwork()
        self.files = files
        self.contexts = files.contexts()
        self.pending = PendingConnections(max_silent, max_handshakes)
        plain_peers = files.settings.plain_peers
        network = TlsNetwork(self.below, self.contexts, self.pending, mode, plain_peers)  # type: ignore[arg-type]
        self.server = Server(Router({1: Route(None, self._echo)}), network, VirtualClock())
        self.port = 0

    async def start(self) -> "Scene":
        self.port = await self.server.start(HOST, 0)
        return self

    def _echo(self, request: Request[None]) -> Answer:
        return Answer(body=request.body, remark=request.connection.certificate)

    async def plain(self, ip: str = HOST) -> Peer:
        return cast(Peer, await self.below.at(ip).connect(Peer, HOST, self.port))

    async def secure(self, context: ssl.SSLContext | None = None) -> "SecurePeer":
        peer = SecurePeer()
        context = context or client_context()
        layer = TlsLayer(context, lambda _: peer, peer.failed, server_hostname=HOST)
        await self.below.connect(lambda: layer, HOST, self.port)
        await asyncio.wait((peer.ready, peer.lost), return_when=asyncio.FIRST_COMPLETED)
        return peer


class SecurePeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.ready.set_result(None)

    def failed(self, error: Exception | None) -> None:
        self.error = error or ConnectionResetError()
        self.lost.set_result(asyncio.get_running_loop().time())

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        super().connection_lost(error)


async def ask(peer: Peer, body: bytes = b"hello") -> Command:
    peer.transport.write(asked(1, body=body))
    await asyncio.sleep(1)
    (answer,) = commands(peer.got)
    peer.got = b""
    return answer


async def scene(mode: str = "permissive", **changes: object) -> Scene:
    return await Scene(TlsFiles.of(**changes), mode).start()
