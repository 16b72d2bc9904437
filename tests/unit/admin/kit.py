"""A whole cluster in memory and virtual time, and `mqadmin` in front of it.

    async with cluster() as town:
        printed = await town.mqadmin("topicList")

A `Printed` shows what a user would see. `golden(name, printed…)` compares a terminal's transcript with the
file of that name; after an intended change, `TURBOPUMP_RECORD=1 pytest tests/unit/admin` records it again.
"""

import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.unit.broker.desk import CONFIG

from turbopump.admin.main import AdminEnvironment, run
from turbopump.broker.config import BrokerConfig, BrokerIdentity, ListenConfig, NameServerConfig
from turbopump.broker.server import Broker
from turbopump.client import world as client
from turbopump.client.admin import Admin
from turbopump.client.message import Message, SendResult
from turbopump.client.produce.sender import Sender
from turbopump.client.routes import RoundRobin
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.topics import CreateTopicRequest
from turbopump.protocol.ids import UniqueIds
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork

NAMESRV = "127.0.0.1:9876"
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d,\d{3}")
GOLDEN = Path(__file__).parent / "golden"
Played = Callable[[Request[None]], Answer]
REGISTERED_S = 1.0  # time until a change of topics is registered with name servers


@dataclass(frozen=True)
class Printed:
    words: tuple[str, ...]
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class MemoryCluster:
    network: MemoryNetwork
    clock: VirtualClock
    disk: SimulatedDisk
    """Of the operator: files that commands read and write."""

    admin: Admin
    producer: Sender
    name_server: NameServer
    brokers: list[Broker] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)
    played: list[Server] = field(default_factory=list)

    async def mqadmin(self, *words: str) -> Printed:
        out: list[str] = []
        err: list[str] = []
        environment = AdminEnvironment(
            self.network, self.clock, self.disk, Chance(1), self.environ, out.append, err.append
        )
        status = await run(words, environment)
        return Printed(words, status, "".join(out), "\n".join(err))

    async def play(self, port: int, answers: Mapping[int, Played]) -> str:
        """Starts a server with fixed answers, as Apache's or refusing ones; returns its address."""
        routes = {code: Route(None, answer) for code, answer in answers.items()}
        server = Server(Router(routes), self.network, self.clock, Limits())
        await server.start("127.0.0.1", port)
        self.played.append(server)
        return f"127.0.0.1:{port}"

    async def start_slave(self) -> str:
        """Starts a slave of broker-a; returns its address once it is registered."""
        identity = BrokerIdentity(broker_name="broker-a", broker_id=1, role="SLAVE")
        slave = await _start_broker(len(self.brokers), CONFIG, self.network, self.clock, identity)
        self.brokers.append(slave)
        await self.registered()
        return slave.address

    async def create_topic(self, topic: str, queues: int = 4, broker: int = 0) -> None:
        header = CreateTopicRequest(queues, queues, 6, "SINGLE_TAG", topic, "TBW102", attributes="")
        await self.admin.asking.ask(self.brokers[broker].address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        await self.registered()

    async def registered(self) -> None:
        await self.clock.sleep(REGISTERED_S)

    async def send(self, topic: str, body: bytes = b"hello", **message: Any) -> SendResult:
        return await self.producer.send(Message(topic, body, **message))


@contextlib.asynccontextmanager
async def cluster(brokers: int = 1, config: BrokerConfig = CONFIG) -> AsyncIterator[MemoryCluster]:
    """Starts brokers broker-a at 10911, broker-b at 10921 … of DefaultCluster, and a name server at 9876."""
    clock, network, chance = VirtualClock(), MemoryNetwork(), Chance(1)
    name_server = NameServer(
        NamesrvConfig(bind_address="127.0.0.1"), network, clock, SimulatedDisk(chance, clock)
    )
    await name_server.start()
    admin = Admin(NAMESRV, world=client.World(network, clock, chance))
    ids = UniqueIds("127.0.0.1", 1, clock.now_ms)
    producer = Sender(admin.client, admin.routes, clock, ids, RoundRobin(chance), "senders")
    town = MemoryCluster(network, clock, SimulatedDisk(chance, clock), admin, producer, name_server)
    try:
        for number in range(brokers):
            town.brokers.append(await _start_broker(number, config, network, clock))
        await town.registered()
        yield town
    finally:
        await admin.close()
        for server in (*town.played, *town.brokers):
            await server.stop()
        await name_server.stop()


async def _start_broker(
    number: int,
    config: BrokerConfig,
    network: MemoryNetwork,
    clock: VirtualClock,
    identity: BrokerIdentity | None = None,
) -> Broker:
    own = replace(
        config,
        identity=identity or BrokerIdentity(broker_name=f"broker-{'abcdef'[number]}"),
        listening=ListenConfig(bind_address="127.0.0.1", port=10911 + 10 * number),
        name_servers=NameServerConfig((NAMESRV,)),
    )
    disk = SimulatedDisk(Chance(number), clock)
    broker = Broker(own, network, clock, disk, SimulatedWorkers(disk), Chance(number), lambda: "127.0.0.1")
    await broker.start()
    return broker


def golden(name: str, *printed: Printed) -> None:
    path = GOLDEN / f"{name}.txt"
    shown = MOMENT.sub(r"\1 hh:mm:ss,mmm", transcript(*printed))
    if os.environ.get("TURBOPUMP_RECORD"):
        path.write_text(shown)
    assert shown == path.read_text()


def transcript(*printed: Printed) -> str:
    """Returns what a terminal would show."""
    shown = []
    for each in printed:
        shown.append(f"$ mqadmin {' '.join(each.words)}\n{each.out}")
        shown.append(f"mqadmin: {each.err}\n" if each.err else "")
        shown.append(f"(status {each.status})\n" if each.status else "")
    return "".join(shown)
