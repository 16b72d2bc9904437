"""A broker of a simulated DLedger group, and its log of entries as the disk has it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from tests.simulation.cluster.node import Machines, Node

from turbopump.broker.config import BrokerConfig, load
from turbopump.broker.dledger.member import GroupMember
from turbopump.broker.part import Context
from turbopump.protocol.dledger.entry import END_OF_FILE, HEAD_SIZE, measure
from turbopump.protocol.record import Record, decode
from turbopump.testing.disk import PowerCut
from turbopump.testing.simulated_files import Survival

INDEX_UNITS = 500  # of a file of the entry index


class GroupMachines(Machines, Protocol):
    """What the members of a world share."""

    def dying(self, ip: str) -> contextlib.AbstractContextManager[None]:
        """Nothing passes to or from this host meanwhile, and what its process raises does not count."""


class MemberNode(Node):
    """One broker of the group; it serves as master while its member leads."""

    def __init__(self, world: GroupMachines, group: str, name: str, ip: str, common: str) -> None:
        self._machines = world
        self.log_prefix = f"/store/dledger-{name}/data/"
        self.on_lead: Callable[[MemberNode], None] = lambda node: None
        """Called when the tables of a new master are loaded, before it serves."""
        super().__init__(world, group, name, ip, common)

    @property
    def config(self) -> BrokerConfig:
        own = f"brokerName={self.pair}\nbrokerIP1={self.ip}\ndLegerSelfId={self.name}\n"
        config = load(self._common + own).config
        # A file of the index that is as large as on a real disk takes most of the time of a world.
        return replace(config, store=replace(config.store, dledger_index_units=INDEX_UNITS))

    @property
    def is_master(self) -> bool:
        return self.broker is not None and not self.broker.config.identity.is_slave

    @property
    def member(self) -> GroupMember:
        assert self.broker is not None, f"{self.name} does not run"
        assert self.broker.member is not None, f"{self.name} is in no group"
        return self.broker.member

    @property
    def has_joined(self) -> bool:
        return self.broker is not None and self.member.server.status().joined

    def _opened(self, context: Context) -> None:
        super()._opened(context)
        if not context.is_slave:
            self.on_lead(self)

    async def die(self, survival: Survival) -> None:
        """Ends the process at once; with it the machine, unless `survival` keeps the memory of the system."""
        broker, self.broker = self.broker, None
        assert broker is not None, f"{self.name} does not run"
        self._world.network.unplug(self.ip)
        self.disk = self.disk.crash(survival)
        with self._machines.dying(self.ip), contextlib.suppress(PowerCut, Exception):
            await broker.stop()

    def log(self, until: int | None = None) -> Iterator[tuple[Record, bytes]]:
        """Yields the records of the entries and their bytes, as the files have them; those before `until`."""
        offset, file_size = self.first_offset, self.file_size
        while (file := self.disk._names.nodes.get(self._path(offset - offset % file_size))) is not None:
            at = offset % file_size
            if until is not None and offset >= until:
                return
            size = measure(file.pages, at, file_size, True)
            if size < 0:
                return
            if size == END_OF_FILE:
                offset += file_size - at
                continue
            yield decode(file.pages, at + HEAD_SIZE), bytes(file.pages[at + HEAD_SIZE : at + size])
            offset += size
