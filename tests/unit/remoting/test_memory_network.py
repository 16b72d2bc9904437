import asyncio
from typing import cast

import pytest
from tests.kit import virtual

from turbopump.runtime.chance import Chance
from turbopump.testing.loop import run_virtual
from turbopump.testing.network import MemoryNetwork, NetworkConditions


class End(asyncio.Protocol):
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.paused = False
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


async def pair(
    network: MemoryNetwork, near_ip: str = "10.0.0.1", far_ip: str = "10.0.0.2"
) -> tuple[End, End]:
    accepted: list[End] = []

    def accept() -> End:
        accepted.append(End())
        return accepted[-1]

    listener = await network.at(far_ip).listen(accept, "0.0.0.0", 0)
    near = await network.at(near_ip).connect(End, far_ip, listener.port)
    assert isinstance(near, End)
    return near, accepted[0]


@virtual
async def test_bytes_arrive_in_order_in_both_directions() -> None:
    near, far = await pair(MemoryNetwork())
    near.transport.write(b"one")
    near.transport.write(b"two")
    far.transport.write(b"three")
    await asyncio.sleep(0.1)
    assert b"".join(far.pieces) == b"onetwo"
    assert near.pieces == [b"three"]
    assert far.transport.get_extra_info("peername")[0] == "10.0.0.1"


@virtual
async def test_pieces_and_delays_follow_the_conditions() -> None:
    near, far = await pair(MemoryNetwork(conditions=NetworkConditions(0.1, 0.1, segment=2)))
    started = asyncio.get_running_loop().time()
    near.transport.write(b"abcde")
    near.transport.close()
    await far.lost
    assert far.pieces == [b"ab", b"cd", b"e"]
    assert asyncio.get_running_loop().time() - started == pytest.approx(0.3)


@virtual
async def test_a_reader_that_stops_pauses_the_writer() -> None:
    near, far = await pair(MemoryNetwork())
    near.transport.set_write_buffer_limits(100, 10)
    far.transport.pause_reading()
    near.transport.write(bytes(200))
    await asyncio.sleep(1)
    assert near.paused
    assert near.transport.get_write_buffer_size() == 200
    far.transport.resume_reading()
    await asyncio.sleep(1)
    assert not near.paused
    assert len(b"".join(far.pieces)) == 200


@virtual
async def test_close_sends_the_rest_first_and_abort_does_not() -> None:
    near, far = await pair(MemoryNetwork())
    near.transport.write(b"last words")
    near.transport.close()
    assert await far.lost is None
    assert far.pieces == [b"last words"]
    near, far = await pair(MemoryNetwork())
    near.transport.write(b"lost")
    near.transport.abort()
    await far.lost
    assert far.pieces == []


@virtual
async def test_a_cut_holds_bytes_back_and_refuses_connections_until_joined() -> None:
    network = MemoryNetwork()
    near, far = await pair(network)
    network.cut("10.0.0.1", "10.0.0.2")
    near.transport.write(b"late")
    await asyncio.sleep(10)
    assert far.pieces == []
    with pytest.raises(ConnectionRefusedError):
        await pair(network)
    network.join("10.0.0.2", "10.0.0.1")
    await asyncio.sleep(1)
    assert far.pieces == [b"late"]


@virtual
async def test_a_host_can_lose_all_its_connections() -> None:
    network = MemoryNetwork()
    near, far = await pair(network)
    other, _ = await pair(network, "10.0.0.3", "10.0.0.4")
    network.break_connections("10.0.0.2")
    await near.lost
    await far.lost
    assert not other.lost.done()


def test_lost_connections_replay_from_their_seed() -> None:
    async def until_lost(seed: int) -> int:
        near, far = await pair(MemoryNetwork(Chance(seed), NetworkConditions(loss=0.05)))
        while not near.lost.done():
            near.transport.write(b"x")
            await asyncio.sleep(1)
        return len(far.pieces)

    lives = [run_virtual(until_lost(seed)) for seed in range(5)]
    assert lives == [run_virtual(until_lost(seed)) for seed in range(5)]
    assert len(set(lives)) > 1


@virtual
async def test_an_address_is_listened_on_once() -> None:
    network = MemoryNetwork()
    listener = await network.listen(End, "127.0.0.1", 9876)
    with pytest.raises(OSError, match="in use"):
        await network.listen(End, "127.0.0.1", 9876)
    listener.close()
    await network.listen(End, "127.0.0.1", 9876)
    await network.at("10.0.0.1").listen(End, "", 9876)
