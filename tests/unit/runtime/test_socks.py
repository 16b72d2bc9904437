"""Connections through a SOCKS5 proxy: a small one that keeps to the letter of RFC 1928 and 1929."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster
from tests.unit.client.producing import producing, stored

from turbopump.client.encryption import proxies_of
from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.runtime.socks import Proxy, ProxyRefused, SocksNetwork, address_of
from turbopump.testing.loop import run_virtual
from turbopump.testing.network import MemoryNetwork

PORT = 1080
ORDER = Message("orders", b"paid")


@dataclass
class SocksServer:
    """Of one network. `login` is user and password, if it wants one; `says` an answer to every wish."""

    network: MemoryNetwork
    login: tuple[bytes, bytes] | None = None
    says: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    async def start(self) -> None:
        await self.network.listen(lambda: _Guest(self), "127.0.0.1", PORT)


class _Pipe(asyncio.Protocol):
    """Hands on what comes; `other` is the far side."""

    transport: asyncio.Transport
    other: "_Pipe | None" = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


class _Guest(_Pipe):
    def __init__(self, server: SocksServer) -> None:
        self._server = server
        self._said = asyncio.StreamReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._greet())
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._said.feed_data(data)
        else:
            super().data_received(data)

    async def _greet(self) -> None:
        version, count = await self._said.readexactly(2)
        assert version == 5
        methods = await self._said.readexactly(count)
        if self._server.login is None:
            self.transport.write(b"\x05\x00")
        elif 2 not in methods:
            self.transport.write(b"\x05\xff")
            return
        else:
            self.transport.write(b"\x05\x02")
            assert await self._said.readexactly(1) == b"\x01"
            login = await self._text(), await self._text()
            self.transport.write(b"\x01" + bytes([login != self._server.login]))
            if login != self._server.login:
                self.transport.close()
                return
        await self._connect()

    async def _connect(self) -> None:
        head = await self._said.readexactly(4)
        assert head[:3] == b"\x05\x01\x00"
        if head[3] == 3:
            host = (await self._text()).decode()
        else:
            host = ".".join(map(str, await self._said.readexactly(4)))
        port = int.from_bytes(await self._said.readexactly(2), "big")
        self._server.asked.append((host, port))
        if self._server.says:
            self.transport.write(bytes([5, self._server.says, 0, 1, 0, 0, 0, 0, 0, 0]))
            return
        far = cast(_Pipe, await self._server.network.connect(_Pipe, host, port))
        self.other, far.other = far, self
        self.transport.write(b"\x05\x00\x00\x03\x04here\x04\x38")  # names are allowed here too

    async def _text(self) -> bytes:
        size = (await self._said.readexactly(1))[0]
        return await self._said.readexactly(size)


def rule(networks: str = "0.0.0.0/0", more: str = "") -> str:
    return f'{{"{networks}": {{"addr": "127.0.0.1:{PORT}"{more}}}}}'


LOGIN = ', "username": "me", "password": "secret"'


@pytest.mark.parametrize("login", [None, (b"me", b"secret")])
@virtual
async def test_a_producer_sends_through_a_proxy(login: tuple[bytes, bytes] | None) -> None:
    async with cluster() as town:
        server = SocksServer(town.network, login)
        await server.start()
        await town.create_topic("orders", 1)
        async with producing(town, socks_proxy_config=rule(more=LOGIN if login else "")) as one:
            await one.send(ORDER)
        assert [message.body for message in await stored(town, "orders")] == [b"paid"]
        assert server.asked == [("127.0.0.1", 9876), ("127.0.0.1", 10911)]


@virtual
async def test_addresses_that_no_rule_fits_are_reached_directly() -> None:
    async with cluster() as town:
        server = SocksServer(town.network)
        await server.start()
        async with producing(town, socks_proxy_config=rule("10.0.0.0/8")) as one:
            await one.send(ORDER)
        assert server.asked == []


@pytest.mark.parametrize(
    ("login", "says", "proxy", "words"),
    [
        ((b"me", b"other"), 0, Proxy("0.0.0.0/0", "127.0.0.1", PORT, "me", "x"), "rejects this user"),
        ((b"me", b"x"), 0, Proxy("0.0.0.0/0", "127.0.0.1", PORT), "requires user and password"),
        (
            None,
            5,
            Proxy("0.0.0.0/0", "127.0.0.1", PORT),
            "cannot connect to broker:10911: connection refused",
        ),
        (None, 99, Proxy("0.0.0.0/0", "127.0.0.1", PORT), "code 99"),
    ],
)
@virtual
async def test_a_refusal_of_the_proxy_says_what_is_wrong(
    login: tuple[bytes, bytes] | None, says: int, proxy: Proxy, words: str
) -> None:
    network = MemoryNetwork()
    await SocksServer(network, login, says).start()
    with pytest.raises(ProxyRefused, match=words):
        await SocksNetwork(network, network, [proxy]).connect(_Pipe, "broker", 10911)


def test_one_that_is_no_proxy_or_hangs_up_is_told_from_one_that_refuses() -> None:
    class Other(_Pipe):
        def data_received(self, data: bytes) -> None:
            self.transport.write(b"HTTP/1.1 400")

    class Gone(_Pipe):
        def data_received(self, data: bytes) -> None:
            self.transport.close()

    async def scene() -> None:
        network = MemoryNetwork()
        await network.listen(Other, "127.0.0.1", 1)
        await network.listen(Gone, "127.0.0.1", 2)
        for port, words in ((1, "not a SOCKS5 proxy"), (2, "closed the connection")):
            through = SocksNetwork(network, network, [Proxy("0.0.0.0/0", "127.0.0.1", port)])
            with pytest.raises(ProxyRefused, match=words):
                await through.connect(_Pipe, "broker", 10911)

    run_virtual(scene())


def test_the_first_rule_that_fits_counts_and_names_fit_only_the_one_for_all() -> None:
    table = '{"10.1.0.0/16": {"addr": "a:1"}, "10.0.0.0/8": {"addr": "b:2"}, "0.0.0.0/0": {"addr": "c:3"}}'
    proxies = proxies_of(table)

    def chosen(host: str) -> str:
        return next(proxy.host for proxy in proxies if proxy.serves(host))

    assert [chosen(host) for host in ("10.1.2.3", "10.2.2.3", "11.0.0.1", "broker", "::1")] == [
        *("a", "b", "c", "c", "c")
    ]


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"x": {"addr": "a:1"}}', '{"0.0.0.0/0": {}}', '{"0.0.0.0/0": {"addr": "a"}}']
)
def test_a_table_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgument, match="it is JSON such as"):
        proxies_of(text)


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(proxies_of(rule(more=LOGIN)))


def test_addresses_are_written_by_their_kind() -> None:
    assert address_of("1.2.3.4") == b"\x01\x01\x02\x03\x04"
    assert address_of("::1") == b"\x04" + bytes(15) + b"\x01"
    assert address_of("broker") == b"\x03\x06broker"
    with pytest.raises(ProxyRefused):
        address_of("x" * 256)
