"""Requests that wait before they are begun: in the system, or behind others of the same peer."""

import asyncio

import pytest
from tests.kit import virtual

from turbopump.protocol.command import Command, decode, encode, reply
from turbopump.protocol.frame import Frame
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.late_requests import NEVER, LateRequests
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.testing.loop import VirtualClock, VirtualLoop
from turbopump.testing.network import MemoryNetwork

SLOW, HOLD, QUICK = 1, 2, 3


class LateServer:
    """A server with a handler that ends when told to, one that holds up the loop, and a quick one."""

    def __init__(self, limits: Limits | None = None, shortest_s: float = 0.2) -> None:
        self.network, self.clock = MemoryNetwork(), VirtualClock()
        self.late: list[float] = []
        self.go_on = asyncio.Event()
        self.late_requests = LateRequests(self._refuse, lambda: shortest_s)
        router = Router(
            {SLOW: Route(None, self._slow), HOLD: Route(None, self._hold), QUICK: Route(None, self._quick)}
        )
        self.server = Server(router, self.network, self.clock, limits)
        self.server.late_requests = self.late_requests

    async def start(self) -> str:
        return f"127.0.0.1:{await self.server.start('127.0.0.1', 0)}"

    def client(self) -> Client:
        return Client(self.network, self.clock)

    async def _slow(self, request: Request[None]) -> Answer:
        await self.go_on.wait()
        return Answer()

    def _hold(self, request: Request[None]) -> Answer:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jump(0.5)
        return Answer()

    def _quick(self, request: Request[None]) -> Answer:
        return Answer()

    def _refuse(self, connection: Connection, frames: list[Frame], waited_s: float) -> list[Frame]:
        self.late += [waited_s] * len(frames)
        for frame in frames:
            connection.write(encode(reply(decode(frame), 2)))
        return []


def request(code: int) -> Command:
    return Command(code)


@virtual
async def test_bytes_that_lay_there_while_the_loop_was_held_up_are_late() -> None:
    world = LateServer()
    address = await world.start()
    one, other = world.client(), world.client()
    for client in (one, other):
        await client.call(address, request(QUICK), 5)
    held, waited = await asyncio.gather(
        one.call(address, request(HOLD), 5), other.call(address, request(QUICK), 5)
    )
    assert (held.code, waited.code, world.late) == (0, 2, [pytest.approx(0.5)])
    assert (await other.call(address, request(QUICK), 5)).code == 0
    await world.server.stop()


@virtual
async def test_a_quiet_server_does_not_wake_up() -> None:
    world = LateServer()
    address = await world.start()
    client = world.client()
    await client.call(address, request(QUICK), 5)
    assert world.late_requests._is_ticking
    await asyncio.sleep(1)
    assert not world.late_requests._is_ticking
    await world.server.stop()


@virtual
async def test_those_behind_too_many_others_are_late_after_a_while_and_so_are_the_next() -> None:
    world = LateServer(Limits(requests_in_flight=2))
    address = await world.start()
    client = world.client()
    running = [asyncio.create_task(client.call(address, request(SLOW), 9)) for _ in range(2)]
    await asyncio.sleep(0.01)
    for _ in range(3):
        began = world.clock.monotonic()
        assert (await client.call(address, request(QUICK), 9)).code == 2
        assert world.clock.monotonic() - began == pytest.approx(0.2)
    world.go_on.set()
    assert [answer.code for answer in await asyncio.gather(*running)] == [0, 0]
    assert (await client.call(address, request(QUICK), 9)).code == 0
    await world.server.stop()


@virtual
async def test_those_behind_too_many_others_are_served_when_these_end_in_time() -> None:
    world = LateServer(Limits(requests_in_flight=2))
    address = await world.start()
    client = world.client()
    running = [asyncio.create_task(client.call(address, request(SLOW), 9)) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(client.call(address, request(QUICK), 9))
    await asyncio.sleep(0.19)
    world.go_on.set()
    assert (await waiting).code == 0
    await asyncio.gather(*running)
    await asyncio.sleep(1)
    assert world.late == []
    await world.server.stop()


@virtual
async def test_with_no_limit_they_wait_for_ever() -> None:
    world = LateServer(Limits(requests_in_flight=1), shortest_s=NEVER)
    address = await world.start()
    client = world.client()
    running = asyncio.create_task(client.call(address, request(SLOW), 1000))
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(client.call(address, request(QUICK), 1000))
    await asyncio.sleep(100)
    world.go_on.set()
    assert [(await running).code, (await waiting).code, len(world.late)] == [0, 0, 0]
    await world.server.stop()


class PeerThatDoesNotRead(asyncio.Protocol):
    """Asks a lot and reads nothing until it is told to."""

    def __init__(self) -> None:
        self.got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.got += data


@virtual
async def test_a_peer_that_does_not_read_its_answers_makes_its_requests_wait_itself() -> None:
    world = LateServer(Limits(output_high=1000, output_low=100))
    address = await world.start()
    port = int(address.rpartition(":")[2])
    peer = await world.network.connect(PeerThatDoesNotRead, "127.0.0.1", port)
    assert isinstance(peer, PeerThatDoesNotRead)
    peer.transport.write(b"".join(encode(Command(QUICK, number)) for number in range(100)))
    await asyncio.sleep(3)
    assert world.server.waiting > 0
    peer.transport.resume_reading()
    await asyncio.sleep(3)
    assert world.late == []
    assert peer.got.count(b'"code":0') == 100
    await world.server.stop()
