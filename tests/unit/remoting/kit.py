"""What the remoting tests share: a transport that remembers, frames in short, a running echo server."""

import asyncio
import logging
from typing import Any

from turbopump.protocol.command import Command, decode, encode
from turbopump.protocol.frame import Frame, cut
from turbopump.remoting.accepted import AcceptedConnection
from turbopump.remoting.connection import Connection, ConnectionGroup, Serve, Shortcut
from turbopump.remoting.limits import Limits, UnfinishedFrames
from turbopump.remoting.unread import UnreadAnswers
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.testing.loop import VirtualClock

LOG = logging.getLogger("turbopump.remoting.test")


class RecordingTransport(asyncio.Transport):
    """Keeps what is written. With `reader_is_stuck` nothing leaves the buffer until `read` is called."""

    def __init__(self, peer: Any = ("10.0.0.7", 4711)) -> None:
        super().__init__({"peername": peer, "sockname": ("10.0.0.1", 9876)})
        self.writes: list[bytes] = []
        self.buffered = 0
        self.reader_is_stuck = False
        self.is_paused = False
        self.closed = False
        self.aborted = False
        self.high = 0
        self.low = 0
        self.protocol: Connection | None = None

    def write(self, data: Any) -> None:
        assert not self.is_closing(), "written after the end"
        self.writes.append(bytes(data))
        if self.reader_is_stuck:
            was_full = self.buffered > self.high
            self.buffered += len(data)
            if self.buffered > self.high and not was_full and self.protocol:
                self.protocol.pause_writing()

    def read(self) -> None:
        """The peer reads everything."""
        was_full = self.buffered > self.high
        self.buffered = 0
        if was_full and self.protocol:
            self.protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high, self.low = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


def connected(
    serve: Serve,
    limits: Limits | None = None,
    peer: Any = ("10.0.0.7", 4711),
    unfinished: UnfinishedFrames[Connection] | None = None,
    shortcut: Shortcut | None = None,
    peer_errors: RateLimitedLog | None = None,
    failures: RateLimitedLog | None = None,
) -> tuple[Connection, RecordingTransport]:
    peer_errors, failures = (
        peer_errors or RateLimitedLog(LOG, 0.0),
        failures or RateLimitedLog(LOG, 0.0, logging.ERROR),
    )
    limits = limits or Limits()
    group = ConnectionGroup(limits, unfinished or UnfinishedFrames(), peer_errors, failures)
    unread = UnreadAnswers(limits.unread_bytes, VirtualClock(), peer_errors)
    connection = AcceptedConnection(serve, shortcut, group, None, unread, lambda connection: None)
    transport = RecordingTransport(peer)
    transport.protocol = connection
    connection.connection_made(transport)
    return connection, transport


def asked(code: int, opaque: int = 0, body: bytes = b"", **fields: Any) -> bytes:
    return encode(Command(code, opaque, body=body, **fields))


def commands(data: bytes) -> list[Command]:
    frames: list[Frame] = []
    used = cut(data, frames)
    assert used == len(data), "half a frame was written"
    return [decode(frame) for frame in frames]


async def turn(times: int = 3) -> None:
    """Lets everything that is ready run."""
    for _ in range(times):
        await asyncio.sleep(0)
