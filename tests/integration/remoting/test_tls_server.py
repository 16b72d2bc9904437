"""TLS of our servers over real sockets, on both event loops, toward the TLS of each loop as the client."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.integration.remoting.socket_kit import Peer
from tests.unit.remoting.tls_kit import certificates, client_context

from turbopump.protocol.command import Command, encode
from turbopump.remoting.client import Client
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.remoting.tls import networks_of
from turbopump.remoting.tls_settings import TlsSettings
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import SystemNetwork

LOOPS = pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
MakeLoop = Callable[[], asyncio.AbstractEventLoop]
PATIENCE_S = 30
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


def run(make_loop: MakeLoop, scene: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(scene, PATIENCE_S))


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    made = certificates()
    contents = {"cert": made.server.cert, "key": made.server.key, "ca": made.root.cert}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def settings(pem: Path, **changes: Any) -> TlsSettings:
    return TlsSettings(cert_path=str(pem / "cert"), key_path=str(pem / "key"), **changes)


def echo(request: Request[None]) -> Answer:
    return Answer(body=request.body, remark=request.connection.certificate)


@contextlib.asynccontextmanager
async def serving(settings: TlsSettings, proxies: tuple[str, ...] = ()) -> AsyncIterator[tuple[Server, int]]:
    networks = networks_of(settings, SystemNetwork(), SystemDisk(), proxies)
    server = Server(Router({1: Route(None, echo)}), networks.requests, SystemClock())
    watch = asyncio.ensure_future(networks.watch(SystemClock()))
    try:
        yield server, await server.start("127.0.0.1", 0)
    finally:
        watch.cancel()
        await server.stop(1)


async def dial(port: int, context: ssl.SSLContext | None = None) -> Peer:
    return Peer(*await asyncio.open_connection("127.0.0.1", port, ssl=context or client_context()))


async def ask(peer: Peer, body: bytes = b"hello") -> Command:
    peer.send(Command(1, body=body))
    return await peer.receive()


async def refused(port: int, context: ssl.SSLContext | None) -> None:
    """Dials and asks; the handshake fails, or the first answer is its end."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        peer = await dial(port, context)
        peer.send(Command(1))
        assert await peer.ended() == b""


@LOOPS
@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
def test_each_mode_takes_the_connections_that_it_says(make_loop: MakeLoop, mode: Any, pem: Path) -> None:
    async def scene() -> None:
        async with serving(settings(pem, server_mode=mode)) as (_, port):
            if mode == "disabled":
                await refused(port, client_context())
            else:
                assert (await ask(await dial(port), bytes(300_000))).body == bytes(300_000)
            plain = await Peer.dial(port)
            if mode == "enforcing":
                plain.send(Command(1))
                assert await plain.ended() == b""
            else:
                assert (await ask(plain)).body == b"hello"

    run(make_loop, scene())


@LOOPS
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_client_with_a_certificate_is_known_by_its_name(
    make_loop: MakeLoop, version: str, pem: Path
) -> None:
    async def scene() -> None:
        mutual = settings(pem, need_client_auth="require", trust_path=str(pem / "ca"))
        async with serving(mutual) as (server, port):
            context = client_context(certificates().client)
            context.maximum_version = context.minimum_version = ssl.TLSVersion[version]
            known = await dial(port, context)
            assert (await ask(known)).remark == "alice"
            made = certificates()
            for shown in (None, made.stranger, made.expired):
                context = client_context(shown)
                context.maximum_version = ssl.TLSVersion[version]
                await refused(port, context)
            assert len(server.connections) == 1
            assert (await ask(known)).remark == "alice"

    run(make_loop, scene())


@LOOPS
def test_a_client_that_trusts_another_authority_does_not_stay(make_loop: MakeLoop, pem: Path) -> None:
    async def scene() -> None:
        async with serving(settings(pem)) as (_, port):
            with pytest.raises(ssl.SSLCertVerificationError):
                await dial(port, client_context(trust=certificates().stranger_root.cert))

    run(make_loop, scene())


@LOOPS
def test_files_that_change_are_used_and_open_connections_go_on(make_loop: MakeLoop, pem: Path) -> None:
    def shown(peer: Peer) -> bytes | None:
        tls: ssl.SSLObject = peer.transport.get_extra_info("ssl_object")
        return tls.getpeercert(True)

    async def scene() -> None:
        async with serving(settings(pem, reload_ms=50)) as (_, port):
            old = await dial(port)
            other = certificates().other
            (pem / "cert").write_bytes(other.cert)
            (pem / "key").write_bytes(other.key)
            wanted = ssl.PEM_cert_to_DER_cert(other.cert.decode())
            while shown(await dial(port)) != wanted:  # noqa: ASYNC110 - files are looked at in real time
                await asyncio.sleep(0.02)
            assert (await ask(old)).body == b"hello"

    run(make_loop, scene())


@LOOPS
def test_200_silent_connections_and_half_hellos_keep_nobody_out(make_loop: MakeLoop, pem: Path) -> None:
    async def scene() -> None:
        async with serving(settings(pem, server_mode="enforcing")) as (server, port):
            silent = [await Peer.dial(port) for _ in range(200)]
            for peer in silent[::2]:
                peer.writer.write(HELLO)
            assert (await ask(await dial(port))).body == b"hello"
            assert len(server.connections) == 1
            await server.stop(1)
            assert [await peer.ended() for peer in silent] == [b""] * 200

    run(make_loop, scene())


@LOOPS
def test_back_pressure_is_felt_through_tls(make_loop: MakeLoop, pem: Path) -> None:
    async def scene() -> None:
        async with serving(settings(pem)) as (server, port):
            peer = await dial(port)
            body = bytes(200_000)
            for _ in range(300):
                peer.send(Command(1, body=body))
            received = [len((await peer.receive()).body) for _ in range(300)]
            assert received == [len(body)] * 300
            (connection,) = server.connections
            assert connection.unread == 0

    run(make_loop, scene())


@LOOPS
def test_many_connections_come_and_go(make_loop: MakeLoop, pem: Path) -> None:
    async def scene() -> None:
        async with serving(settings(pem)) as (server, port):
            for _ in range(10):
                peers = await asyncio.gather(*(dial(port) for _ in range(20)))
                assert [(await ask(peer)).body for peer in peers] == [b"hello"] * 20
                for peer in peers:
                    peer.writer.close()
            while server.connections:  # noqa: ASYNC110 - in real time
                await asyncio.sleep(0.01)

    run(make_loop, scene())


@LOOPS
def test_our_servers_dial_each_other_and_leave_whom_they_cannot_verify(
    make_loop: MakeLoop, pem: Path
) -> None:
    async def scene() -> None:
        (pem / "other-ca").write_bytes(certificates().stranger_root.cert)
        mutual = settings(pem, need_client_auth="require", trust_path=str(pem / "ca"))
        own = {"client_cert_path": str(pem / "cert"), "client_key_path": str(pem / "key")}
        async with serving(mutual) as (_, port):
            for trust, failure in (("ca", None), ("other-ca", ssl.SSLCertVerificationError)):
                dialling = TlsSettings(enabled=True, client_trust_path=str(pem / trust), **own)
                network = networks_of(dialling, SystemNetwork(), SystemDisk()).requests
                client = Client(network, SystemClock())
                with pytest.raises(failure) if failure else contextlib.nullcontext():
                    answer = await client.call(f"127.0.0.1:{port}", Command(1, body=bytes(100_000)))
                    assert (answer.remark, len(answer.body)) == ("broker", 100_000)
                await client.close()

    run(make_loop, scene())


@LOOPS
def test_a_server_that_does_not_answer_a_hello_is_given_up(make_loop: MakeLoop, pem: Path) -> None:
    async def scene() -> None:
        async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        silent = await asyncio.start_server(keep, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        dialling = TlsSettings(enabled=True, client_trust_path=str(pem / "ca"))
        network = networks_of(dialling, SystemNetwork(), SystemDisk()).requests
        client = Client(network, SystemClock(), connect_timeout_s=0.2)
        with pytest.raises(TimeoutError):
            await client.call(f"127.0.0.1:{port}", Command(1))
        await client.close()
        silent.close()

    run(make_loop, scene())


@LOOPS
def test_the_head_of_a_proxy_names_the_client_before_tls_and_without_it(
    make_loop: MakeLoop, pem: Path
) -> None:
    head = b"PROXY TCP4 10.1.2.3 10.0.0.1 5 6\r\n"

    async def named(port: int, *, with_tls: bool) -> tuple[str, int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        if with_tls:
            await writer.start_tls(client_context())
        writer.write(encode(Command(1, 1, body=b"x")))
        assert await reader.readexactly(4)
        (connection,) = server.connections
        found = connection.peer
        writer.close()
        while server.connections:  # noqa: ASYNC110 - the other side closes
            await asyncio.sleep(0.01)
        return found

    async def scene() -> None:
        nonlocal server
        for proxies, expected in ((("127.0.0.0/8",), ("10.1.2.3", 5)),):
            async with serving(settings(pem, server_mode="permissive"), proxies) as (server, port):
                assert await named(port, with_tls=False) == expected
                assert await named(port, with_tls=True) == expected

    server: Server
    run(make_loop, scene())
