"""A peer with a real socket."""

import asyncio
import contextlib
from typing import cast

from turbopump.protocol.command import Command, decode, encode
from turbopump.protocol.frame import Frame, cut

PATIENCE_S = 10.0


class Peer:
    """A stream that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, port: int) -> "Peer":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    def send(self, *requests: Command) -> None:
        self.writer.write(b"".join(map(encode, requests)))

    async def receive(self) -> Command:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readexactly(4)
            data = head + await self.reader.readexactly(int.from_bytes(head, "big"))
        frames: list[Frame] = []
        cut(data, frames)
        return decode(frames[0])

    async def ended(self) -> bytes:
        """Waits for the other side to close; what came before."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""

    @property
    def transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self.writer.transport)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()
