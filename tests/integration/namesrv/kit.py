"""What the name server's tests share: servers in virtual time, peers of bytes, captured exchanges."""

import asyncio
import json
import lzma
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.protocol.command import Command, decode, encode
from turbopump.protocol.frame import Frame, cut
from turbopump.runtime.disk import SystemDisk
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.network import MemoryNetwork

WIRE = Path(__file__).parents[2] / "compat" / "wire"


def captured(name: str) -> list[dict[str, Any]]:
    """Rows of a file with frames exchanged with Apache's servers."""
    with lzma.open(WIRE / f"{name}.jsonl.xz", "rt", encoding="utf-8") as rows:
        return [json.loads(row) for row in rows]


class Peer(asyncio.Protocol):
    """Sends bytes, keeps what comes back."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = b""
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    async def exchange(self, data: bytes) -> bytes:
        """What is answered within a virtual second; nothing is no answer."""
        assert self.transport is not None
        self.received = b""
        self.transport.write(data)
        await asyncio.sleep(1)
        return self.received

    async def ask(self, command: Command) -> Command:
        return command_in(await self.exchange(encode(command)))

    def close(self) -> None:
        assert self.transport is not None
        self.transport.close()


class World:
    """One network in virtual time with name servers on it."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.clock = VirtualClock()

    async def name_server(
        self, ip: str = "10.0.0.1", host: str = "", **settings: Any
    ) -> tuple[NameServer, str]:
        config = NamesrvConfig(listen_port=9876, **settings)
        server = NameServer(config, self.network.at(ip), self.clock, SystemDisk(), host=host)
        return server, f"{ip}:{await server.start()}"

    async def peer(self, address: str, ip: str = "10.0.0.9") -> Peer:
        host, _, port = address.rpartition(":")
        return cast(Peer, await self.network.at(ip).connect(Peer, host, int(port)))


def in_world(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test(World())

        run_virtual(main())

    run.__name__ = test.__name__
    return run


def command_in(data: bytes) -> Command:
    frames: list[Frame] = []
    assert cut(data, frames) == len(data)
    [frame] = frames
    return decode(frame)
