"""Each request on a dialled connection passes `sign` before it becomes bytes, and nothing else does."""

import pytest
from tests.kit import virtual
from tests.unit.remoting.kit import LOG, RecordingTransport, commands

from turbopump.protocol.command import Command, reply
from turbopump.protocol.packed_send import PackedSend, head_of
from turbopump.remoting.client import Client
from turbopump.remoting.connection import ConnectionGroup, TooManyCalls
from turbopump.remoting.dialled import DialledConnection
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork


def mark(request: Command | PackedSend) -> None:
    if isinstance(request, PackedSend):
        request.ending = b',"Signature":"s"'
    else:
        request.ext = {**(request.ext or {}), "Signature": "s"}


def dialled(limits: Limits | None = None) -> tuple[DialledConnection, RecordingTransport]:
    connection = DialledConnection(Router({}).serve, ConnectionGroup.of(limits or Limits(), LOG), mark)
    transport = RecordingTransport()
    transport.protocol = connection
    connection.connection_made(transport)
    return connection, transport


@virtual
async def test_calls_oneway_requests_and_packed_sends_are_signed() -> None:
    connection, transport = dialled()
    send = head_of(310, {"a": "g"})
    connection.ask(Command(1), 3.0).cancel()
    connection.send_oneway(Command(2, ext={"topic": "t"}))
    connection.ask(PackedSend(310, send, 1, "", b""), 3.0).cancel()
    connection.send_oneway(PackedSend(310, send, 1, "", b""))
    connection.close()
    sent = commands(b"".join(transport.writes))
    assert [command.code for command in sent] == [1, 2, 310, 310]
    assert all((command.ext or {})["Signature"] == "s" for command in sent)


@virtual
async def test_answers_are_not_signed() -> None:
    connection, transport = dialled()
    connection.reply(Command(39), reply(Command(39)))
    assert [command.ext for command in commands(b"".join(transport.writes))] == [None]


@virtual
async def test_a_request_that_is_not_sent_is_not_signed() -> None:
    connection, _ = dialled(Limits(calls_in_flight=0))
    refused = Command(1)
    with pytest.raises(TooManyCalls):
        connection.ask(refused, 3.0)
    assert refused.ext is None


@virtual
async def test_all_requests_of_a_client_are_signed_after_its_extra_fields() -> None:
    got: list[dict[str, str] | None] = []

    def serve(request: Request[None]) -> Answer:
        got.append(request.command.ext)
        return Answer()

    network = MemoryNetwork()
    server = Server(Router({1: Route(None, serve)}), network, VirtualClock())
    port = await server.start("127.0.0.1", 0)
    client = Client(network, VirtualClock(), extra={"ns": "shop"}, sign=mark)
    await client.call(f"127.0.0.1:{port}", Command(1))
    await client.send_oneway(f"127.0.0.1:{port}", Command(1))
    await client.call(f"127.0.0.1:{port}", Command(1))
    assert got == [{"ns": "shop", "Signature": "s"}] * 3
    await client.close()
    await server.stop(0.0)
