"""Our calling side toward a server that speaks TLS with a certificate of its own, on both event loops."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from turbopump.client.encryption import tls_context
from turbopump.client.settings import ClientSettings
from turbopump.runtime.network import SystemNetwork

PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgtK/0pRzzQaBY33Gm
1U23fuwJ0ImYNVXqJiOv59II8mShRANCAATtYC0QAj/6BBxN7jdYcy7YuNQ0K1GM
1ugaVCcg2Jsr66demOIa32Nz4vQLSGv9Aw/FZ22RN9x4cvMqOSpM/MNZ
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBgDCCASWgAwIBAgIUGxPHBubQ3V5qT16KrpcC8TEO6QAwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNTE4NDA0M1oYDzIxMjYxMDIy
MTg0MDQzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATtYC0QAj/6BBxN7jdYcy7YuNQ0K1GM1ugaVCcg2Jsr66demOIa32Nz
4vQLSGv9Aw/FZ22RN9x4cvMqOSpM/MNZo1MwUTAdBgNVHQ4EFgQUkDeE8Hy3v1xy
kU+qEj1mne6y8kgwHwYDVR0jBBgwFoAUkDeE8Hy3v1xykU+qEj1mne6y8kgwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEA9pfBi2PGCUDDbxWPKOdI
oQQqcmFgPlpVssYsEyroH6ACIQCQ9xxZJxLIQTFJEcJjBqWSPGlsjwP0Ctjg7NE4
oNwW1A==
-----END CERTIFICATE-----
"""
"""For nothing but this test; it lasts a hundred years."""


class Answer(asyncio.Protocol):
    def __init__(self) -> None:
        self.received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no such class
        self.transport.write(b"hello")

    def data_received(self, data: bytes) -> None:
        self.received.set_result(data)


@pytest.mark.parametrize(
    "make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_connections_with_tls_can_be_made_again_and_again(
    make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    pem = tmp_path / "both.pem"
    pem.write_text(PEM)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        await writer.drain()

    async def scene() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_side)
        port = server.sockets[0].getsockname()[1]
        for settings in (
            ClientSettings(use_tls=True, tls_auth_server=False),
            ClientSettings(use_tls=True, tls_trust_cert_path=str(pem)),
        ):
            network = SystemNetwork(tls_context(settings))
            for _ in range(2):
                one = await network.connect(Answer, "127.0.0.1", port)
                assert isinstance(one, Answer)
                assert await asyncio.wait_for(one.received, 10) == b"hello"
                one.transport.close()
        verified = SystemNetwork(tls_context(ClientSettings(use_tls=True)))
        with pytest.raises(ssl.SSLCertVerificationError):
            await verified.connect(Answer, "127.0.0.1", port)
        server.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(scene(), 30))
