"""The network in memory: cuts in both directions, and in one."""

import asyncio

import pytest
from tests.kit import virtual

from turbopump.testing.network import MemoryNetwork

NEAR, FAR = "10.0.0.1", "10.0.0.2"


class _End(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data


async def _connected(network: MemoryNetwork) -> tuple[_End, _End]:
    near, far = _End(), _End()
    await network.at(FAR).listen(lambda: far, FAR, 1)
    await network.at(NEAR).connect(lambda: near, FAR, 1)
    return near, far


@virtual
async def test_a_cut_in_one_direction_lets_the_other_pass_until_it_ends() -> None:
    network = MemoryNetwork(silent_cuts=True)
    near, far = await _connected(network)
    network.cut(NEAR, FAR, one_way=True)
    near.transport.write(b"held back")
    far.transport.write(b"arrives")
    await asyncio.sleep(1)
    assert (near.received, far.received) == (b"arrives", b"")
    network.join(FAR, NEAR)
    await asyncio.sleep(1)
    assert far.received == b"held back"


@pytest.mark.parametrize("one_way", [False, True])
@virtual
async def test_hosts_that_are_cut_off_cannot_connect(one_way: bool) -> None:
    network = MemoryNetwork()
    await network.at(FAR).listen(_End, FAR, 1)
    network.cut(FAR, NEAR, one_way)
    with pytest.raises(ConnectionRefusedError):
        await network.at(NEAR).connect(_End, FAR, 1)


@virtual
async def test_the_end_of_a_connection_does_not_pass_a_cut_in_its_direction() -> None:
    network = MemoryNetwork(silent_cuts=True)
    near, far = await _connected(network)
    network.cut(NEAR, FAR, one_way=True)
    near.transport.abort()
    await asyncio.sleep(1)
    assert not far.transport.is_closing()
