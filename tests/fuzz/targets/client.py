"""Untrusted input of clients: trace records, and the answers of a proxy."""

import asyncio
from collections.abc import Iterable

from turbopump.client.observe.trace import AFTER, BEFORE, END, PUB, RECALL, Trace, decode, encode
from turbopump.runtime.socks import Proxy, ProxyConnection, ProxyRefused, request_connection

from . import Target

PROXY = Proxy("0.0.0.0/0", "proxy", 1080, "me", "secret")
FINE = b"\x05\x02" + b"\x01\x00" + b"\x05\x00\x00\x01" + bytes(6)
NAMED = b"\x05\x00" + b"\x05\x00\x00\x03\x04here\x04\x38"
REFUSED = b"\x05\x00" + b"\x05\x05\x00\x01" + bytes(6)


def traces(data: bytes) -> None:
    """Checks that decoding never raises, and that decoded records survive a round trip."""
    for found in decode(data.decode("utf-8", "replace")):
        if found.type != END:  # its kind is always written as commit
            assert decode(encode(found)) == [found]


def trace_seeds() -> Iterable[bytes]:
    for kind in (PUB, BEFORE, AFTER, END, RECALL):
        one = Trace(kind, "ID1", "group", "topic", 1_700_000_000_000, 3, True, "k1 k2", "R1", "region")
        yield encode(one).encode()
        yield encode(one, is_cloud=True).encode()


class DiscardingTransport(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


def proxy(data: bytes) -> None:
    """Feeds the answer of a proxy that then closes the connection."""

    async def listen() -> None:
        talk = ProxyConnection()
        talk.connection_made(DiscardingTransport())
        talk.data_received(data)
        talk.connection_lost(None)
        await request_connection(talk, PROXY, "broker", 10911)

    asyncio.run(listen())


TARGETS = {
    "traces": Target(traces, trace_seeds, (), words=(b"\x01", b"\x02", b"null", b"Pub", b"SubAfter")),
    "proxy": Target(proxy, lambda: (FINE, NAMED, REFUSED), (ProxyRefused,), taste=100),
}
