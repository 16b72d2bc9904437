"""A network that keeps all bytes that clients write, over another one; `requests` has what they asked."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from turbopump.protocol.command import Command, decode
from turbopump.protocol.frame import Frame, cut
from turbopump.runtime.network import Listener, Network, ProtocolFactory


@dataclass
class RecordedNetwork:
    """Passes everything on, and keeps what is written on dialled connections."""

    network: Network
    written: list[bytearray] = field(default_factory=list)
    """One for each connection."""

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        return await self.network.listen(factory, host, port)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        def make() -> asyncio.Protocol:
            protocol, data = factory(), bytearray()
            self.written.append(data)
            return _Recorded(protocol, data)

        return await self.network.connect(make, host, port)

    async def resolve(self, host: str) -> str:
        return await self.network.resolve(host)

    def remoting_requests(self) -> list[Command]:
        """Returns `requests` without connections of another protocol, as those on which logs are copied."""
        return RecordedNetwork(self.network, [data for data in self.written if _is_remoting(data)]).requests()

    def requests(self) -> list[Command]:
        """Returns every request that was written, those of one connection in their order."""
        frames: list[Frame] = []
        for data in self.written:
            assert cut(bytes(data), frames) == len(data)
        return [command for command in map(decode, frames) if not command.is_response]


def _is_remoting(data: bytearray) -> bool:
    """Returns whether the bytes begin with a frame whose header is JSON."""
    return data[8:9] == b"{"


class _Recorded(asyncio.Protocol):
    def __init__(self, protocol: asyncio.Protocol, data: bytearray) -> None:
        self._protocol = protocol
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(_RecordedTransport(transport, self._data))

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)


class _RecordedTransport(asyncio.Transport):
    def __init__(self, transport: Any, data: bytearray) -> None:
        super().__init__()
        self._transport = transport
        self._data = data

    def write(self, data: Any) -> None:
        self._data += data
        self._transport.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return bool(self._transport.is_closing())

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return int(self._transport.get_write_buffer_size())
