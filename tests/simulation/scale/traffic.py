"""Counts the frames and bytes that a name server receives and sends, by request code.

`CountedNetwork` stands between a name server and the network, and reads the stream of bytes of each accepted
connection itself: no figure comes from the code that is measured.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from turbopump.protocol.command import decode
from turbopump.protocol.frame import Frame, cut
from turbopump.runtime.network import Listener, Network, ProtocolFactory


@dataclass
class Traffic:
    """Counts by request code, since the beginning or since the last `clear`."""

    requests: Counter[int] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)
    """Bytes of requests."""
    sent: Counter[int] = field(default_factory=Counter)
    """Bytes of answers, by the code of the request."""
    seconds: Counter[int] = field(default_factory=Counter)
    """Requests by virtual second."""
    refused: int = 0
    """Answers with an error code."""
    connections: int = 0
    """Connections that were accepted."""

    def clear(self) -> None:
        self.requests.clear()
        self.received.clear()
        self.sent.clear()
        self.seconds.clear()
        self.refused = self.connections = 0

    def as_json(self, seconds: float) -> dict[str, Any]:
        """Returns the counts of a window of so many virtual seconds."""
        by_code = {
            str(int(code)): {
                "requests": self.requests[code],
                "bytes_in": self.received[code],
                "bytes_out": self.sent[code],
            }
            for code in sorted(self.requests)
        }
        return {
            "virtual_s": seconds,
            "by_code": by_code,
            "requests_per_s": round(self.requests.total() / seconds, 2),
            "bytes_in_per_s": round(self.received.total() / seconds),
            "bytes_out_per_s": round(self.sent.total() / seconds),
            "requests_in_busiest_s": max(self.seconds.values(), default=0),
            "refused": self.refused,
            "connections": self.connections,
        }


@dataclass(frozen=True)
class CountedNetwork:
    """A network whose accepted connections are counted in `traffic`."""

    network: Network
    traffic: Traffic

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        def counted() -> asyncio.Protocol:
            self.traffic.connections += 1
            inner = factory()
            assert isinstance(inner, asyncio.Protocol)
            return _CountedProtocol(inner, self.traffic)

        return await self.network.listen(counted, host, port)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        return await self.network.connect(factory, host, port)

    async def resolve(self, host: str) -> str:
        return await self.network.resolve(host)


class _CountedProtocol(asyncio.Protocol):
    """Passes the events of a transport on to a connection, and counts what comes in."""

    def __init__(self, inner: asyncio.Protocol, traffic: Traffic) -> None:
        self._inner = inner
        self._traffic = traffic
        self._frames = _Frames()
        self.asked: dict[int, int] = {}  # opaque → code of the request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._inner.connection_made(_CountedTransport(transport, self, self._traffic))

    def data_received(self, data: bytes) -> None:
        traffic = self._traffic
        second = int(asyncio.get_running_loop().time())
        for frame, size in self._frames.of(data):
            command = decode(frame)
            self.asked[command.opaque] = command.code
            traffic.requests[command.code] += 1
            traffic.received[command.code] += size
            traffic.seconds[second] += 1
        self._inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _CountedTransport(asyncio.Transport):
    """Passes the calls of a connection on to its transport, and counts what goes out."""

    def __init__(self, inner: asyncio.Transport, protocol: _CountedProtocol, traffic: Traffic) -> None:
        super().__init__()
        self._inner = inner
        self._owner = protocol
        self._traffic = traffic
        self._frames = _Frames()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for frame, size in self._frames.of(bytes(data)):
            command = decode(frame)
            code = self._owner.asked.pop(command.opaque, -1)
            self._traffic.sent[code] += size
            self._traffic.refused += command.code != 0
        self._inner.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def close(self) -> None:
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def is_reading(self) -> bool:
        return self._inner.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._inner.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False


class _Frames:
    """Cuts a stream into frames with their sizes."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> list[tuple[Frame, int]]:
        frames: list[Frame] = []
        held = self._rest + data if self._rest else data
        self._rest = held[cut(held, frames) :]
        return [(frame, 8 + len(frame[1]) + len(frame[2])) for frame in frames]
