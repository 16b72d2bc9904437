"""A broker of a simulated cluster, with its own host, disk and clock, and its log as the disk has it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol

from tests.simulation.cluster.history import CONSUMERS

from turbopump.broker.config import BrokerConfig, load
from turbopump.broker.part import Context
from turbopump.broker.server import Broker
from turbopump.protocol.record import Record, decode, measure
from turbopump.runtime.chance import Chance
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork
from turbopump.testing.simulated_files import SimulatedFile, Survival

PORT = 10911
TOPIC = "T"
ASIDE_DIR = "/store/set-aside"

running: ContextVar[str] = ContextVar("running", default="world")
"""Name of the node that a task belongs to: a killed process takes its tasks along."""


class NodeClock(VirtualClock):
    """The clock of one machine: its wall clock may be set, its monotonic one goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._set_by_ms = 0
        self._set_back: list[tuple[float, int]] = []

    def now_ms(self) -> int:
        return super().now_ms() + self._set_by_ms

    def jump(self, milliseconds: int) -> None:
        self._set_by_ms += milliseconds
        if milliseconds < 0:
            self._set_back.append((self.monotonic(), -milliseconds))

    def set_back_ms(self, last_s: float) -> int:
        """Returns by how much the clock was set back in the last seconds."""
        return sum(by_ms for at, by_ms in self._set_back if at >= self.monotonic() - last_s)


class _OpenBroker(Broker):
    """A broker that shows its tables, before its parts are built."""

    on_open: Callable[[Context], None]

    async def _context(self, stack: contextlib.AsyncExitStack, *ground: Any) -> Context:
        context = await super()._context(stack, *ground)
        self.on_open(context)
        return context


class Machines(Protocol):
    """What the nodes of a world share."""

    @property
    def chance(self) -> Chance: ...
    @property
    def network(self) -> MemoryNetwork: ...
    @property
    def tasks(self) -> dict[str, list[asyncio.Task[Any]]]: ...


class Node:
    """One broker; it can be stopped, killed, crash with its machine, lose its disk, and start again."""

    log_prefix = "/store/commitlog/"

    def __init__(self, world: Machines, pair: str, name: str, ip: str, common: str) -> None:
        self.pair = pair
        self.name = name
        self.ip = ip
        self.address = f"{ip}:{PORT}"
        self.role = "SLAVE"
        self.broker_id = 1
        self.clock = NodeClock()
        self.disk = SimulatedDisk(world.chance, self.clock)
        self.broker: Broker | None = None
        self.life = 0
        self.is_machine_down = False
        """Whether its last stop was a crash of the machine, after which a part of the log may be gone."""
        self.is_new = False
        """Whether its disk was replaced by an empty one."""
        self.crashed_at = 0.0
        self.opened_end = 0
        """Where its log ended when it was opened: after that, delayed messages may be delivered at once."""
        self.opened_at = 0.0
        """When its log was opened: it answers requests before its start has ended."""
        self.on_open: Callable[[Node, Store], None] | None = None
        """Called with the store when it was opened."""
        self._world = world
        self._common = common
        self.file_size = self.config.store.commit_log_file_size

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    @property
    def is_master(self) -> bool:
        return self.role != "SLAVE"

    @property
    def store(self) -> Store:
        assert self.broker is not None, f"{self.name} does not run"
        assert self.broker._store is not None, f"{self.name} does not run"
        return self.broker._store

    @property
    def config(self) -> BrokerConfig:
        own = f"brokerName={self.pair}\nbrokerIP1={self.ip}\n"
        role = f"brokerRole={self.role}\nbrokerId={self.broker_id}\n"
        return load(self._common + own + role).config

    async def start(self) -> None:
        """Starts the broker in its present role."""
        world = self._world
        self.life += 1
        self.workers = SimulatedWorkers(self.disk)
        network = world.network.at(self.ip)
        broker = _OpenBroker(
            self.config, network, self.clock, self.disk, self.workers, world.chance, lambda: self.ip
        )
        broker.on_open = self._opened
        token = running.set(self.name)
        try:
            await asyncio.create_task(broker.start())
        finally:
            running.reset(token)
        self.broker = broker

    def _opened(self, context: Context) -> None:
        self.tables = context.tables
        self.opened_end = context.store.log.end
        self.opened_at = self.clock.monotonic()
        if self.on_open is not None:
            self.on_open(self, context.store)

    def committed(self, group: str = CONSUMERS) -> dict[int, int]:
        """Returns by queue what the readers of a group have committed here."""
        return self.tables.offsets.of_group(group, TOPIC)

    def queue_ends(self) -> dict[int, int]:
        """Returns where the queues of the topic end."""
        return {queue.queue_id: queue.max_offset for queue in self.store.queues.of(TOPIC)}

    def topics(self) -> dict[str, int]:
        """Returns the topics without messages, and how many queues they have."""
        names = self.tables.topics.registrations().topicConfigTable
        return {name: topic.writeQueueNums for name, topic in names.items() if name.startswith("made-")}

    async def stop(self) -> None:
        """Stops the broker in order."""
        if self.broker is not None:
            broker, self.broker = self.broker, None
            await broker.stop()
            self._world.tasks.pop(self.name, None)

    async def die(self, survival: Survival) -> None:
        """Ends the process at once; with it the machine, unless `survival` keeps the memory of the system."""
        self.broker = None
        self._world.network.unplug(self.ip)
        self.disk = self.disk.crash(survival)
        self.is_machine_down = survival is not Survival.KEPT
        tasks = [task for task in self._world.tasks.pop(self.name, []) if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def replace_disk(self) -> None:
        """Gives the machine an empty disk."""
        self.disk = SimulatedDisk(self._world.chance, self.clock)
        self.is_machine_down, self.is_new = False, True

    # the files of its log

    @property
    def first_offset(self) -> int:
        """Where the log begins, by the names of its files; 0 without a file."""
        paths = (path for path in self.disk._names.nodes if path.startswith(self.log_prefix))
        return min((int(path.removeprefix(self.log_prefix)) for path in paths), default=0)

    def holds(self, offset: int, record: bytes) -> bool:
        """Whether the files of the log have these bytes."""
        at = offset % self.file_size
        file = self.disk._names.nodes.get(self._path(offset - at))
        return file is not None and file.pages[at : at + len(record)] == record

    def bytes_at(self, offset: int) -> bytes | None:
        """Returns the record at an offset as the files have it."""
        at = offset % self.file_size
        file = self.disk._names.nodes.get(self._path(offset - at))
        if file is None or self._is_unfinished(file):
            return None
        size = measure(file.pages, at, self.file_size, True)
        return None if size <= 0 else bytes(file.pages[at : at + size])

    def _is_unfinished(self, file: SimulatedFile) -> bool:
        """Whether a crash took the length of a file made ahead: it has no record, and a start removes it."""
        return len(file.pages) < self.file_size

    def modified_ms(self, start: int) -> int:
        """Returns when the file of the log that begins at `start` was written last."""
        file = self.disk._names.nodes[self._path(start)]
        file.note_change()
        return file.modified_ms

    def log(self, until: int | None = None) -> Iterator[tuple[Record, bytes]]:
        """Yields the records of the log with their bytes, as the files have them; those before `until`."""
        offset, file_size = self.first_offset, self.file_size
        while (file := self.disk._names.nodes.get(self._path(offset - offset % file_size))) is not None:
            at = offset % file_size
            if self._is_unfinished(file) or (until is not None and offset >= until):
                return
            size = measure(file.pages, at, file_size, True)
            if size < 0:
                return
            if size == 0:
                offset += file_size - at
                continue
            record = decode(file.pages, at)
            if record.physical_offset != offset:
                return
            yield record, bytes(file.pages[at : at + size])
            offset += size

    def aside(self) -> bytes:
        """All bytes of the log that were set aside."""
        files = self.disk._names.nodes.items()
        return b"".join(bytes(file.pages) for path, file in files if path.startswith(ASIDE_DIR))

    def _path(self, start: int) -> str:
        return f"{self.log_prefix}{start:020d}"
