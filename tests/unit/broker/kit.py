"""What the broker's unit tests share: a clock to set by hand, and a bench of handlers that one can ask."""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

from tests.unit.remoting.kit import RecordingTransport, commands, connected, turn

from turbopump.broker.admin.configuration import ConfigurationHandler
from turbopump.broker.admin.connections import ConnectionHandler
from turbopump.broker.admin.groups import GroupHandler
from turbopump.broker.admin.maintenance import MaintenanceHandler
from turbopump.broker.admin.progress import ProgressHandler
from turbopump.broker.admin.queues import QueueHandler
from turbopump.broker.admin.runtime import RuntimeHandler
from turbopump.broker.admin.statistics import StatisticsHandler
from turbopump.broker.admin.topics import TopicHandler
from turbopump.broker.config import BrokerConfig, load
from turbopump.broker.consume.filters import GroupFilters
from turbopump.broker.consume.query import QueryHandler
from turbopump.broker.consume.reused_offsets import ReusedOffsets
from turbopump.broker.groups.clients import ClientHandler
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.locks import LockHandler, LockTable
from turbopump.broker.groups.members import Members
from turbopump.broker.groups.offsets import CommittedOffsets, OffsetHandler, first_offset
from turbopump.broker.groups.relay import ConsumerRelay
from turbopump.broker.groups.resets import ResetHandler
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.metrics.traffic import Traffic
from turbopump.broker.topics import TopicTable
from turbopump.protocol import properties
from turbopump.protocol.command import Command, encode
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.ids import pack_host
from turbopump.remoting.connection import Connection
from turbopump.remoting.router import Router
from turbopump.runtime.chance import Chance
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock

LOG = logging.getLogger("turbopump.broker.test")
HOST = pack_host("127.0.0.1", 30911)

SMALL_STORE = StoreConfig(
    root_dir="/store",
    commit_log_file_size=1 << 20,
    consume_queue_file_size=2000,
    index_slots=100,
    index_items=1000,
)


class HandClock:
    """Stands still until it is set."""

    def __init__(self, now_ms: int = 1_794_732_388_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


class Bench:
    """Tables, handlers and a small store in memory, behind a router. Lives in a virtual loop."""

    def __init__(self, conf: str = "") -> None:
        self.config: BrokerConfig = load("brokerName=broker-a\n" + conf).config
        self.clock = VirtualClock(start_ms=1_794_732_388_000)
        self.disk = SimulatedDisk(Chance(7), self.clock)
        self.store = Store.open(SMALL_STORE, self.disk, self.clock, SimulatedWorkers(self.disk))
        self.store.log.store_host = HOST
        self.topics = TopicTable(self.config.topics, self.config.identity, self.clock)
        self.groups = SubscriptionGroups(self.config.groups, self.clock)
        self.offsets = CommittedOffsets(self.config.offsets, self.clock)
        self.members: Members[Connection] = Members()
        self.traffic = Traffic(self.clock, lambda: self.store.log.appended_messages)
        self.statistics = Statistics(
            "DefaultCluster", self.clock, self.traffic, self.store, self.topics.is_system
        )
        self.settled = 0
        self.applied: list[BrokerConfig] = []
        self.filters = GroupFilters(self.config.filters, self.clock)
        self.clients = ClientHandler(
            self.members,
            self.topics,
            self.groups,
            self.clock,
            self.config.groups,
            self.filters,
        )
        parts = (
            self.clients,
            OffsetHandler(
                self.offsets,
                self.topics,
                self.groups,
                partial(first_offset, self.store.queues, self.store.reader),
                ReusedOffsets(self.store.queues, None),
                self.clock,
            ),
            LockHandler(LockTable(60.0), self.clock),
            ResetHandler(
                self.offsets,
                self.topics,
                self.groups,
                self.members,
                self.store,
                "broker-a",
                resets_here=lambda: self.config.offsets.reset_here,
                tell_pulls=lambda group, topic, queue_ids: None,
            ),
            ConsumerRelay(self.members, self.topics, self.groups, self.store.log, "broker-a"),
            QueueHandler(self.store.queues, self.members, self.filters),
            QueryHandler(self.store, self.topics),
            TopicHandler(
                self.topics,
                self.offsets,
                self.store,
                self.statistics,
                ReusedOffsets(self.store.queues, None),
                "broker-a",
                self._settle,
            ),
            GroupHandler(
                self.groups,
                self.topics,
                self.offsets,
                self.statistics,
                ReusedOffsets(self.store.queues, None),
                self._settle,
            ),
            ProgressHandler(
                self.groups,
                self.topics,
                self.offsets,
                self.members,
                self.store,
                self.statistics,
                self.clock,
                "broker-a",
                "127.0.0.1:30911",
            ),
            ConnectionHandler(self.members, self.offsets),
            ConfigurationHandler(self.config, self.clock, self.applied.append),
            RuntimeHandler(self.store, self.traffic, self.statistics, self.clock, self.disk.usage),
            StatisticsHandler(self.statistics),
            MaintenanceHandler(self.store, self.topics, self.offsets, self.statistics),
        )
        self.router = Router({code: route for part in parts for code, route in part.routes().items()})

    def connect(self, port: int = 4711) -> "Peer":
        return Peer(*connected(self.router.serve, peer=("127.0.0.1", port)))

    def put(self, topic: str, queue_id: int, count: int = 1, **pairs: str) -> list[int]:
        """Stores messages and returns their log offsets."""
        tag = pairs.get("TAGS")
        draft = Draft(
            queue=self.store.queues.queue(topic, queue_id),
            body=b"hello",
            properties=properties.pack(pairs).encode(),
            flag=0,
            sys_flag=0,
            born_timestamp=self.clock.now_ms(),
            born_host=HOST,
            tags_code=java_hash(tag) if tag else 0,
            unique_key=pairs.get("UNIQ_KEY", ""),
            keys=pairs.get("KEYS", ""),
        )
        return [self.store.log.append([draft])[0][0] for _ in range(count)]

    async def _settle(self) -> None:
        self.settled += 1


class Peer:
    """A client's end of a connection to the bench."""

    def __init__(self, connection: Connection, transport: RecordingTransport) -> None:
        self.connection = connection
        self.transport = transport

    async def ask(self, code: int, body: bytes = b"", **ext: Any) -> Command:
        """The answer; notices that came before it stay in `transport.writes`."""
        fields = {name: str(value) for name, value in ext.items()}
        return (await self.exchange([encode(Command(code, 1, ext=fields or None, body=body))]))[-1]

    async def exchange(self, frames: Iterable[bytes]) -> list[Command]:
        self.transport.writes.clear()
        self.connection.data_received(b"".join(frames))
        await turn()
        if not self.transport.writes:
            await asyncio.sleep(1)  # it waits for the disk
        return self.heard()

    def heard(self) -> list[Command]:
        return commands(b"".join(self.transport.writes))

    def leave(self) -> None:
        self.connection.connection_lost(None)
