"""A loopback TCP proxy that can fail as a network does: cut, frozen, in one direction only, slow.

Bytes that must not pass now are kept and pass when the link is restored, as TCP would send them again. So is
the end of a connection: a peer behind a frozen link does not learn that the other one is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from enum import Enum
from typing import Any, TypeVar

HOST = "127.0.0.1"
CHUNK = 16 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: a close sends RST
CALL_S = 10.0

T = TypeVar("T")


class Way(Enum):
    """A direction of a link."""

    FORTH = "from the side that connects"
    BACK = "to the side that connects"


class Link:
    """Passes bytes between those who connect to its port and one target. Runs in one event loop."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._passes = {way: asyncio.Event() for way in Way}
        self._refuses = False
        self._bytes_per_s = 0
        self._delay_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self.replaced: dict[bytes, bytes] = {}
        """Texts to replace in what goes back, with others of the same length."""
        self.accepted = 0
        """How many connections came."""
        self.passed = 0
        """How many bytes went through, in both directions."""

    async def open(self) -> None:
        """Starts to listen, and passes everything."""
        self.mend()
        self._server = await asyncio.start_server(self._accept, HOST, 0)

    @property
    def address(self) -> str:
        assert self._server is not None, "the link is not open"
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.mend()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> None:
        """Resets all connections; new ones pass."""
        for end in self._ends:
            _reset(end)

    def cut(self) -> None:
        """Resets all connections, and each new one, until the link is restored."""
        self._refuses = True
        self.reset()

    def freeze(self) -> None:
        """Accepts connections and passes nothing, without a word to either side."""
        for passes in self._passes.values():
            passes.clear()

    def one_way(self, way: Way) -> None:
        """Passes bytes in this direction alone."""
        self.mend()
        self._passes[Way.BACK if way is Way.FORTH else Way.FORTH].clear()

    def slow(self, bytes_per_s: int = 0, delay_s: float = 0.0) -> None:
        """Passes at most so many bytes in a second, and each piece after a delay; 0: without a limit."""
        self._bytes_per_s, self._delay_s = bytes_per_s, delay_s

    def mend(self) -> None:
        """Passes everything again, and what has been kept first."""
        self._refuses = False
        self.slow()
        for passes in self._passes.values():
            passes.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refuses:
            _reset(writer)
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._join(reader, writer)
        except OSError:
            _reset(writer)
        finally:
            self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        ends = {writer, far_writer}
        self._ends |= ends
        if self._refuses:  # cut in the meantime
            self.reset()
        try:
            await asyncio.gather(
                self._pass(Way.FORTH, reader, far_writer), self._pass(Way.BACK, far_reader, writer)
            )
        finally:
            self._ends -= ends
            for end in ends:
                end.close()

    async def _pass(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes bytes in one direction, and then that there are no more."""
        while data := await reader.read(CHUNK):
            await self._pause(len(data))
            await self._passes[way].wait()
            writer.write(self._replace(data) if way is Way.BACK else data)
            await writer.drain()
            self.passed += len(data)
        await self._passes[way].wait()
        if not writer.is_closing():
            writer.write_eof()

    def _replace(self, data: bytes) -> bytes:
        for old, new in self.replaced.items():
            assert len(old) == len(new), f"{new!r} must be as long as {old!r}"
            data = data.replace(old, new)
        return data

    async def _pause(self, size: int) -> None:
        pause_s = self._delay_s + (size / self._bytes_per_s if self._bytes_per_s else 0.0)
        if pause_s:
            await asyncio.sleep(pause_s)


def _reset(end: asyncio.StreamWriter) -> None:
    connection = end.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    end.transport.abort()


class Links:
    """Links in an event loop of their own, in a thread, for a harness that blocks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._links: list[Link] = []
        self._thread.start()

    def open(self, target: str) -> ThreadedLink:
        """Opens a link to the target."""

        async def opened() -> Link:
            link = Link(target)
            await link.open()
            return link

        link = self.call(opened())
        self._links.append(link)
        return ThreadedLink(self, link)

    def close(self) -> None:
        for link in self._links:
            self.call(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)


class ThreadedLink:
    """A link as the harness uses it, from its own thread."""

    def __init__(self, links: Links, link: Link) -> None:
        self._links = links
        self._link = link
        self.address = link.address

    @property
    def accepted(self) -> int:
        return self._link.accepted

    def replace(self, old: str, new: str) -> None:
        """Replaces a text in what goes back from now on."""
        self._link.replaced[old.encode()] = new.encode()

    def cut(self) -> None:
        self._do(self._link.cut)

    def freeze(self) -> None:
        self._do(self._link.freeze)

    def one_way(self, way: Way) -> None:
        self._do(lambda: self._link.one_way(way))

    def slow(self, bytes_per_s: int = 0, delay_s: float = 0.0) -> None:
        self._do(lambda: self._link.slow(bytes_per_s, delay_s))

    def mend(self) -> None:
        self._do(self._link.mend)

    def _do(self, action: Any) -> None:
        async def done() -> None:
            action()

        self._links.call(done())
