"""A very small HTTP/1.1 server: GET and HEAD of a few paths, one request per connection.

Serves health checks, name server addresses and metrics. A request is at most 8 KiB and must come within 5
seconds; only its method and path are read. A page that takes a while to write is a coroutine; it has 10
seconds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TypeAlias, cast

from turbopump.runtime.network import Listener, Network
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

MAX_REQUEST = 8 * 1024
REQUEST_TIMEOUT_S = 5.0
PAGE_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 256
TEXT = "text/plain; charset=utf-8"

Content: TypeAlias = tuple[int, str, bytes]
"""Status, content type, body."""

Page: TypeAlias = Callable[[], Content | Awaitable[Content]]
"""Called for each request."""

ANY = "*"
"""At the end of a page's path: serves all paths with this beginning that have no page of their own."""


def name_server_pages(addresses: Callable[[], str]) -> dict[str, Page]:
    """Returns pages at /rocketmq/nsaddr that tell clients the name servers, as `host:port;host:port`.

    Clients with a unit name add it to the path.
    """

    def page() -> Content:
        known = addresses().encode()
        return (200, TEXT, known) if known else (404, TEXT, b"no name server is configured\n")

    return {"/rocketmq/nsaddr": page, f"/rocketmq/nsaddr-{ANY}": page}


class HttpServer:
    """Small HTTP/1.1 server of the given pages, by path."""

    def __init__(self, pages: Mapping[str, Page], network: Network) -> None:
        self.pages = dict(pages)
        self.open: set[_Exchange] = set()
        self.tasks = Tasks(log)
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
        await self.tasks.close()


class _Exchange(asyncio.Protocol):
    """Accepted HTTP connection, with one request and its answer."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.open) >= MAX_CONNECTIONS:
            self._transport.abort()
            return
        self._server.open.add(self)
        self._abort_after(REQUEST_TIMEOUT_S)

    def data_received(self, data: bytes) -> None:
        if self._writing is not None:
            return
        self._received += data
        if not _is_http(self._received):
            self._send(_bad_request())
            return
        end = self._received.find(b"\r\n\r\n")
        if end < 0 and len(self._received) < MAX_REQUEST:
            return
        head = bytes(self._received[: max(end, 0)])
        too_long = end < 0 or end > MAX_REQUEST
        if too_long:
            self._send(_bad_request())
        else:
            self._abort_after(PAGE_TIMEOUT_S + REQUEST_TIMEOUT_S)  # for writing the page and for sending it
            self._writing = self._server.tasks.start(self._answer(head), "answer HTTP request")

    async def _answer(self, head: bytes) -> None:
        self._send(await answer(head, self._server.pages))

    def connection_lost(self, error: Exception | None) -> None:
        self._server.open.discard(self)
        for ended in (self._timer, self._writing):
            if ended is not None:
                ended.cancel()

    def _abort_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._transport.close()


def _is_http(received: bytes | bytearray) -> bool:
    """Returns whether received bytes may be HTTP: they begin with a letter, RocketMQ's with a length."""
    return received[:1].isalpha()


async def answer(head: bytes, pages: Mapping[str, Page]) -> bytes:
    """Returns the whole HTTP response to a request; `head` is the request line and the headers."""
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1.") or not parts[1].startswith(b"/"):
        return _bad_request()
    method = parts[0]
    if method not in (b"GET", b"HEAD"):
        return _pack(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"GET or HEAD\n", extra="Allow: GET, HEAD\r\n")
    page = _page_at(parts[1].split(b"?", 1)[0].decode("latin-1"), pages)
    if page is None:
        status, kind, body = int(HTTPStatus.NOT_FOUND), TEXT, b"not found\n"
    else:
        status, kind, body = await _call(page)
    return _pack(status, kind, body, with_body=method == b"GET")


def _page_at(path: str, pages: Mapping[str, Page]) -> Page | None:
    if path in pages:
        return pages[path]
    beginnings = (known for known in pages if known.endswith(ANY))
    return next((pages[known] for known in beginnings if path.startswith(known.removesuffix(ANY))), None)


async def _call(page: Page) -> Content:
    try:
        content = page()
        if isinstance(content, tuple):
            return content
        async with asyncio.timeout(PAGE_TIMEOUT_S):
            return await content
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
