"""The layer between encrypted and decrypted bytes, whatever a peer sends."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.kit import virtual
from tests.unit.remoting.kit import RecordingTransport
from tests.unit.remoting.tls_kit import TlsFiles, client_context

from turbopump.remoting.tls_layer import TlsLayer

CONTEXT = TlsFiles.of().contexts().server


class Received(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class End:
    """One end of a connection whose bytes the test carries."""

    def __init__(self, context: Any, server_hostname: str | None = None) -> None:
        self.protocol = Received()
        self.failures: list[Exception | None] = []
        self.layer = TlsLayer(context, lambda _: self.protocol, self.failures.append, server_hostname)
        self.below = RecordingTransport()
        self.layer.connection_made(self.below)

    def taken(self) -> bytes:
        written = b"".join(self.below.writes)
        self.below.writes.clear()
        return written


def shaken() -> tuple[End, End]:
    server, client = End(CONTEXT), End(client_context(), "localhost")
    for _ in range(3):
        server.layer.data_received(client.taken())
        client.layer.data_received(server.taken())
        if not client.below.writes:
            break
    return server, client


@given(st.binary(max_size=600))
def test_no_first_bytes_of_a_peer_raise(data: bytes) -> None:
    server = End(CONTEXT)
    server.layer.data_received(b"\x16" + data)
    if not server.below.closed:  # it may be the beginning of a hello
        assert server.protocol.data == b""


@given(st.binary(min_size=1, max_size=600), st.integers(0, 600))
def test_no_bytes_after_a_handshake_raise_or_pass_for_data(data: bytes, at: int) -> None:
    server, client = shaken()
    client.layer.write(b"hello")
    whole = client.taken()
    server.layer.data_received(whole[:at] + data + whole[at:])
    assert server.protocol.data in (b"", b"hello")


@given(st.lists(st.binary(max_size=40_000), max_size=5), st.integers(1, 5000))
def test_what_one_end_writes_the_other_gets_in_pieces_of_any_size(bodies: list[bytes], step: int) -> None:
    server, client = shaken()
    for body in bodies:
        client.layer.write(body)
    data = client.taken()
    for at in range(0, len(data), step):
        server.layer.data_received(data[at : at + step])
    assert server.protocol.data == b"".join(bodies)


@virtual
async def test_nothing_is_written_once_the_layer_is_closing() -> None:
    server, client = shaken()
    client.layer.close()
    written = client.taken()
    client.layer.write(b"too late")
    client.layer.close()
    assert client.taken() == b""
    server.layer.data_received(written)
    assert server.below.closed
    server.layer.connection_lost(None)
    assert server.protocol.is_lost


def test_a_handshake_that_fails_is_told_once_the_connection_has_ended() -> None:
    server = End(CONTEXT)
    server.layer.data_received(b"\x16\x03\x01\x00\x05hello")
    assert server.below.closed
    assert server.failures == []
    server.layer.connection_lost(None)
    assert len(server.failures) == 1
    assert server.failures[0] is not None
