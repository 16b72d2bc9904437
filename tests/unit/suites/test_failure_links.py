"""The proxy between a master and its slave, on loopback connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.failures.links import Link, Way
from tests.kit import in_loop

NOT_YET_S = 0.1  # nothing can be awaited that does not happen


class Target:
    """A server that keeps its connections."""

    def __init__(self) -> None:
        self._accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted.put_nowait((reader, writer))

    async def next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await self._accepted.get()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Link, Target]]:
    target = Target()
    server = await asyncio.start_server(target.accept, "127.0.0.1", 0)
    link = Link(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await link.open()
    try:
        yield link, target
    finally:
        await link.close()
        server.close()


async def connect(link: Link) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = link.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


@in_loop
async def run(scenario: Callable[[Link, Target], Awaitable[None]]) -> None:
    async with asyncio.timeout(10), linked() as (link, target):
        await scenario(link, target)


def test_bytes_and_ends_pass_in_both_directions() -> None:
    async def scenario(link: Link, target: Target) -> None:
        near, near_writer = await connect(link)
        far, far_writer = await target.next()
        near_writer.write(b"forth")
        assert await far.readexactly(5) == b"forth"
        far_writer.write(b"back")
        far_writer.write_eof()
        assert await near.read() == b"back"
        assert (link.accepted, link.passed) == (1, 9)

    run(scenario)


def test_a_cut_link_resets_what_is_open_and_what_comes_until_it_is_restored() -> None:
    async def scenario(link: Link, target: Target) -> None:
        near, far = await connect(link), await target.next()
        link.cut()
        for end in (near, far, await connect(link)):
            with pytest.raises(ConnectionResetError):
                await end[0].readexactly(1)
        link.mend()
        near, far = await connect(link), await target.next()
        near[1].write(b"x")
        assert await far[0].readexactly(1) == b"x"

    run(scenario)


def test_a_frozen_link_passes_nothing_and_then_all_of_it() -> None:
    async def scenario(link: Link, target: Target) -> None:
        near, far = await connect(link), await target.next()
        link.freeze()
        near[1].write(b"kept")
        near[1].write_eof()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(far[0].readexactly(1), NOT_YET_S)
        link.mend()
        assert await far[0].read() == b"kept"

    run(scenario)


@pytest.mark.parametrize("way", Way)
def test_a_link_of_one_way_passes_that_way_alone(way: Way) -> None:
    async def scenario(link: Link, target: Target) -> None:
        near, near_writer = await connect(link)
        far, far_writer = await target.next()
        link.one_way(way)
        near_writer.write(b"x")
        far_writer.write(b"x")
        passing, kept = (far, near) if way is Way.FORTH else (near, far)
        assert await passing.readexactly(1) == b"x"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kept.readexactly(1), NOT_YET_S)
        link.mend()
        assert await kept.readexactly(1) == b"x"

    run(scenario)


def test_a_link_replaces_texts_in_what_goes_back() -> None:
    async def scenario(link: Link, target: Target) -> None:
        near, far = await connect(link), await target.next()
        link.replaced[b"127.0.0.1:10"] = b"127.0.0.1:99"
        near[1].write(b"127.0.0.1:10")
        assert await far[0].readexactly(12) == b"127.0.0.1:10"
        far[1].write(b"at 127.0.0.1:10.")
        assert await near[0].readexactly(16) == b"at 127.0.0.1:99."

    run(scenario)


def test_a_slow_link_takes_its_time() -> None:
    async def scenario(link: Link, target: Target) -> None:
        near, far = await connect(link), await target.next()
        link.slow(bytes_per_s=10_000, delay_s=0.05)
        began = asyncio.get_running_loop().time()
        near[1].write(bytes(1000))
        await far[0].readexactly(1000)
        assert asyncio.get_running_loop().time() - began >= 0.15

    run(scenario)


@in_loop
async def test_a_target_that_does_not_listen_resets_who_comes() -> None:
    server = await asyncio.start_server(Target().accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    link = Link(f"127.0.0.1:{port}")
    await link.open()
    near = await connect(link)
    with pytest.raises(ConnectionResetError):
        await near[0].readexactly(1)
    await link.close()
