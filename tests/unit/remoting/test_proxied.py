"""Connections through proxies: whose word about a client is believed, before TLS and without it."""

import asyncio
import logging
from typing import cast

import pytest
from tests.kit import virtual
from tests.unit.remoting.tls_kit import TlsFiles, client_context

from turbopump.remoting import proxied
from turbopump.remoting.connection import peer_address
from turbopump.remoting.proxied import HEAD_TIMEOUT_S, proxies_of
from turbopump.remoting.tls import DiallingNetwork, networks_of
from turbopump.runtime.network import Network
from turbopump.testing.loop import run_virtual
from turbopump.testing.network import MemoryNetwork, NetworkConditions

SERVER, PROXY, STRANGER = "10.0.0.1", "10.9.0.1", "10.8.0.1"
LINE = b"PROXY TCP4 10.1.2.3 10.0.0.1 51234 10911\r\n"


class Heard(asyncio.Protocol):
    """One side of a connection: what it received, and who the other side is."""

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False
        self.peer = ("", 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = peer_address(transport)

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class Echo(Heard):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(b"<" + data + b">")


class Scene:
    """A server behind proxies, and the connections that it has accepted."""

    def __init__(self, network: MemoryNetwork, mode: str = "disabled") -> None:
        self.below = network
        self.accepted: list[Echo] = []
        files = TlsFiles.of(server_mode=mode)
        self.networks = networks_of(files.settings, network.at(SERVER), files.disk, proxies_of("10.9.0.0/16"))

    async def listen(self, network: Network | None = None) -> None:
        def accept() -> Echo:
            self.accepted.append(Echo())
            return self.accepted[-1]

        self.listener = await (network or self.networks.requests).listen(accept, SERVER, 10911)

    async def dial(self, ip: str, *pieces: bytes) -> Heard:
        heard = Heard()
        await self.below.at(ip).connect(lambda: heard, SERVER, 10911)
        for piece in pieces:
            heard.transport.write(piece)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        return heard


async def scene(mode: str = "disabled", segment: int = 65_536) -> Scene:
    made = Scene(MemoryNetwork(conditions=NetworkConditions(segment=segment)), mode)
    await made.listen()
    return made


@pytest.mark.parametrize("segment", [1, 7, 65_536])
def test_a_named_proxy_names_its_client_in_any_pieces(segment: int) -> None:
    async def main() -> None:
        server = await scene(segment=segment)
        client = await server.dial(PROXY, LINE + b"first", b"second")
        (accepted,) = server.accepted
        assert (accepted.peer, accepted.data) == (("10.1.2.3", 51234), b"firstsecond")
        assert client.data.replace(b"><", b"") == b"<firstsecond>"
        client.transport.close()
        await asyncio.sleep(0.1)
        assert accepted.is_lost

    run_virtual(main())


@virtual
async def test_hole_a_proxy_line_of_anybody_else_is_not_read() -> None:
    """It comes to the protocol as it is, which closes the connection: it is no frame."""
    server = await scene()
    await server.dial(STRANGER, LINE + b"first")
    (accepted,) = server.accepted
    assert (accepted.peer[0], accepted.data) == (STRANGER, LINE + b"first")


@virtual
async def test_a_connection_of_a_proxy_without_a_head_is_its_own() -> None:
    server = await scene()
    await server.dial(PROXY, b"\0\0\0\x05check")
    await server.dial(PROXY, b"PROXY UNKNOWN\r\nabc")
    assert [(one.peer[0], one.data) for one in server.accepted] == [
        (PROXY, b"\0\0\0\x05check"),
        (PROXY, b"abc"),
    ]


@virtual
async def test_a_second_head_behind_the_first_is_data() -> None:
    """A client behind the proxy writes one of its own."""
    server = await scene()
    await server.dial(PROXY, LINE + b"PROXY TCP4 6.6.6.6 6.6.6.6 6 6\r\n")
    (accepted,) = server.accepted
    assert (accepted.peer[0], accepted.data[:6]) == ("10.1.2.3", b"PROXY ")


@virtual
async def test_the_head_comes_before_tls() -> None:
    server = await scene("enforcing")
    heard = Heard()
    network = _WithHead(server.below.at(PROXY))
    await DiallingNetwork(network, client_context()).connect(lambda: heard, SERVER, 10911)
    heard.transport.write(b"secret")
    await asyncio.sleep(0.1)
    (accepted,) = server.accepted
    assert (accepted.peer, accepted.data, heard.data) == (("10.1.2.3", 51234), b"secret", b"<secret>")
    plain = await server.dial(PROXY, LINE + b"\0\0\0\x05plain")
    assert (plain.is_lost, len(server.accepted)) == (True, 1)


class _WithHead:
    """A network that begins each connection with the head of a proxy."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.listen = network.listen
        self.resolve = network.resolve

    async def connect(self, factory, host: str, port: int) -> asyncio.Protocol:  # type: ignore[no-untyped-def]
        opened = Heard()
        await self._network.connect(lambda: opened, host, port)
        opened.transport.write(LINE)
        protocol: asyncio.Protocol = factory()
        opened.transport.set_protocol(protocol)
        protocol.connection_made(opened.transport)
        return protocol


@pytest.mark.parametrize("kind", ["copies", "pages"])
@virtual
async def test_the_ports_of_replication_and_http_read_no_head(kind: str) -> None:
    server = Scene(MemoryNetwork())
    await server.listen(getattr(server.networks, kind))
    await server.dial(PROXY, LINE)
    (accepted,) = server.accepted
    assert (accepted.peer[0], accepted.data) == (PROXY, LINE)


@virtual
async def test_a_head_that_breaks_the_protocol_closes_the_connection_with_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = await scene()
    with caplog.at_level(logging.WARNING):
        client = await server.dial(PROXY, b"PROXY TCP4 nonsense\r\n")
    assert (client.is_lost, server.accepted) == (True, [])
    assert f"Closing a connection of the proxy {PROXY}:" in caplog.text


@virtual
async def test_a_head_that_does_not_come_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    server = await scene()
    silent, half = await server.dial(PROXY), await server.dial(PROXY, LINE[:20])
    assert [silent.is_lost, half.is_lost] == [False, False]
    await asyncio.sleep(HEAD_TIMEOUT_S + 1)
    assert (silent.is_lost, half.is_lost, server.accepted) == (True, True, [])
    assert "its proxy has not said for whom it is in 10 s" in caplog.text


@virtual
async def test_the_number_of_connections_without_a_head_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxied, "MAX_WAITING", 3)
    server = await scene()
    silent = [await server.dial(PROXY) for _ in range(5)]
    assert [one.is_lost for one in silent] == [True, True, False, False, False]
    await server.dial(PROXY, LINE + b"x")
    assert len(server.accepted) == 1
    server.listener.close()
    await asyncio.sleep(0.1)
    assert all(one.is_lost for one in silent)


@pytest.mark.parametrize("text", ["10.0.0", "proxy-a", "10.0.0.0/8;0.0.0.0/0", "::/0"])
def test_proxies_are_addresses_and_never_all_of_them(text: str) -> None:
    with pytest.raises(ValueError):
        proxies_of(text)


def test_proxies_are_separated_as_other_addresses_are() -> None:
    assert proxies_of(" 10.0.0.7 ; 10.1.0.0/16;;2001:db8::/32") == (
        "10.0.0.7",
        "10.1.0.0/16",
        "2001:db8::/32",
    )
    assert proxies_of("") == ()
