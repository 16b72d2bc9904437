"""Client side of a connection: sends requests, those of one event loop turn in one write; reads answers.

It goes on reading answers while its own output waits: callers look at `is_full` before they ask.
"""

import asyncio
from collections.abc import Collection

from turbopump.protocol.command import RESPONSE, decode
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import HEAD, JSON
from turbopump.remoting.connection import (
    Connection,
    ConnectionClosed,
    ConnectionGroup,
    Serve,
    Sign,
    SpeaksHttp,
)
from turbopump.remoting.request_buffer import RequestBuffer

HTTP = b"HTTP/"


class DialledConnection(Connection):
    """Connection that a client opened, and on which it sends requests, each passed to `sign` if there is one.

    Requests of servers to their clients have no signature, and neither have answers.
    """

    __slots__ = ("_is_http", "_requests", "_waiters")

    def __init__(self, serve: Serve, group: ConnectionGroup, sign: Sign | None = None) -> None:
        super().__init__(serve, group)
        self._sign = sign
        self._requests = RequestBuffer(self._send, self._calls, self._loop)
        self._post = self._requests.add
        self._waiters: list[asyncio.Future[None]] = []  # of `writable`
        self._is_http = False  # what came is the answer of a web server

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self._held:
            data = self._joined(data)
            if not data:
                return
        if self.saturated or self._deferred:
            self._cut(data, 0, b"", self._serve)
            return
        try:
            used = self._take_answers(data)
        except Exception as error:
            self._fail(error)
            return
        if used < len(data):
            self._cut(data, used, b"", self._serve)
        else:
            self._begun = None

    def _take_answers(self, data: bytes) -> int:
        """Passes the answers at the front of a read event to their callers; returns the index of the rest.

        Answers are nearly all that a client reads. Stops at the first frame that is not whole, is a request
        or is not encoded as we encode: these are for the router.
        """
        answered = self._calls.answered
        at, end = 0, len(data)
        while end - at > HEAD.size:
            length, header_length = HEAD.unpack_from(data, at)
            after, body_at = at + 4 + length, at + HEAD.size + header_length
            if after > end or not at + HEAD.size < body_at <= after:
                break
            try:
                command = decode((JSON, data[at + HEAD.size : body_at], data[body_at:after]))
            except BrokenFrame:
                break
            if not command.flag & RESPONSE:
                break
            answered(command)
            at = after
        return at

    def is_silent(self, codes: Collection[int], for_s: float) -> bool:
        """Whether a call of these codes waits for so many seconds, and nothing was read since it began."""
        return self._calls.is_unanswered(codes, self._loop.time() - for_s, self.reads)

    def is_waiting(self, codes: Collection[int]) -> bool:
        """Whether a call of these codes waits for its answer."""
        return self._calls.is_waiting(codes)

    # Writing

    @property
    def is_full(self) -> bool:
        """Whether the peer does not take what was written; callers that can wait then await `writable`."""
        return self._output_full

    async def writable(self) -> None:
        """Waits until the peer has taken most of what was written, or the connection has ended."""
        while self._output_full and not self.is_closing:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    # Ending

    def close(self) -> None:
        self._requests.flush()
        super().close()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._requests.drop()
        self._wake_waiters()

    def _late(self, code: int, timeout_s: float, reads: int) -> TimeoutError:
        """Returns the TimeoutError of a call; aborts the connection if nothing was read during the call.

        The peer may be gone, and the next request dials again.
        """
        if reads == self.reads:
            self.abort()
        return super()._late(code, timeout_s, reads)

    def _refuse(self, error: BrokenFrame, data: bytes) -> None:
        self._is_http = self._is_http or data.startswith(HTTP)
        super()._refuse(error, data)

    def _why_closed(self) -> ConnectionClosed:
        return SpeaksHttp(f"{self} answers in HTTP") if self._is_http else super()._why_closed()
