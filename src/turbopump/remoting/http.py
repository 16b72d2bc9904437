"""A very small HTTP/1.1 server: GET and HEAD of a few fixed paths, one request per connection.

For what machines ask a server in passing: is it well, where are the name servers. A request is at most 8 KiB
and must come within 5 seconds; nothing of it but method and path is looked at.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TypeAlias, cast

from turbopump.runtime.network import Listener, Network

log = logging.getLogger(__name__)

MAX_REQUEST = 8 * 1024
REQUEST_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 256
TEXT = "text/plain; charset=utf-8"

Page: TypeAlias = Callable[[], tuple[int, str, bytes]]
"""Called for each request: (status, content type, body)."""


class HttpServer:
    def __init__(self, pages: Mapping[str, Page], network: Network) -> None:
        self.pages = dict(pages)
        self.open: set[_Exchange] = set()
        self._network = network
        self._listener: Listener | None = None

    async def start(self, host: str, port: int) -> int:
        self._listener = await self._network.listen(lambda: _Exchange(self), host, port)
        return self._listener.port

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for exchange in list(self.open):
            exchange.abort()


class _Exchange(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.open) >= MAX_CONNECTIONS:
            self._transport.abort()
            return
        self._server.open.add(self)
        self._timer = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, self.abort)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 and len(self._received) < MAX_REQUEST:
            return
        head = bytes(self._received[: max(end, 0)])
        too_long = end < 0 or end > MAX_REQUEST
        self._send(_bad_request() if too_long else answer(head, self._server.pages))

    def connection_lost(self, error: Exception | None) -> None:
        self._server.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._transport.close()


def answer(head: bytes, pages: Mapping[str, Page]) -> bytes:
    """The whole answer to a request whose first lines are `head`."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
        return _bad_request()
    method = words[0]
    if method not in (b"GET", b"HEAD"):
        return _pack(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"GET or HEAD\n", extra="Allow: GET, HEAD\r\n")
    page = pages.get(words[1].split(b"?", 1)[0].decode("latin-1"))
    if page is None:
        status, kind, body = int(HTTPStatus.NOT_FOUND), TEXT, b"not found\n"
    else:
        status, kind, body = _call(page)
    return _pack(status, kind, body, with_body=method == b"GET")


def _call(page: Page) -> tuple[int, str, bytes]:
    try:
        return page()
    except Exception:
        log.exception("An HTTP page failed")
        return HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, b"failed\n"


def _bad_request() -> bytes:
    return _pack(HTTPStatus.BAD_REQUEST, TEXT, b"bad request\n")


def _pack(status: int, kind: str, body: bytes, with_body: bool = True, extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}\r\n"
        f"Content-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
