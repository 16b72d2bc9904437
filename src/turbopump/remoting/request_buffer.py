"""Buffers the requests of one event loop turn, to write them together. Has no socket."""

import asyncio
from collections.abc import Callable

from turbopump.remoting.calls import Calls

MAX_BYTES = 256 * 1024  # of requests that wait for the end of the turn; more are written before it


class RequestBuffer:
    """Gathers the requests of one event loop turn into one write; a single request is written at once."""

    __slots__ = ("_bytes", "_calls", "_loop", "_requests", "_write")

    def __init__(self, write: Callable[[bytes], None], calls: Calls, loop: asyncio.AbstractEventLoop) -> None:
        self._write = write
        self._calls = calls
        self._loop = loop
        self._requests: list[bytes] | None = None  # None: no turn with several requests is under way
        self._bytes = 0

    def add(self, data: bytes) -> None:
        """Writes an encoded request, now or together with others at the end of this event loop turn."""
        requests = self._requests
        if requests is None:
            under_way = len(self._calls)
            if under_way == 1:  # this one, and no other
                self._write(data)
                return
            requests = self._requests = []
            self._loop.call_soon(self._end_turn)
            if not under_way:  # a one-way request: those that may follow it are gathered
                self._write(data)
                return
        requests.append(data)
        self._bytes += len(data)
        if self._bytes > MAX_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the requests that were gathered so far."""
        requests = self._requests
        if requests:
            data = requests[0] if len(requests) == 1 else b"".join(requests)
            requests.clear()
            self._bytes = 0
            self._write(data)

    def drop(self) -> None:
        """Discards the requests that were gathered: the connection is gone."""
        self._requests = None

    def _end_turn(self) -> None:
        self.flush()
        self._requests = None
