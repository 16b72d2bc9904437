"""Requests of the side that dialled: written together, ended in time, and never more than the peer takes."""

import asyncio

import pytest
from tests.kit import virtual
from tests.unit.remoting.kit import LOG, RecordingTransport, commands, turn

from turbopump.protocol.command import Command, encode, reply
from turbopump.protocol.frame import JSON, ROCKETMQ
from turbopump.remoting.client import Client
from turbopump.remoting.connection import ConnectionClosed, ConnectionGroup
from turbopump.remoting.dialled import DialledConnection
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Router
from turbopump.remoting.server import Server
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork, NetworkConditions


def dialled(limits: Limits | None = None) -> tuple[DialledConnection, RecordingTransport]:
    connection = DialledConnection(Router({}).serve, ConnectionGroup.of(limits or Limits(), LOG))
    transport = RecordingTransport()
    transport.protocol = connection
    connection.connection_made(transport)
    return connection, transport


@virtual
async def test_a_request_that_is_alone_leaves_at_once_and_others_of_a_turn_together() -> None:
    connection, transport = dialled()
    answers = [connection.ask(Command(1, body=b"%d" % number), 3.0) for number in range(5)]
    connection.send_oneway(Command(2))
    assert len(transport.writes) == 1
    await turn()
    assert len(transport.writes) == 2
    asked = commands(b"".join(transport.writes))
    assert [command.code for command in asked] == [1, 1, 1, 1, 1, 2]
    connection.data_received(b"".join(encode(reply(command, body=command.body)) for command in asked[:5]))
    assert [(await answer).body for answer in answers] == [b"%d" % number for number in range(5)]


@virtual
async def test_many_bytes_do_not_wait_for_the_end_of_the_turn() -> None:
    connection, transport = dialled()
    for _ in range(6):
        connection.send_oneway(Command(1, body=bytes(100_000)))
    assert len(transport.writes) == 2
    await turn()
    assert len(transport.writes) == 3
    connection.send_oneway(Command(1))
    assert len(transport.writes) == 4


@virtual
async def test_what_was_asked_is_written_before_the_connection_closes() -> None:
    connection, transport = dialled()
    for code in (1, 2, 3):
        connection.send_oneway(Command(code))
    connection.close()
    assert [command.code for command in commands(b"".join(transport.writes))] == [1, 2, 3]
    assert transport.closed


@virtual
async def test_every_call_ends_at_its_own_time() -> None:
    connection, _ = dialled()
    loop = asyncio.get_running_loop()
    ended: dict[float, float] = {}

    async def ask(timeout_s: float) -> None:
        with pytest.raises(TimeoutError, match=f"did not answer request 7 in {timeout_s} s"):
            await connection.call(Command(7), timeout_s)
        ended[timeout_s] = loop.time()

    await asyncio.gather(*(ask(timeout_s) for timeout_s in (3.0, 0.5, 30.0, 1.25, 0.0)))
    assert list(ended) == [0.0, 0.5, 1.25, 3.0, 30.0]
    assert all(moment == pytest.approx(timeout_s, abs=0.002) for timeout_s, moment in ended.items())
    assert len(connection._calls) == 0


@virtual
async def test_a_call_that_nobody_waits_for_any_more_is_forgotten_at_its_end() -> None:
    connection, _ = dialled()
    task = asyncio.ensure_future(connection.call(Command(7), 2.0))
    await turn()
    task.cancel()
    await turn()
    assert len(connection._calls) == 1
    await asyncio.sleep(2.1)
    assert len(connection._calls) == 0


@virtual
async def test_a_peer_that_takes_nothing_makes_callers_wait_and_its_answers_are_still_read() -> None:
    connection, transport = dialled(Limits(output_high=1000, output_low=100))
    transport.reader_is_stuck = True
    first = connection.ask(Command(1, body=bytes(2000)), 3.0)
    await turn()
    assert connection.is_full
    assert not transport.is_paused
    (asked,) = commands(transport.writes[0])
    connection.data_received(encode(reply(asked, body=b"ok")))
    assert (await first).body == b"ok"
    waiting = asyncio.ensure_future(connection.writable())
    await turn()
    assert not waiting.done()
    transport.read()
    await waiting


@virtual
async def test_who_waits_for_room_hears_of_the_end_of_the_connection() -> None:
    connection, transport = dialled(Limits(output_high=1000, output_low=100))
    transport.reader_is_stuck = True
    connection.send_oneway(Command(1, body=bytes(2000)))
    await turn()
    waiting = asyncio.ensure_future(connection.writable())
    await turn()
    connection.connection_lost(None)
    await waiting
    with pytest.raises(ConnectionClosed):
        connection.ask(Command(1), 3.0)


@virtual
async def test_a_call_does_not_take_longer_than_it_may_when_the_dial_does() -> None:
    network = MemoryNetwork(conditions=NetworkConditions(60, 60))
    server = Server(Router({}), network, VirtualClock())
    port = await server.start("127.0.0.1", 0)
    client = Client(network, VirtualClock())
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimeoutError, match=r"took no request in 0\.5 s"):
        await client.call(f"127.0.0.1:{port}", Command(1), 0.5)
    assert loop.time() - began == pytest.approx(0.5)


@virtual
async def test_answers_requests_and_pieces_of_both_may_come_in_one_read() -> None:
    for encoding in (JSON, ROCKETMQ):
        connection, transport = dialled()
        asked = [connection.ask(Command(7), 3.0) for _ in range(4)]
        given = [
            encode(Command(0, opaque, 1, body=b"%d" % opaque, encoding=encoding)) for opaque in (1, 2, 3, 4)
        ]
        question = encode(Command(99, 5, encoding=encoding))
        stream = b"".join([given[0], given[1], question, given[2], given[3]])
        for at in range(0, len(stream), 37):
            connection.data_received(stream[at : at + 37])
        assert [(await answer).body for answer in asked] == [b"1", b"2", b"3", b"4"]
        connection, transport = dialled()
        asked = [connection.ask(Command(7), 3.0) for _ in range(4)]
        connection.data_received(stream)
        assert [(await answer).body for answer in asked] == [b"1", b"2", b"3", b"4"]
        await turn()
        assert 3 in [command.code for written in transport.writes for command in commands(written)]


@virtual
async def test_bytes_that_are_no_frame_end_the_connection() -> None:
    for nonsense in (b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(20), b"\xff" * 20):
        connection, transport = dialled()
        answer = connection.ask(Command(7), 3.0)
        connection.data_received(nonsense)
        assert transport.closed
        connection.connection_lost(None)
        with pytest.raises(ConnectionClosed):
            await answer
