"""Played masters and slaves on the in-memory network, for one side of replication alone."""

from __future__ import annotations

import asyncio
from typing import cast

from turbopump.protocol import ha
from turbopump.protocol.ha import TableFile
from turbopump.replication.copies import Copies
from turbopump.replication.master import Admit, Master, MasterRules, Table, admit_all
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork

MASTER_IP, HA_PORT = "10.0.0.1", 10912
RUN = 77


class PlayedLog:
    """The log of a master, as bytes."""

    def __init__(self, end: int = 0, begin: int = 0, file_size: int = 1 << 20) -> None:
        self.min_offset = begin
        self.file_size = file_size
        self.data = bytearray(end)
        self.cold: set[int] = set()  # starts of files that have to be read first
        self.fetches = 0
        self.fails = False

    @property
    def end(self) -> int:
        return len(self.data)

    def grow(self, data: bytes) -> None:
        self.data += data

    def missing(self, begin: int, size: int) -> list[tuple[str, int, int]]:
        start = begin - begin % self.file_size
        return [("file", begin, size)] if start in self.cold else []

    async def fetch(self, places: list[tuple[str, int, int]]) -> None:
        self.fetches += 1
        await asyncio.sleep(0.01)
        if self.fails:
            raise OSError("the disk cannot be read")
        for _, begin, _ in places:
            self.cold.discard(begin - begin % self.file_size)

    def slice(self, begin: int, end: int) -> bytes:
        assert begin // self.file_size == (end - 1) // self.file_size, (
            "a part never crosses the end of a file"
        )
        return bytes(self.data[begin:end])


class PlayedSlave(asyncio.Protocol):
    """Says what the test says, and keeps what the master sends."""

    def __init__(self, takes_tables: bool = False) -> None:
        self.parts: list[tuple[int, int]] = []
        self.data = bytearray()
        self.tables: list[tuple[str, bytes, int]] = []
        """Name and contents of each table, and how many bytes of the log came before it."""
        self.is_lost = False
        self._reader = ha.PartReader(takes_tables)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for found in self._reader.feed(data):
            if isinstance(found, ha.SentPart):
                self.parts.append((found.offset, found.size))
            elif isinstance(found, TableFile):
                self.tables.append((found.name, found.contents, len(self.data)))
            else:
                self.data += found

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def report(self, end: int, synced: int | None = None) -> None:
        if synced is None:
            self.transport.write(ha.encode_report(end))
        else:
            self.transport.write(ha.encode_disk_report(end, synced))

    def greet(self, start: int, run: int = RUN, broker_id: int = 1) -> None:
        self.transport.write(ha.encode_greeting(ha.Greeting(run, start, broker_id)))


class MasterBench:
    """A master over a played log."""

    def __init__(
        self,
        log: PlayedLog,
        rules: MasterRules | None = None,
        admit: Admit = admit_all,
        tables: tuple[Table, ...] = (),
    ) -> None:
        self.log = log
        self.clock = VirtualClock()
        self.network = MemoryNetwork()
        self.copies = Copies()
        host = self.network.at(MASTER_IP)
        self.master = Master(
            log, self.copies, host, self.clock, rules or MasterRules(), RUN, admit, lambda: tables
        )

    async def start(self) -> None:
        await self.master.start("", HA_PORT)

    async def slave(self, takes_tables: bool = False, ip: str = "10.0.0.2") -> PlayedSlave:
        slave = PlayedSlave(takes_tables)
        await self.network.at(ip).connect(lambda: slave, MASTER_IP, HA_PORT)
        return slave

    def append(self, data: bytes) -> None:
        self.log.grow(data)
        self.master.grown()
