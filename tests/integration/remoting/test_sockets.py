"""Real sockets on 127.0.0.1: good peers, hostile peers, and what they cost us."""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.integration.remoting.socket_kit import PATIENCE_S, Peer

from turbopump.protocol.command import Command, encode
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Connection
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Answer, Request, Route, Router, Routes
from turbopump.remoting.server import Server
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.network import SystemNetwork

ECHO = 1
LATER = 2
BIG = 3
BIG_BODY = 200_000
ASK_BACK = 4


class World:
    """A server with some handlers, and what they saw."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.parked: asyncio.Queue[Request[None]] = asyncio.Queue()
        self.connections: list[Connection] = []
        self.router = Router(
            {
                ECHO: Route(None, lambda request: Answer(body=request.body)),
                LATER: Route(None, self.parked.put_nowait),
                BIG: Route(None, lambda _: Answer(body=bytes(BIG_BODY))),
                ASK_BACK: Route(None, self._ask_back),
            }
        )
        self.server = Server(self.router, SystemNetwork(), SystemClock(), limits)
        self.port = 0

    async def _ask_back(self, request: Request[None]) -> Answer:
        answer = await request.connection.call(Command(ECHO, body=request.body), PATIENCE_S)
        return Answer(body=answer.body)


@contextlib.asynccontextmanager
async def running(limits: Limits | None = None) -> AsyncIterator[World]:
    world = World(limits)
    world.port = await world.server.start("127.0.0.1", 0)
    try:
        yield world
    finally:
        await world.server.stop(0.2)
        await world.router.close()


def real(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test()

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@real
async def test_answers_come_in_any_order_and_are_matched() -> None:
    async with running() as world:
        client = Client(SystemNetwork(), SystemClock())
        address = f"127.0.0.1:{world.port}"
        calls = [asyncio.create_task(client.call(address, Command(LATER, body=b"%d" % n))) for n in range(10)]
        parked = [await world.parked.get() for _ in calls]
        for request in reversed(parked):
            request.answer(Answer(body=request.body))
        assert [(await call).body for call in calls] == [b"%d" % n for n in range(10)]
        await client.close()


@real
async def test_many_frames_in_one_segment_are_answered_in_one_write() -> None:
    async with running() as world:
        peer = await Peer.dial(world.port)
        peer.send(Command(ECHO, 0))
        await peer.receive()
        [connection] = world.server.connections
        peer.send(*(Command(ECHO, number) for number in range(300)))
        assert [(await peer.receive()).opaque for _ in range(300)] == list(range(300))
        assert connection.writes - 1 == connection.reads - 1 <= 2
        await peer.close()


@real
async def test_a_frame_may_come_byte_by_byte() -> None:
    async with running() as world:
        peer = await Peer.dial(world.port)
        for byte in encode(Command(ECHO, 5, body=b"slowly")):
            peer.writer.write(bytes((byte,)))
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.receive()).body == b"slowly"
        await peer.close()


@real
async def test_a_large_frame_among_small_ones() -> None:
    async with running() as world:
        peer = await Peer.dial(world.port)
        large = bytes(15 << 20)
        peer.send(Command(ECHO, 1), Command(ECHO, 2, body=large), Command(ECHO, 3))
        assert (await peer.receive()).opaque == 1
        assert len((await peer.receive()).body) == len(large)
        assert (await peer.receive()).opaque == 3
        await peer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\x00\x00\x00\x02{}",
        b"\x00\xff\xff\xfd\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x08\x02\x00\x00\x02{}  ",
        b"\x00\x00\x00\x06\x00\xff\xff\xff{}",
        b"\x00\x00\x00\x06\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x06\x01\x00\x00\x02{}",
        bytes.fromhex("16030102000100 01fc0303"),
        b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
    ],
    ids=[
        *("http", "length 0", "negative length", "length over the limit", "length one over the limit"),
        *(
            "unknown encoding",
            "header longer than frame",
            "header no object",
            "binary garbage",
            "tls",
            "proxy",
        ),
    ],
)
def test_garbage_closes_that_connection_only(data: bytes) -> None:
    async def main() -> None:
        async with running() as world:
            good = await Peer.dial(world.port)
            bad = await Peer.dial(world.port)
            bad.writer.write(data)
            assert await bad.ended() == b""
            good.send(Command(ECHO, 1))
            assert (await good.receive()).opaque == 1
            await bad.close()
            await good.close()

    asyncio.run(main())


@real
async def test_a_header_that_never_ends_is_held_within_the_bound() -> None:
    async with running(Limits(max_frame=1 << 20, unfinished_bytes=1 << 20)) as world:
        peers = [await Peer.dial(world.port) for _ in range(4)]
        for peer in peers:
            peer.writer.write((1_000_000).to_bytes(4, "big") + b"\x00\x0f\x00\x00" + bytes(400_000))
        done, _ = await asyncio.wait(
            [asyncio.create_task(peer.ended()) for peer in peers],
            return_when=asyncio.FIRST_COMPLETED,
            timeout=PATIENCE_S,
        )
        assert done
        assert world.server._group.unfinished.bytes <= 1 << 20
        good = await Peer.dial(world.port)
        good.send(Command(ECHO, 1))
        await good.receive()
        for peer in (*peers, good):
            peer.writer.transport.abort()


@real
async def test_a_peer_that_never_reads_holds_little_memory_and_others_are_served() -> None:
    limits = Limits(output_high=256 * 1024, output_low=64 * 1024)
    async with running(limits) as world:
        peer = await Peer.dial(world.port)
        peer.transport.pause_reading()
        peer.send(*(Command(BIG, number) for number in range(2000)))  # 400 MB of answers
        good = await Peer.dial(world.port)
        for number in range(50):
            good.send(Command(ECHO, number))
            assert (await good.receive()).opaque == number
        [connection] = [one for one in world.server.connections if one.saturated]
        assert connection._transport is not None
        # Just not full, then what one pass collects before it is saturated: the last answer goes beyond that.
        assert connection._transport.get_write_buffer_size() < 2 * limits.output_high + BIG_BODY
        peer.transport.resume_reading()  # it reads again: nothing was lost, order is kept
        assert [(await peer.receive()).opaque for _ in range(200)] == list(range(200))
        peer.writer.transport.abort()
        await good.close()


@real
async def test_parked_answers_to_a_peer_that_never_reads_end_at_the_hard_limit() -> None:
    async with running(Limits(output_high=64 * 1024, output_low=1024, output_hard=4 << 20)) as world:
        peer = await Peer.dial(world.port)
        peer.transport.pause_reading()
        peer.send(*(Command(LATER, number) for number in range(100)))
        parked = [await world.parked.get() for _ in range(100)]
        [connection] = world.server.connections
        for request in parked:
            request.answer(Answer(body=bytes(1 << 20)))
        assert connection.is_closing
        peer.writer.transport.abort()


@real
async def test_one_way_requests_are_silent() -> None:
    async with running() as world:
        peer = await Peer.dial(world.port)
        peer.send(Command(ECHO, 1, flag=2), Command(9999, 2, flag=2), Command(ECHO, 3))
        assert (await peer.receive()).opaque == 3
        await peer.close()


@real
async def test_both_sides_ask_at_once_with_the_same_numbers() -> None:
    async with running() as world:
        router = Router({ECHO: Route(None, lambda request: Answer(body=request.body.upper()))})
        client = Client(SystemNetwork(), SystemClock(), router)
        address = f"127.0.0.1:{world.port}"
        answers = await asyncio.gather(
            *(client.call(address, Command(ASK_BACK, body=b"back%d" % n)) for n in range(50)),
            *(client.call(address, Command(ECHO, body=b"echo%d" % n)) for n in range(50)),
        )
        bodies = [answer.body for answer in answers]
        assert bodies == [b"BACK%d" % n for n in range(50)] + [b"echo%d" % n for n in range(50)]
        await client.close()


@real
async def test_stop_sends_what_is_being_answered_then_closes() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request[None]) -> Answer:
        begun.set()
        await go_on.wait()
        return Answer(body=bytes(8 << 20))

    routes: Routes = {1: Route(None, slow)}
    server = Server(Router(routes), SystemNetwork(), SystemClock())
    port = await server.start("127.0.0.1", 0)
    peer = await Peer.dial(port)
    peer.send(Command(1, 7))
    await begun.wait()
    stopping = asyncio.create_task(server.stop(PATIENCE_S))
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        await Peer.dial(port)
    go_on.set()
    assert len((await peer.receive()).body) == 8 << 20
    assert await peer.ended() == b""
    await stopping
    await peer.close()


@real
async def test_a_peer_that_leaves_in_the_middle_is_forgotten() -> None:
    async with running() as world:
        peer = await Peer.dial(world.port)
        peer.send(Command(LATER, 1))
        request = await world.parked.get()
        closed = asyncio.Event()
        request.connection.on_closed.append(lambda _: closed.set())
        peer.writer.write(encode(Command(ECHO, 2))[:9])
        peer.writer.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            await closed.wait()
        request.answer(Answer())
        assert not world.server.connections
        assert world.server._group.unfinished.bytes == 0


@real
async def test_two_thousand_idle_connections_cost_little_and_the_next_is_served() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 5000
    if hard < wanted:
        pytest.skip(f"only {hard} descriptors allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    async with running() as world:
        writers = []
        for _ in range(20):
            dialled = await asyncio.gather(*(Peer.dial(world.port) for _ in range(100)))
            writers += [peer.writer for peer in dialled]
        peer = await Peer.dial(world.port)
        peer.send(Command(ECHO, 1))
        assert (await peer.receive()).opaque == 1
        assert len(world.server.connections) == 2001
        await peer.close()
        for writer in writers:
            writer.transport.abort()


@real
async def test_more_connections_than_allowed_are_closed_and_the_others_served() -> None:
    async with running(Limits(max_connections=2)) as world:
        kept = [await Peer.dial(world.port) for _ in range(2)]
        for peer in kept:
            peer.send(Command(ECHO, 1))
            await peer.receive()
        assert await (await Peer.dial(world.port)).ended() == b""
        kept[0].send(Command(ECHO, 2))
        assert (await kept[0].receive()).opaque == 2
        for peer in kept:
            await peer.close()


@real
async def test_a_chosen_port_has_neighbours_that_can_be_listened_on() -> None:
    network = SystemNetwork()
    async with running() as world:
        for port in (world.port - 2, world.port + 1):
            (await network.listen(asyncio.Protocol, "127.0.0.1", port)).close()
