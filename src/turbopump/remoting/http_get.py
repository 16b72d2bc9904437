"""HTTP/1.1 client for small pages, with a connection for each page. Redirects are not followed."""

import asyncio
from typing import cast

from turbopump.runtime.network import Network

MAX_ANSWER = 64 * 1024


class BadPage(OSError):
    """Raised when a web server answers with another status than 200."""


async def get(network: Network, host: str, port: int, path: str, timeout_s: float) -> str:
    """Returns the text of a page; raises OSError: no server, TimeoutError, or any status but 200."""
    exchange = _GetExchange(
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
    )
    try:
        async with asyncio.timeout(timeout_s):
            await network.connect(lambda: exchange, host, port)
            answer = await exchange.answer
    except TimeoutError:
        raise TimeoutError(f"http://{host}:{port}{path} did not answer in {timeout_s} s") from None
    finally:
        exchange.abort()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise BadPage(f"http://{host}:{port}{path} answered {head[:80].decode('latin-1').splitlines()[:1]}")
    return body.decode("utf-8", "replace")


class _GetExchange(asyncio.Protocol):
    """A connection with one request; `answer` is all that came back."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        length = _length(self._received)
        if len(self._received) > MAX_ANSWER or (length is not None and len(self._received) >= length):
            self._done()

    def connection_lost(self, error: Exception | None) -> None:
        self._done()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _done(self) -> None:
        if not self.answer.done():
            self.answer.set_result(bytes(self._received[:MAX_ANSWER]))


def _length(received: bytearray) -> int | None:
    """Returns the length of the whole response; None until its head is complete, or if it does not say."""
    head, end, _ = received.partition(b"\r\n\r\n")
    if not end:
        return None
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length" and value.strip().isdigit():
            return len(head) + len(end) + int(value)
    return None
