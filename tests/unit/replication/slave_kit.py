"""A slave over a small store, and a master that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from tests.unit.replication.ha_peers import HA_PORT, MASTER_IP, RUN
from tests.unit.store.lab import fill, new_disk, open_store, small

from turbopump.protocol import ha
from turbopump.replication.comparison import Extent, Relation, Verdict
from turbopump.replication.progress import CopyProgress
from turbopump.replication.slave import MasterAddress, Slave, SlaveState, SlaveTimings
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork

ADDRESS = MasterAddress(f"{MASTER_IP}:10911", f"{MASTER_IP}:{HA_PORT}")
FILE = 4096


class PlayedMaster(asyncio.Protocol):
    """One connection of a master, which sends what the test says."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.reader = ha.ReportReader()
        self.reports: list[ha.Report] = []
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._bench.connections.append(self)
        if self._bench.sends_at_once is not None:
            self.send(*self._bench.sends_at_once())

    def data_received(self, data: bytes) -> None:
        if (report := self.reader.feed(data)) is not None:
            self.reports.append(report)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def send(self, offset: int, data: bytes) -> None:
        """Sends a part, or several: none is larger than 3000 bytes."""
        for at in range(0, len(data), 3000):
            piece = data[at : at + 3000]
            self.transport.write(ha.encode_part_head(offset + at, len(piece)) + piece)


class Bench:
    """A slave over a small store, with a comparison and a broker around it that the test plays."""

    def __init__(self, log: Store | None = None, run: int | None = RUN) -> None:
        self.clock = VirtualClock()
        self.disk = new_disk()
        self.disk.clock = self.clock
        self.workers = SimulatedWorkers(self.disk)
        self.store = Store.open(small(), self.disk, self.clock, self.workers)
        self.network = MemoryNetwork()
        self.connections: list[PlayedMaster] = []
        self.sends_at_once: Callable[[], tuple[int, bytes]] | None = None
        self.log = log or open_store(new_disk())
        self.run_number = run
        self.verdict: Callable[[], Verdict] = self.copy_of_log
        self.address: Callable[[], MasterAddress | None] = lambda: ADDRESS
        self.take: Callable[[str, bytes], None] = lambda name, contents: None
        self.aside: Callable[[], Any] = self._set_aside
        self.changes: list[SlaveState] = []
        self.saved: list[bytes] = []
        self.progress = CopyProgress(self.saved.append, self.clock.monotonic)
        this = cast(Any, self)
        host = self.network.at("10.0.0.2")
        rules = SlaveTimings()
        self.slave = Slave(self.store.replica, this, self.progress, this, host, self.clock, rules)

    # the comparison

    async def compare(self, address: str) -> Verdict:
        return self.verdict()

    def copy_of_log(self) -> Verdict:
        replica, extent = self.store.replica, Extent(self.log.log.min_offset, self.log.log.end)
        if replica.is_empty:
            return Verdict(Relation.EMPTY, extent.begin, extent, self.run_number, FILE)
        return Verdict(Relation.COPY, replica.end, extent, self.run_number, FILE)

    # the broker around the slave

    def master(self) -> MasterAddress | None:
        return self.address()

    def table(self, name: str, contents: bytes, counted: int | None = None) -> None:
        self.take(name, contents)

    def changed(self, state: SlaveState) -> None:
        self.changes.append(state)

    async def set_aside(self) -> list[str]:
        return cast(list[str], await self.aside())

    async def _set_aside(self) -> list[str]:
        return await self.store.upkeep.set_log_aside()

    # life

    async def __aenter__(self) -> Bench:
        await self.store.start()
        self.store.replica.open()
        self.listener = await self.network.at(MASTER_IP).listen(lambda: PlayedMaster(self), "", HA_PORT)
        self.task = asyncio.ensure_future(self.slave.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert not self.task.done(), "the loop of a slave never ends by itself"
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.store.close()

    async def until(self, state: SlaveState, within_s: float = 60.0) -> None:
        async with asyncio.timeout(within_s):
            while self.slave.state is not state:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)

    async def connected(self, count: int = 1) -> PlayedMaster:
        async with asyncio.timeout(60):
            while len(self.connections) < count:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)
        return self.connections[-1]


def log_of(count: int = 60) -> Store:
    store = open_store(new_disk())
    fill(store, count)
    return store
