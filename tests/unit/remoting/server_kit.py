"""A server in memory and peers that dial it."""

import asyncio
from typing import cast


class Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""
        self.lost: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(asyncio.get_running_loop().time())
