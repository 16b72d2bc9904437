import asyncio
import logging
from typing import cast

import pytest
from tests.kit import virtual
from tests.unit.remoting.kit import asked, commands, turn
from tests.unit.remoting.server_kit import Peer

from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Answer, Request, Route, Router, Routes
from turbopump.remoting.server import Server
from turbopump.runtime.network import Listener, ProtocolFactory
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.network import MemoryNetwork, NetworkConditions


async def serving(routes: Routes, limits: Limits | None = None) -> tuple[Server, MemoryNetwork, int]:
    network = MemoryNetwork()
    server = Server(Router(routes), network, VirtualClock(), limits)
    return server, network, await server.start("127.0.0.1", 0)


async def dial(network: MemoryNetwork, port: int) -> Peer:
    return cast(Peer, await network.connect(Peer, "127.0.0.1", port))


QUICK: Routes = {1: Route(None, lambda _: Answer())}


@virtual
async def test_a_connection_without_traffic_is_closed_after_two_minutes() -> None:
    server, network, port = await serving(QUICK)
    silent = await dial(network, port)
    busy = await dial(network, port)
    for _ in range(12):
        await asyncio.sleep(30)
        busy.transport.write(asked(1))
    assert 120 <= silent.lost.result() <= 130
    assert not busy.lost.done()
    assert len(server.connections) == 1
    await server.stop()


@virtual
async def test_half_a_frame_and_then_silence_is_closed_too() -> None:
    _, network, port = await serving(QUICK)
    peer = await dial(network, port)
    peer.transport.write(asked(1, body=bytes(100))[:50])
    assert 60 <= await peer.lost <= 70


@virtual
async def test_a_frame_that_comes_in_drops_is_closed_and_one_that_ends_in_time_is_served() -> None:
    _, network, port = await serving(QUICK)
    dripping, slow = await dial(network, port), await dial(network, port)
    frame = asked(1, body=bytes(100))
    dripping.transport.write(frame[:3])
    for half in (frame[:50], frame[50:], frame[:50], frame[50:] + frame[:7]):
        slow.transport.write(half)
        await asyncio.sleep(40)
        if not dripping.lost.done():
            dripping.transport.write(frame[3:9])
    assert 60 <= dripping.lost.result() <= 70
    assert len(commands(slow.got)) == 2
    assert not slow.lost.done()


@virtual
async def test_many_who_hold_large_halves_of_frames_do_not_cost_an_honest_sender_its_connection() -> None:
    """The real bound, scaled by a thousand: 32 times 16 KiB against 128 KiB."""
    limits = Limits(unfinished_bytes=128 * 1024)
    _, network, port = await serving(QUICK, limits)
    half = (16 * 1024).to_bytes(4, "big") + bytes((0, 0, 0, 2)) + b"{}" + bytes(16_300)
    holders = [await dial(network, port) for _ in range(32)]
    honest = await dial(network, port)
    frame = asked(1, body=bytes(2000))
    for holder in holders:
        holder.transport.write(half)
        for piece in (frame[:1000], frame[1000:]):
            honest.transport.write(piece)
            await asyncio.sleep(0.1)
    assert len(commands(honest.got)) == 32
    assert not honest.lost.done()
    assert sum(holder.lost.done() for holder in holders) >= 24


@virtual
async def test_a_peer_that_never_reads_is_closed_as_idle() -> None:
    _, network, port = await serving({1: Route(None, lambda _: Answer(body=bytes(100_000)))}, Limits())
    peer = await dial(network, port)
    peer.transport.pause_reading()
    peer.transport.write(asked(1) * 1000)
    assert 120 <= await peer.lost <= 130


def test_one_connection_too_many_is_closed_and_a_storm_of_them_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        server, network, port = await serving(QUICK, Limits(max_connections=2))
        kept = [await dial(network, port) for _ in range(2)]
        for _ in range(50):
            await (await dial(network, port)).lost
        assert len(server.connections) == 2
        kept[0].transport.close()
        await kept[0].lost
        await asyncio.sleep(0)
        assert not (await dial(network, port)).lost.done()

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert [record.getMessage() for record in caplog.records] == ["Refusing connections: 2 are open"]


@virtual
async def test_stop_lets_running_handlers_answer_and_reads_nothing_new() -> None:
    async def slow(request: Request[None]) -> Answer:
        await asyncio.sleep(2)
        return Answer(remark="done")

    server, network, port = await serving({1: Route(None, slow)})
    peer = await dial(network, port)
    idle = await dial(network, port)
    peer.transport.write(asked(1, 1))
    await asyncio.sleep(0.1)
    stopping = asyncio.ensure_future(server.stop(5.0))
    await asyncio.sleep(0.1)
    assert idle.lost.done()
    peer.transport.write(asked(1, 2))
    await stopping
    assert [answer.opaque for answer in commands(peer.got)] == [1]
    assert await peer.lost == pytest.approx(2.0)
    with pytest.raises(ConnectionRefusedError):
        await dial(network, port)


@virtual
async def test_stop_does_not_wait_longer_than_asked() -> None:
    async def endless(request: Request[None]) -> Answer:
        await asyncio.Event().wait()
        return Answer()

    router = Router({1: Route(None, endless)})
    network = MemoryNetwork()
    server = Server(router, network, VirtualClock())
    peer = await dial(network, await server.start("127.0.0.1", 0))
    peer.transport.write(asked(1))
    await asyncio.sleep(0)
    await server.stop(5.0)
    await router.close()
    assert await peer.lost == pytest.approx(5.0)


@virtual
async def test_a_chosen_port_has_free_neighbours() -> None:
    class Crowded(MemoryNetwork):
        """Says 5000 first, whose neighbour is taken, then 6000."""

        ports = iter((5000, 6000))

        async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
            return await super().listen(factory, host, port or next(self.ports))

    network = Crowded()
    await network.listen(Peer, "127.0.0.1", 4998)
    server = Server(Router({}), network, VirtualClock())
    assert await server.start("127.0.0.1", 0) == 6000
    for port in (5000, 5998, 6001):
        (await network.listen(Peer, "127.0.0.1", port)).close()
    await server.stop()


@virtual
async def test_one_server_may_serve_two_ports() -> None:
    server, network, port = await serving(QUICK)
    second = await server.start("127.0.0.1", port - 2)
    for number in (port, second):
        peer = await dial(network, number)
        peer.transport.write(asked(1))
        await asyncio.sleep(0.01)
        assert commands(peer.got)
    await server.stop()


ANSWER = 20_000
OVERHEAD = 200  # of a frame
LIMITS_OF_OUTPUT = Limits(output_high=10_000, output_low=1000, output_hard=640_000, unread_bytes=100_000)


class HoldingServer:
    """A server that answers when it is told to, and peers of it that have asked and do not read."""

    async def start(self) -> None:
        self.parked: list[Request[None]] = []
        self.server, self.network, self.port = await serving(
            {1: Route(None, self.parked.append)}, LIMITS_OF_OUTPUT
        )

    async def peer_that_asks(self, times: int) -> Peer:
        peer = await dial(self.network, self.port)
        peer.transport.pause_reading()
        peer.transport.write(b"".join(asked(1, number) for number in range(times)))
        await asyncio.sleep(0.1)
        return peer

    def answer(self) -> None:
        """The first request of each, then the second of each, and so on."""
        for request in sorted(self.parked, key=lambda request: request.command.opaque):
            request.answer(Answer(body=bytes(ANSWER)))
            assert self.unread <= LIMITS_OF_OUTPUT.unread_bytes + ANSWER + OVERHEAD
        self.parked.clear()

    @property
    def unread(self) -> int:
        return sum(connection.unread for connection in self.server.connections)


@virtual
async def test_answers_that_were_waited_for_by_peers_that_do_not_read_stay_within_the_bound() -> None:
    world = HoldingServer()
    await world.start()
    peers = [await world.peer_that_asks(4) for _ in range(20)]
    world.answer()
    await asyncio.sleep(1)
    assert 0 < world.unread <= LIMITS_OF_OUTPUT.unread_bytes
    assert [peer.lost.done() for peer in peers] == [True] * 19 + [False]
    peers[-1].transport.abort()
    another = await world.peer_that_asks(4)
    world.answer()
    await asyncio.sleep(1)
    assert not another.lost.done(), "those that are gone do not count"
    await world.server.stop()


@virtual
async def test_many_peers_that_each_leave_a_little_unread_stay_within_the_bound_too() -> None:
    world = HoldingServer()
    await world.start()
    peers = [await world.peer_that_asks(1) for _ in range(60)]
    for request in world.parked:
        request.answer(Answer(body=bytes(LIMITS_OF_OUTPUT.output_high - 500)))
    assert world.unread > 5 * LIMITS_OF_OUTPUT.unread_bytes
    await asyncio.sleep(LIMITS_OF_OUTPUT.sweep_s + 1)
    assert 0 < world.unread <= LIMITS_OF_OUTPUT.unread_bytes
    assert any(not peer.lost.done() for peer in peers)
    await world.server.stop()


@virtual
async def test_what_a_slow_reader_has_taken_meanwhile_does_not_count() -> None:
    world = HoldingServer()
    await world.start()
    world.network.conditions = NetworkConditions(segment=1000)
    slow = await world.peer_that_asks(4)
    world.answer()
    slow.transport.resume_reading()
    await turn(50)
    slow.transport.pause_reading()
    assert LIMITS_OF_OUTPUT.output_low < world.unread < 40_000
    other = await world.peer_that_asks(3)
    world.answer()
    await asyncio.sleep(1)
    assert world.unread > 80_000
    assert not slow.lost.done()
    assert not other.lost.done()
    await world.server.stop()


@virtual
async def test_of_many_peers_that_do_not_read_the_those_waiting_longest_are_closed() -> None:
    limits = Limits(output_high=10_000, output_low=1000, unread_bytes=100_000)
    server, network, port = await serving({1: Route(None, lambda _: Answer(body=bytes(20_000)))}, limits)
    peers = [await dial(network, port) for _ in range(9)]
    for peer in peers:
        peer.transport.pause_reading()
        for _ in range(20):
            peer.transport.write(asked(1))
        await asyncio.sleep(1)
    assert sum(connection.unread for connection in server.connections) <= 100_000
    alive = [not peer.lost.done() for peer in peers]
    assert alive == sorted(alive), "those that came first have not read for longest"
    assert 0 < sum(alive) < 9
    reader = await dial(network, port)
    reader.transport.write(asked(1))
    await asyncio.sleep(1)
    assert len(commands(reader.got)) == 1
    for peer in peers:
        peer.transport.abort()
    await server.stop()
