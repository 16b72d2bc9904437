"""A client that renegotiates (CVE-2011-1473), and one that sends again what it read of a connection with TLS.

Python's own `ssl` cannot ask for a renegotiation, so this client drives the library below.
"""

import asyncio
import ssl
from typing import Any

import pytest
from cryptography.hazmat.bindings.openssl.binding import Binding
from tests.kit import virtual
from tests.unit.remoting.kit import asked, commands
from tests.unit.remoting.server_kit import Peer
from tests.unit.remoting.tls_scene import Scene, scene

lib: Any = Binding.lib
ffi: Any = Binding.ffi
TLS1_2, TLS1_3 = 0x0303, 0x0304
ALLOW_CLIENT_RENEGOTIATION = 1 << 8  # SSL_OP_ALLOW_CLIENT_RENEGOTIATION, for which `ssl` has no name
RECORD = 16 * 1024


class OpenSslClient:
    """A client of the scene that drives OpenSSL over memory."""

    def __init__(self, peer: Peer, version: int) -> None:
        self.peer = peer
        self.sent = b""
        """All bytes that went to the server."""
        self._context = ffi.gc(lib.SSL_CTX_new(lib.TLS_client_method()), lib.SSL_CTX_free)
        lib.SSL_CTX_set_max_proto_version(self._context, version)
        self._ssl = ffi.gc(lib.SSL_new(self._context), lib.SSL_free)
        self._read, self._write = lib.BIO_new(lib.BIO_s_mem()), lib.BIO_new(lib.BIO_s_mem())
        lib.SSL_set_bio(self._ssl, self._read, self._write)
        lib.SSL_set_connect_state(self._ssl)

    @property
    def renegotiations(self) -> int:
        """How many of its renegotiations were finished."""
        return int(lib.SSL_total_renegotiations(self._ssl)) - int(lib.SSL_renegotiate_pending(self._ssl))

    async def shake_hands(self, turns: int = 8) -> bool:
        """Goes on with a handshake; returns whether it has ended well."""
        for _ in range(turns):
            done = lib.SSL_do_handshake(self._ssl) == 1
            await self._exchange()
            if done:
                return True
        return False

    async def ask(self, body: bytes) -> list[bytes]:
        """Sends a request; returns the bodies of the answers."""
        data = asked(1, body=body)
        lib.SSL_write(self._ssl, data, len(data))
        await self._exchange()
        buffer = ffi.new("char[]", RECORD)
        size = lib.SSL_read(self._ssl, buffer, RECORD)
        await self._exchange()
        return [one.body for one in commands(ffi.buffer(buffer, size)[:])] if size > 0 else []

    def renegotiate(self) -> None:
        assert lib.SSL_renegotiate(self._ssl) == 1

    async def _exchange(self) -> None:
        buffer = ffi.new("char[]", RECORD)
        while (size := lib.BIO_read(self._write, buffer, RECORD)) > 0:
            data = ffi.buffer(buffer, size)[:]
            self.sent += data
            if not self.peer.transport.is_closing():
                self.peer.transport.write(data)
        await asyncio.sleep(1)
        got, self.peer.got = self.peer.got, b""
        if got:
            lib.BIO_write(self._read, got, len(got))


async def client_of(place: Scene, version: int) -> OpenSslClient:
    client = OpenSslClient(await place.plain(), version)
    assert await client.shake_hands()
    return client


@virtual
async def test_hole_cve_2011_1473_a_client_renegotiates_again_and_again() -> None:
    """Each one would cost the server a handshake, on one connection and without a new one being counted."""
    client = await client_of(await scene(), TLS1_2)
    assert await client.ask(b"before") == [b"before"]
    client.renegotiate()
    await client.shake_hands()
    assert client.renegotiations == 0
    assert await client.ask(b"after") == []


@virtual
async def test_the_same_client_renegotiates_where_a_server_allows_it() -> None:
    """Otherwise the test above would show nothing."""
    place = await scene()
    server = place.contexts.server
    assert server is not None
    server.options &= ~ssl.OP_NO_RENEGOTIATION
    server.options |= ALLOW_CLIENT_RENEGOTIATION
    client = await client_of(place, TLS1_2)
    assert await client.ask(b"before") == [b"before"]
    client.renegotiate()
    await client.shake_hands()
    assert client.renegotiations == 1
    assert await client.ask(b"after") == [b"after"]


@pytest.mark.parametrize("version", [TLS1_2, TLS1_3])
@virtual
async def test_what_was_read_of_an_encrypted_connection_is_not_served_on_another_one(version: int) -> None:
    """A signed request on its own can be sent again; this is what prevents it."""
    place = await scene()
    client = await client_of(place, version)
    assert await client.ask(b"a signed request") == [b"a signed request"]
    assert b"a signed request" not in client.sent
    again = await place.plain()
    again.transport.write(client.sent)
    await asyncio.sleep(1)
    assert again.lost.done()
    assert b"a signed request" not in again.got
