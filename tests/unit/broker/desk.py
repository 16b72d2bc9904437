"""A whole broker in memory, in virtual time, and short ways to ask it."""

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from turbopump.broker.config import BrokerConfig, BrokerIdentity, ListenConfig, NameServerConfig, TimerRules
from turbopump.broker.server import Broker
from turbopump.protocol import properties, record
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command
from turbopump.protocol.record import Record
from turbopump.remoting.client import Client
from turbopump.remoting.links import Link
from turbopump.remoting.router import Router, Routes
from turbopump.runtime.chance import Chance
from turbopump.store.config import StoreConfig
from turbopump.store.store import Store
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.testing.network import MemoryNetwork

SMALL_STORE = StoreConfig(
    root_dir="/store",
    commit_log_file_size=1 << 20,
    consume_queue_file_size=4000,
    index_slots=100,
    index_items=400,
)
CONFIG = BrokerConfig(
    identity=BrokerIdentity(broker_name="broker-a"),
    listening=ListenConfig(bind_address="127.0.0.1", port=10911),
    name_servers=NameServerConfig(),
    store=SMALL_STORE,
    timers=TimerRules(log_file_size=4_096),
)


class Desk:
    """A running broker and a client of it."""

    def __init__(
        self,
        broker: Broker,
        client: Client,
        disk: SimulatedDisk,
        workers: SimulatedWorkers,
        network: MemoryNetwork,
    ) -> None:
        self.broker = broker
        self.client = client
        self.disk = disk
        self.workers = workers
        self.network = network

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    def visitor(self, routes: Routes | None = None) -> Client:
        """One more client, on a connection of its own, who may answer what the broker asks."""
        return Client(self.network, self.disk.clock, Router(routes or {}))

    @property
    def store(self) -> Store:
        assert self.broker._store is not None
        return self.broker._store

    async def ask(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        port: int = 0,
        timeout_s: float = 60,
    ) -> Command:
        fields = None if ext is None else {name: str(value) for name, value in ext.items()}
        address = f"127.0.0.1:{port or self.broker.port}"
        request = Command(code, ext=fields, body=body, language="JAVA")
        return await self.client.call(address, request, timeout_s)

    async def send(self, topic: str, body: bytes = b"body", queue_id: int = 0, **changes: Any) -> Command:
        code = changes.pop("code", RequestCode.SEND_MESSAGE_V2)
        return await self.ask(code, letters(topic, queue_id, **changes), body)

    async def pull(self, topic: str, offset: int, queue_id: int = 0, **changes: Any) -> Command:
        ext = {
            "consumerGroup": "readers",
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15_000,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }
        return await self.ask(changes.pop("code", RequestCode.PULL_MESSAGE), ext | changes)


def letters(topic: str, queue_id: int = 0, **changes: Any) -> dict[str, Any]:
    pairs = {"UNIQ_KEY": "7F000001000100000000000000000001", "WAIT": "true"} | changes.pop("pairs", {})
    ext = {
        "a": "PG",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": 1_794_732_388_420,
        "h": 0,
        "i": properties.pack(pairs),
        "j": 0,
        "k": "false",
        "m": "false",
    }
    return ext | changes


def records(answer: Command) -> list[Record]:
    return list(record.decode_all(answer.body))


@contextlib.asynccontextmanager
async def running(
    config: BrokerConfig = CONFIG,
    disk: SimulatedDisk | None = None,
    before: Sequence[Link] = (),
    **store: Any,
) -> AsyncIterator[Desk]:
    clock = VirtualClock()
    disk = disk or SimulatedDisk(Chance(1), clock)
    workers = SimulatedWorkers(disk)
    network = MemoryNetwork()
    if store:
        config = replace(config, store=replace(config.store, **store))
    broker = Broker(config, network, clock, disk, workers, Chance(1), lambda: "127.0.0.1")
    broker.before = before
    await broker.start()
    client = Client(network, clock)
    try:
        yield Desk(broker, client, disk, workers, network)
    finally:
        with contextlib.suppress(PowerCut):  # a test that crashed the disk leaves nothing to stop
            await client.close()
            await broker.stop()


def with_broker(scenario: Callable[[Desk], Coroutine[Any, Any, None]], **changes: Any) -> None:
    """Runs a scenario beside a broker in memory, in virtual time."""

    async def run() -> None:
        async with running(**changes) as desk:
            await scenario(desk)

    run_virtual(run())


def in_broker(**changes: Any) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Runs a test as `with_broker` does: its first argument is the desk, the others are fixtures."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            with_broker(lambda desk: test(desk, **fixtures), **changes)

        signature = inspect.signature(test)
        _, *others = signature.parameters.values()
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
