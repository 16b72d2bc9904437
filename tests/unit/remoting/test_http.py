import asyncio

import pytest
from tests.kit import virtual

from turbopump.remoting.http import MAX_REQUEST, TEXT, HttpServer, answer, name_server_pages
from turbopump.testing.loop import run_virtual
from turbopump.testing.network import MemoryNetwork


def broken() -> tuple[int, str, bytes]:
    raise KeyError("x")


async def slow() -> tuple[int, str, bytes]:
    await asyncio.sleep(9)
    return 200, TEXT, b"at last"


async def too_slow() -> tuple[int, str, bytes]:
    await asyncio.sleep(11)
    return 200, TEXT, b"too late"


PAGES = {
    "/health": lambda: (200, TEXT, b"ok\n"),
    **name_server_pages(lambda: "10.0.0.1:9876"),
    "/under/*": lambda: (200, TEXT, b"below"),
    "/under/special": lambda: (200, TEXT, b"special"),
    "/broken": broken,
    "/slow": slow,
    "/too-slow": too_slow,
}


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        ("GET /health HTTP/1.1", "200 OK", "ok\n"),
        ("GET /rocketmq/nsaddr?nofix=1 HTTP/1.0", "200 OK", "10.0.0.1:9876"),
        ("GET /rocketmq/nsaddr-unit1?nofix=1 HTTP/1.1", "200 OK", "10.0.0.1:9876"),
        ("GET /rocketmq/nsaddress HTTP/1.1", "404 Not Found", "not found\n"),
        ("GET /under/a/b HTTP/1.1", "200 OK", "below"),
        ("GET /under/special HTTP/1.1", "200 OK", "special"),
        ("GET /under HTTP/1.1", "404 Not Found", "not found\n"),
        ("HEAD /health HTTP/1.1", "200 OK", ""),
        ("GET /other HTTP/1.1", "404 Not Found", "not found\n"),
        ("POST /health HTTP/1.1", "405 Method Not Allowed", "GET or HEAD\n"),
        ("GET /broken HTTP/1.1", "500 Internal Server Error", "failed\n"),
        ("GET /slow HTTP/1.1", "200 OK", "at last"),
        ("GET /too-slow HTTP/1.1", "500 Internal Server Error", "failed\n"),
        ("GET /health", "400 Bad Request", "bad request\n"),
        ("GET  /health HTTP/1.1", "400 Bad Request", "bad request\n"),
        ("GET health HTTP/1.1", "400 Bad Request", "bad request\n"),
        ("GET /health HTTP/2", "400 Bad Request", "bad request\n"),
        ("", "400 Bad Request", "bad request\n"),
        ("\xff\xfe\x00", "400 Bad Request", "bad request\n"),
    ],
)
def test_answers(request_line: str, status: str, body: str) -> None:
    request = request_line.encode("latin-1") + b"\r\nHost: x"
    head, _, got = run_virtual(answer(request, PAGES)).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}\r\n".encode())
    assert got == body.encode()
    assert b"\r\nConnection: close" in head


def test_who_knows_no_name_server_says_so() -> None:
    got = run_virtual(answer(b"GET /rocketmq/nsaddr HTTP/1.1", name_server_pages(lambda: "")))
    assert got.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert got.endswith(b"\r\n\r\nno name server is configured\n")


def test_head_tells_the_length_of_the_body_it_does_not_send() -> None:
    assert b"Content-Length: 3\r\n" in run_virtual(answer(b"HEAD /health HTTP/1.1", PAGES))


class Browser(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(asyncio.get_running_loop().time())


async def browse(data: bytes) -> tuple[bytes, float]:
    network = MemoryNetwork()
    server = HttpServer(PAGES, network)
    port = await server.start("127.0.0.1", 0)
    browser = await network.connect(Browser, "127.0.0.1", port)
    assert isinstance(browser, Browser)
    browser.transport.write(data)  # type: ignore[attr-defined]
    ended = await browser.ended
    assert not server.open
    await server.stop()
    return browser.got, ended


@virtual
async def test_one_request_is_answered_and_the_connection_closed() -> None:
    got, _ = await browse(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert got.endswith(b"ok\n")


@virtual
async def test_a_request_that_does_not_end_is_cut_off_at_its_bound() -> None:
    got, ended = await browse(b"GET /health HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST)
    assert got.startswith(b"HTTP/1.1 400")
    assert ended < 1


@virtual
async def test_a_silent_browser_is_cut_off_after_five_seconds() -> None:
    got, ended = await browse(b"GET /health HTTP/1.1\r\n")
    assert got == b""
    assert ended == pytest.approx(5.0)
