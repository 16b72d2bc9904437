import asyncio
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit import virtual

from turbopump.broker.config import BrokerIdentity, NameServerConfig, TopicRules
from turbopump.broker.registration import BrokerEndpoint, NameServerRegistration
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol.bodies import KVTable, RegisterBrokerBody
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.namesrv import RegisterBrokerRequest, UnregisterBrokerRequest
from turbopump.remoting.client import Client
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork

IDENTITY = BrokerIdentity(broker_name="broker-a")
ALL = 15


class NameServer:
    """Takes registrations down, and answers as it is told to."""

    def __init__(self, network: Any, clock: VirtualClock) -> None:
        self.network = network
        self.clock = clock
        self.registered: list[list[str]] = []
        self.headers: list[RegisterBrokerRequest] = []
        self.goodbyes: list[UnregisterBrokerRequest] = []
        self.answer: Callable[[int], Answer] = lambda topics: Answer({})
        self.delay_s = 0.0
        self.server: Server | None = None

    async def start(self, port: int = 9876) -> None:
        routes = {
            int(RequestCode.REGISTER_BROKER): Route(RegisterBrokerRequest, self.register),
            int(RequestCode.UNREGISTER_BROKER): Route(UnregisterBrokerRequest, self.unregister),
        }
        self.server = Server(Router(routes), self.network, self.clock, Limits())
        await self.server.start("0.0.0.0", port)

    async def stop(self) -> None:
        assert self.server is not None
        await self.server.stop(0)

    async def register(self, request: Request[RegisterBrokerRequest]) -> Answer:
        await asyncio.sleep(self.delay_s)
        assert request.header.bodyCrc32 == zlib.crc32(request.body) & 0x7FFFFFFF
        table = RegisterBrokerBody.decode(request.body).topicConfigSerializeWrapper.topicConfigTable
        self.headers.append(request.header)
        self.registered.append(sorted(table))
        return self.answer(len(table))

    def unregister(self, request: Request[UnregisterBrokerRequest]) -> Answer:
        self.goodbyes.append(request.header)
        return Answer()

    @property
    def sizes(self) -> list[int]:
        return [len(names) for names in self.registered]


class Scene:
    def __init__(self, count: int = 1) -> None:
        self.network = MemoryNetwork()
        self.clock = VirtualClock()
        hosts = [f"10.0.0.{number + 1}" for number in range(count)]
        self.servers = [NameServer(self.network.at(host), self.clock) for host in hosts]
        self.topics = TopicTable(TopicRules(), IDENTITY, self.clock)
        self.topics.on_change = lambda topics: self.registration.changed(topic.name for topic in topics)
        self.client = Client(self.network.at("10.0.0.99"), self.clock)
        endpoint = BrokerEndpoint(IDENTITY, "10.0.0.99:10911", "10.0.0.99:10912")
        config = NameServerConfig(tuple(f"{host}:9876" for host in hosts))
        self.registration = NameServerRegistration(self.client, self.topics, endpoint, config)

    async def start(self) -> None:
        for server in self.servers:
            await server.start()
        self.registration.start()
        await self.registration.registered()


@virtual
async def test_the_whole_table_is_registered_at_start_and_every_30_seconds() -> None:
    scene = Scene()
    (server,) = scene.servers
    await scene.start()
    assert server.sizes == [ALL]
    header = server.headers[0]
    assert (header.brokerName, header.clusterName, header.brokerId) == ("broker-a", "DefaultCluster", 0)
    assert (header.brokerAddr, header.haServerAddr) == ("10.0.0.99:10911", "10.0.0.99:10912")
    await asyncio.sleep(61)
    assert server.sizes == [ALL] * 3


@virtual
async def test_a_changed_topic_is_registered_alone_and_at_once() -> None:
    scene = Scene()
    (server,) = scene.servers
    await scene.start()
    scene.topics.update(Topic("New"), {})
    await scene.registration.settled()
    assert server.registered[1:] == [["New"]]
    assert scene.clock.monotonic() < 1


@virtual
async def test_ten_thousand_new_topics_are_told_once_each_and_in_few_requests() -> None:
    scene = Scene()
    (server,) = scene.servers
    await scene.start()
    server.delay_s = 0.01
    for number in range(10_000):
        scene.topics.update(Topic(f"T{number}"), {})
        if number % 1000 == 0:
            await asyncio.sleep(0.001)
    await scene.registration.settled()
    assert sum(server.sizes[1:]) == 10_000
    assert len(server.sizes) < 10


@virtual
async def test_a_topic_that_is_gone_again_is_not_told() -> None:
    scene = Scene()
    (server,) = scene.servers
    await scene.start()
    scene.topics.update(Topic("Brief"), {})
    scene.topics.delete("Brief")
    await scene.registration.settled()
    assert server.sizes == [ALL]


@virtual
async def test_a_change_during_the_first_registration_is_not_lost() -> None:
    scene = Scene()
    (server,) = scene.servers
    server.delay_s = 1.0
    await server.start()
    scene.registration.start()
    await asyncio.sleep(0.5)
    scene.topics.update(Topic("Early"), {})
    await asyncio.sleep(3)
    assert server.registered[1:] == [["Early"]]


@virtual
async def test_who_refuses_one_topic_gets_the_whole_table() -> None:
    scene = Scene()
    (server,) = scene.servers
    await scene.start()
    server.answer = lambda topics: Answer({}, code=1 if topics == 1 else 0, remark="register broker failed")
    scene.topics.update(Topic("New"), {})
    await asyncio.sleep(1)
    assert server.sizes == [ALL, 1, ALL + 1]


@virtual
async def test_a_name_server_that_is_down_delays_nobody_and_is_told_when_it_is_back() -> None:
    scene = Scene(2)
    up, down = scene.servers
    await up.start()
    scene.registration.start()
    await scene.registration.registered()
    scene.topics.update(Topic("New"), {})
    await scene.registration.settled()
    assert up.registered[1:] == [["New"]]
    await asyncio.sleep(5)
    await down.start()
    await asyncio.sleep(10)
    assert down.sizes == [ALL + 1]


@virtual
async def test_one_that_accepts_but_never_answers_delays_nobody() -> None:
    scene = Scene(2)
    good, mute = scene.servers
    mute.delay_s = 1e6
    await good.start()
    await mute.start()
    scene.registration.start()
    await scene.registration.registered()
    assert scene.clock.monotonic() == pytest.approx(3)
    assert good.sizes == [ALL]
    scene.topics.update(Topic("New"), {})
    await scene.registration.settled()
    assert good.registered[1:] == [["New"]]
    await asyncio.sleep(60)
    assert good.sizes[2:] == [ALL + 1] * 2


@virtual
async def test_a_restarted_name_server_knows_us_within_seconds() -> None:
    scene = Scene()
    (server,) = scene.servers
    await scene.start()
    await server.stop()
    await asyncio.sleep(2)
    await server.start()
    await asyncio.sleep(5)
    assert server.sizes == [ALL, ALL]


@virtual
async def test_it_says_goodbye_at_stop_to_those_who_know_it() -> None:
    scene = Scene(2)
    up, down = scene.servers
    await up.start()
    scene.registration.start()
    await scene.registration.registered()
    await scene.registration.stop()
    assert [header.brokerAddr for header in up.goodbyes] == ["10.0.0.99:10911"]
    assert down.goodbyes == []
    await asyncio.sleep(60)
    assert up.sizes == [ALL]


@virtual
async def test_order_topics_come_with_the_answer() -> None:
    scene = Scene()
    (server,) = scene.servers
    scene.topics.update(Topic("T"), {})
    server.answer = lambda topics: Answer({}, KVTable(table={"T": "broker-a:8", "unknown": "b:1"}).encode())
    await scene.start()
    assert scene.topics.find("T").order  # type: ignore[union-attr]


@virtual
async def test_an_answer_that_cannot_be_read_is_no_reason_to_stop() -> None:
    scene = Scene()
    (server,) = scene.servers
    server.answer = lambda topics: Answer({}, b"nonsense")
    await scene.start()
    await asyncio.sleep(31)
    assert server.sizes == [ALL, ALL]


def test_only_changes_of_state_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def test() -> None:
        scene = Scene()
        (server,) = scene.servers
        scene.registration.start()
        await asyncio.sleep(60)
        await server.start()
        await asyncio.sleep(60)

    caplog.set_level("INFO", "turbopump.broker.registration")
    test()
    said = [
        record.getMessage() for record in caplog.records if record.name == "turbopump.broker.registration"
    ]
    assert len(said) == 2
    assert said[0].startswith("Name server 10.0.0.1:9876 cannot be reached")
    assert said[1] == "Registered with name server 10.0.0.1:9876"


@virtual
async def test_without_name_servers_there_is_nothing_to_wait_for() -> None:
    scene = Scene(0)
    await scene.start()
    scene.topics.update(Topic("T"), {})
    await scene.registration.settled()
    await scene.registration.stop()
    assert scene.clock.monotonic() == 0
