import asyncio

import pytest
from tests.kit import virtual

from turbopump.protocol.addresses import split_address
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command, encode
from turbopump.remoting.client import RETIRE_S, Client, Unaddressable
from turbopump.remoting.connection import Connection, ConnectionClosed
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Answer, Request, Route, Router, Routes
from turbopump.remoting.server import Server
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork, NetworkConditions

ECHO: Routes = {1: Route(None, lambda request: Answer(body=request.body))}


async def start(
    network: MemoryNetwork, routes: Routes = ECHO, limits: Limits | None = None
) -> tuple[Server, str]:
    server = Server(Router(routes), network, VirtualClock(), limits)
    return server, f"127.0.0.1:{await server.start('127.0.0.1', 0)}"


@virtual
async def test_calls_share_one_connection_even_while_it_is_dialled() -> None:
    network = MemoryNetwork(conditions=NetworkConditions(0.01, 0.05))
    server, address = await start(network)
    client = Client(network, VirtualClock())
    answers = await asyncio.gather(*(client.call(address, Command(1, body=b"%d" % n)) for n in range(50)))
    assert [answer.body for answer in answers] == [b"%d" % n for n in range(50)]
    assert len(server.connections) == 1
    await client.close()
    await server.stop()


@virtual
async def test_a_broken_connection_is_dialled_again() -> None:
    network = MemoryNetwork()
    server, address = await start(network)
    client = Client(network, VirtualClock())
    await client.call(address, Command(1))
    for connection in list(server.connections):
        connection.abort()
    await asyncio.sleep(0.01)
    assert (await client.call(address, Command(1, body=b"again"))).body == b"again"


@virtual
async def test_nobody_there_is_an_error_for_every_caller() -> None:
    client = Client(MemoryNetwork(), VirtualClock())
    results = await asyncio.gather(
        *(client.call("127.0.0.1:1", Command(1)) for _ in range(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [ConnectionRefusedError] * 3


@virtual
async def test_an_impossible_address_is_an_error_like_nobody_there() -> None:
    """Routes may hold such ones: another broker of theirs may be fine."""
    client = Client(MemoryNetwork(), VirtualClock())
    for address in ("a..b:1", "127.0.0.1:99999", "nowhere"):
        with pytest.raises(Unaddressable, match=f"an address must be host:port.*, got '{address}'"):
            await client.call(address, Command(1))
        with pytest.raises(OSError, match="an address must be host:port"):
            await client.send_oneway(address, Command(1))


@virtual
async def test_a_dial_takes_three_seconds_at_most() -> None:
    network = MemoryNetwork()
    _, address = await start(network)
    network.conditions = NetworkConditions(60, 60)
    client = Client(network, VirtualClock())
    with pytest.raises(TimeoutError, match="did not accept in 3"):
        await client.call(address, Command(1), 10.0)


@virtual
async def test_an_impatient_caller_does_not_end_the_dial_of_the_others() -> None:
    network = MemoryNetwork(conditions=NetworkConditions(0.5, 0.5))
    _, address = await start(network)
    client = Client(network, VirtualClock())
    impatient = asyncio.ensure_future(client.call(address, Command(1)))
    patient = asyncio.ensure_future(client.call(address, Command(1, body=b"x")))
    await asyncio.sleep(0.1)
    impatient.cancel()
    assert (await patient).body == b"x"


@virtual
async def test_after_a_timeout_without_a_byte_the_next_call_dials_anew() -> None:
    network = MemoryNetwork()
    _, address = await start(network, {2: Route(None, lambda _: None), **ECHO})
    client = Client(network, VirtualClock())
    first = await client.connect(address)
    with pytest.raises(TimeoutError):
        await client.call(address, Command(2))
    assert await client.connect(address) is not first


@virtual
async def test_a_timeout_on_a_connection_that_is_alive_keeps_it() -> None:
    network = MemoryNetwork()
    _, address = await start(network, {2: Route(None, lambda _: None), **ECHO})
    client = Client(network, VirtualClock())
    first = await client.connect(address)
    slow = asyncio.ensure_future(client.call(address, Command(2)))
    await asyncio.sleep(1)
    await client.call(address, Command(1))
    with pytest.raises(TimeoutError):
        await slow
    assert await client.connect(address) is first


SILENT = Limits(idle_s=1e9)


@virtual
async def test_a_connection_without_traffic_is_closed_after_two_minutes_and_dialled_when_needed() -> None:
    network = MemoryNetwork()
    server, address = await start(network, limits=SILENT)
    client = Client(network, VirtualClock())
    first = await client.connect(address)
    for _ in range(4):
        await asyncio.sleep(100)
        await client.call(address, Command(1))
    assert await client.connect(address) is first
    await asyncio.sleep(119)
    assert not first.is_closing
    await asyncio.sleep(11)
    assert first.is_closing
    assert not server.connections
    assert (await client.call(address, Command(1, body=b"again"))).body == b"again"
    await asyncio.sleep(130)
    assert not server.connections, "the second one is looked at as well"
    await client.close()
    await server.stop()


@virtual
async def test_a_client_looks_at_its_connections_only_while_it_has_some() -> None:
    network = MemoryNetwork()
    server, address = await start(network)
    before = asyncio.all_tasks()
    client = Client(network, VirtualClock())
    assert asyncio.all_tasks() == before
    await client.call(address, Command(1))
    assert len(asyncio.all_tasks()) == len(before) + 1
    await asyncio.sleep(200)
    assert asyncio.all_tasks() == before
    await client.call(address, Command(1))
    await client.close()
    assert asyncio.all_tasks() == before
    await server.stop()


@virtual
async def test_a_call_that_waits_longer_than_two_minutes_ends_by_its_own_time() -> None:
    network = MemoryNetwork()
    _, address = await start(network, {2: Route(None, lambda _: None)}, SILENT)
    client = Client(network, VirtualClock())
    with pytest.raises(TimeoutError, match="did not answer request 2 in 300"):
        await client.call(address, Command(2), 300.0)
    await client.close()


@virtual
async def test_a_server_that_never_ends_its_answer_is_left_after_a_minute() -> None:
    half = encode(Command(0, flag=1, body=bytes(100)))[:50]

    def drip(request: Request[None]) -> None:
        request.connection.write(half)

    network = MemoryNetwork()
    _, address = await start(network, {2: Route(None, drip)}, SILENT)
    client = Client(network, VirtualClock())
    began = client._clock.monotonic()
    with pytest.raises(ConnectionClosed):
        await client.call(address, Command(2), 300.0)
    assert 60 <= client._clock.monotonic() - began <= 70
    await client.close()


class Draining:
    """A server that sends away whoever comes on one of the first connections."""

    def __init__(self, connections: int) -> None:
        self.left = connections
        self.seen: list[object] = []
        self.asked = 0

    def answer(self, request: Request[None]) -> Answer:
        self.asked += 1
        if request.connection not in self.seen:
            self.seen.append(request.connection)
        if self.seen.index(request.connection) < self.left:
            return Answer(code=ResponseCode.GO_AWAY, remark="draining")
        return Answer(body=request.body)


@virtual
async def test_a_server_that_sends_us_away_is_asked_again_on_a_new_connection() -> None:
    network, draining = MemoryNetwork(conditions=NetworkConditions(0.01, 0.02)), Draining(1)
    server, address = await start(network, {1: Route(None, draining.answer)})
    client = Client(network, VirtualClock())
    answers = await asyncio.gather(*(client.call(address, Command(1, body=b"%d" % n)) for n in range(9)))
    assert [answer.body for answer in answers] == [b"%d" % n for n in range(9)]
    assert (len(draining.seen), draining.asked) == (2, 18)
    assert len(server.connections) == 2
    await asyncio.sleep(RETIRE_S + 0.1)
    assert len(server.connections) == 1, "the old one is closed when its answers had their time"
    await client.close()
    await server.stop()


@virtual
async def test_one_that_sends_us_away_twice_is_believed() -> None:
    network, draining = MemoryNetwork(), Draining(9)
    server, address = await start(network, {1: Route(None, draining.answer)})
    client = Client(network, VirtualClock())
    answer = await client.call(address, Command(1))
    assert (answer.code, draining.asked) == (ResponseCode.GO_AWAY, 2)
    await client.close()
    await asyncio.sleep(0.1)
    assert not server.connections
    await server.stop()


@virtual
async def test_the_server_may_ask_on_the_clients_connection() -> None:
    asked: list[Connection] = []

    def remember(request: Request[None]) -> Answer:
        asked.append(request.connection)
        return Answer()

    network = MemoryNetwork()
    _, address = await start(network, {34: Route(None, remember)})
    client = Client(network, VirtualClock(), Router({307: Route(None, lambda _: Answer(body=b"running"))}))
    await client.call(address, Command(34))
    assert (await asked[0].call(Command(307), 3.0)).body == b"running"
    assert (await asked[0].call(Command(308), 3.0)).code == 3


@virtual
async def test_one_way_is_sent_and_not_awaited() -> None:
    got: list[bytes] = []

    def take(request: Request[None]) -> None:
        got.append(request.body)

    network = MemoryNetwork()
    _, address = await start(network, {15: Route(None, take)})
    client = Client(network, VirtualClock())
    await client.send_oneway(address, Command(15, body=b"offset"))
    await asyncio.sleep(0.01)
    assert got == [b"offset"]


@virtual
async def test_a_closed_client_calls_nobody() -> None:
    network = MemoryNetwork()
    _, address = await start(network, {2: Route(None, lambda _: None)})
    client = Client(network, VirtualClock())
    running = asyncio.ensure_future(client.call(address, Command(2)))
    await asyncio.sleep(0.1)
    await client.close()
    with pytest.raises(ConnectionClosed):
        await running
    with pytest.raises(ConnectionClosed):
        await client.call(address, Command(2))


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:9876", ("127.0.0.1", 9876)), ("[::1]:80", ("::1", 80)), ("host:0", ("host", 0))],
)
def test_addresses_split(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:-1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="an address must be host:port"):
        split_address(address)
