"""To which brokers heartbeats go: all at intervals, afterwards those that do not know the client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

from tests.unit.client.kit import BROKER_A, BROKER_B, NAMESRV, Cluster, routes_to

from turbopump.client.heartbeats import Heartbeats
from turbopump.client.name_servers import NameServers
from turbopump.client.routes import RouteCache
from turbopump.protocol.bodies import HeartbeatData, ProducerData
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import reply
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import VirtualClock, run_virtual

BEAT = RequestCode.HEART_BEAT


class Connections(Cluster):
    """A cluster of answers whose connections can be seen and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.on(
            NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, routes_to({"t": 1}, {"a": BROKER_A, "b": BROKER_B})
        )
        self.open: dict[str, SimpleNamespace] = {}
        for address in (BROKER_A, BROKER_B):
            self.start(address)

    async def connect(self, address: str) -> SimpleNamespace:
        if (address, int(BEAT)) not in self.answers:
            raise ConnectionRefusedError(f"no listener at {address}")
        if address not in self.open:
            self.open[address] = SimpleNamespace(is_closing=False, on_closed=[])
        return self.open[address]

    def start(self, address: str) -> None:
        self.on(address, BEAT, reply)

    def kill(self, address: str) -> None:
        self.answers.pop((address, int(BEAT)))
        connection = self.open.pop(address)
        connection.is_closing = True
        for call in connection.on_closed:
            call(connection)

    def beats(self) -> list[str]:
        """Returns the addresses that got a heartbeat since the last call."""
        told = [address for address, request in self.asked if request.code == BEAT]
        self.asked.clear()
        return told


@asynccontextmanager
async def beating(cluster: Connections) -> AsyncIterator[Heartbeats]:
    """A client that produces for a topic of both brokers, and has sent its first heartbeats."""
    routes = RouteCache(NameServers(cluster, [NAMESRV], Chance(1)))
    described = HeartbeatData(clientID="c", producerDataSet=[ProducerData(groupName="g")])
    beats = Heartbeats(cluster, routes, VirtualClock(), lambda: ["t"], lambda: described)  # type: ignore[arg-type]
    task = asyncio.create_task(beats.keep())
    await asyncio.sleep(1)
    assert sorted(cluster.beats()) == [BROKER_A, BROKER_B]
    yield beats
    task.cancel()


def test_every_broker_hears_the_client_at_intervals() -> None:
    async def scene() -> None:
        cluster = Connections()
        async with beating(cluster):
            await asyncio.sleep(90)
            assert sorted(cluster.beats()) == 3 * [BROKER_A] + 3 * [BROKER_B]

    run_virtual(scene())


def test_a_broker_that_is_down_does_not_make_the_client_repeat_itself_to_the_others() -> None:
    async def scene() -> None:
        cluster = Connections()
        async with beating(cluster):
            cluster.kill(BROKER_A)
            await asyncio.sleep(60)
            assert cluster.beats() == 2 * [BROKER_B]

    run_virtual(scene())


def test_a_broker_that_comes_back_hears_the_client_within_seconds_and_alone() -> None:
    async def scene() -> None:
        cluster = Connections()
        async with beating(cluster):
            cluster.kill(BROKER_A)
            await asyncio.sleep(5)
            cluster.start(BROKER_A)
            await asyncio.sleep(3)
            assert cluster.beats() == [BROKER_A]
            await asyncio.sleep(10)
            assert cluster.beats() == []

    run_virtual(scene())


def test_a_connection_that_ended_is_opened_again_for_its_broker_alone() -> None:
    async def scene() -> None:
        cluster = Connections()
        async with beating(cluster):
            cluster.kill(BROKER_A)
            cluster.start(BROKER_A)
            await asyncio.sleep(3)
            assert cluster.beats() == [BROKER_A]

    run_virtual(scene())


def test_all_brokers_hear_at_once_of_a_new_group() -> None:
    async def scene() -> None:
        cluster = Connections()
        async with beating(cluster) as beats:
            beats.renew()
            await asyncio.sleep(3)
            assert sorted(cluster.beats()) == [BROKER_A, BROKER_B]

    run_virtual(scene())
