"""A master, its slaves and a name server in memory and virtual time, each on a host of its own."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from tests.unit.broker.desk import Desk

from turbopump.broker.config import MasterRole, load
from turbopump.broker.server import Broker
from turbopump.namesrv.config import NamesrvConfig
from turbopump.namesrv.server import NameServer
from turbopump.protocol import record
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.headers.base import Header
from turbopump.remoting.client import Client
from turbopump.replication.slave import Slave
from turbopump.store.store import Store
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork
from turbopump.testing.simulated_files import Survival

NAME_SERVER_IP, TOOL_IP = "10.0.0.9", "10.0.0.8"
NAME_SERVER = f"{NAME_SERVER_IP}:9876"
PORT = 10911
TOPIC = "T"
FILE_SIZE = 1 << 20
INDEX_UNITS = 1 << 10

COMMON = f"""
brokerClusterName=C
brokerName=broker-a
namesrvAddr={NAME_SERVER}
listenPort={PORT}
storePathRootDir=/store
mappedFileSizeCommitLog={FILE_SIZE}
mappedFileSizeConsumeQueue=2000
maxHashSlotNum=100
maxIndexNum=1000
timerWheelEnable=true
timerRollWindowSlot=200
mappedFileSizeTimerLog=65536
"""


class Node:
    """One broker, with its host and its disk; it can be stopped, killed and started again."""

    def __init__(self, pair: Pair, number: int, conf: str) -> None:
        self.ip = f"10.0.0.{number}"
        self.address = f"{self.ip}:{PORT}"
        self.conf = conf
        self.disk = SimulatedDisk(pair.chance, pair.clock)
        self.promote: Callable[[MasterRole], None] | None = None
        self._pair = pair
        self.broker: Broker | None = None

    async def start(self, conf: str | None = None) -> None:
        if conf is not None:
            self.conf = conf
        pair = self._pair
        config = load(f"{COMMON}brokerIP1={self.ip}\n{self.conf}").config
        # Apache fixes the size of DLedger's index files at 160 MB: too much for disks in memory.
        config = replace(config, store=replace(config.store, dledger_index_units=INDEX_UNITS))
        self.broker = Broker(
            config, pair.network.at(self.ip), pair.clock, self.disk, SimulatedWorkers(self.disk), pair.chance
        )
        self.broker.promote = self.promote
        await self.broker.start()

    async def stop(self) -> None:
        if self.broker is not None:
            broker, self.broker = self.broker, None
            await broker.stop()

    async def kill(self, survival: Survival = Survival.KEPT) -> None:
        """Ends the process at once, or the machine with it: what is not synced may be lost."""
        if self.broker is None:
            return
        network, broker, self.broker = self._pair.network, self.broker, None
        network.unplug(self.ip)
        self.disk = self.disk.crash(survival)
        hosts = [NAME_SERVER_IP, TOOL_IP, *(other.ip for other in self._pair.nodes if other is not self)]
        joined = [ip for ip in hosts if not network.is_cut(self.ip, ip)]
        for ip in joined:
            network.cut(self.ip, ip)  # it says goodbye to no one
        with contextlib.suppress(PowerCut):
            await broker.stop()
        for ip in joined:
            network.join(self.ip, ip)

    @property
    def slave(self) -> Slave:
        assert self.broker is not None
        assert self.broker.replication.slave is not None, "this broker is no slave"
        return self.broker.replication.slave

    @property
    def store(self) -> Store:
        assert self.broker is not None, "the broker does not run"
        assert self.broker._store is not None, "the broker does not run"
        return self.broker._store

    @property
    def log(self) -> bytes:
        """All bytes of the log."""
        replica = self.store.replica
        return replica.read(replica.min_offset, replica.end)


class Pair:
    """A name server, a master and slaves."""

    def __init__(self, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock(start_ms=1_794_732_388_000)
        self.network = MemoryNetwork(self.chance)
        self.tool = Client(self.network.at(TOOL_IP), self.clock)
        self.nodes: list[Node] = []
        config = NamesrvConfig(listen_port=9876, bind_address=NAME_SERVER_IP)
        disk = SimulatedDisk(self.chance, self.clock)
        self.name_server = NameServer(config, self.network.at(NAME_SERVER_IP), self.clock, disk)

    def node(self, conf: str = "") -> Node:
        node = Node(self, len(self.nodes) + 1, conf)
        self.nodes.append(node)
        return node

    async def close(self) -> None:
        await self.tool.close()
        for node in self.nodes:
            await node.stop()
        await self.name_server.stop()

    async def call(
        self, node: Node, code: RequestCode, header: Header | None = None, timeout_s: float = 10.0
    ) -> Command:
        return await self.tool.call(node.address, request(code, header), timeout_s)

    async def send(
        self, node: Node, body: bytes, topic: str = TOPIC, queue_id: int = 0, properties: str = ""
    ) -> Command:
        """Sends one message by the general form of a send."""
        ext = {
            "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
            "g": str(self.clock.now_ms()), "h": "0", "i": properties, "j": "0", "k": "false",
        }  # fmt: skip
        command = Command(int(RequestCode.SEND_MESSAGE_V2), ext=ext, body=body)
        return await self.tool.call(node.address, command, 30.0)

    async def until(self, is_true: Callable[[], bool], within_s: float = 60.0) -> None:
        """Waits in virtual time until something is true."""
        async with asyncio.timeout(within_s):
            while not is_true():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)

    async def copied(self, master: Node, slave: Node, within_s: float = 60.0) -> None:
        """Waits until the slave's log reaches as far as the master's."""
        async with asyncio.timeout(within_s):
            while slave.store.replica.dispatched < master.store.log.end:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)

    async def pull(self, node: Node, topic: str = TOPIC, queue_id: int = 0, offset: int = 0) -> list[bytes]:
        """Returns the bodies of the messages of a queue."""
        ext = {
            "consumerGroup": "CG", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset),
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0",
        }  # fmt: skip
        answer = await self.tool.call(node.address, Command(int(RequestCode.PULL_MESSAGE), ext=ext), 10.0)
        return [one.body for one in record.decode_all(answer.body)] if answer.code == 0 else []


class BrokerDesk(Desk):
    """A broker of a pair, for the kits of `tests/unit/broker` that ask a lone one."""

    def __init__(self, world: Pair, node: Node) -> None:
        assert node.broker is not None
        super().__init__(node.broker, world.tool, node.disk, SimulatedWorkers(node.disk), world.network)
        self._address = node.address

    @property
    def address(self) -> str:
        return self._address

    async def ask(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        port: int = 0,
        timeout_s: float = 60,
    ) -> Command:
        fields = None if ext is None else {name: str(value) for name, value in ext.items()}
        request = Command(code, ext=fields, body=body, language="JAVA")
        return await self.client.call(self._address, request, timeout_s)


@contextlib.asynccontextmanager
async def pair(seed: int = 1) -> AsyncIterator[Pair]:
    """A name server that runs, and room for brokers."""
    made = Pair(seed)
    await made.name_server.start()
    try:
        yield made
    finally:
        await made.close()
