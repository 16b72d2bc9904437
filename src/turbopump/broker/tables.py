"""The tables that a broker keeps beside its messages (topics, groups, offsets, …), and their files.

Which part uses which table is not known here.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

from turbopump.broker.config import BrokerConfig
from turbopump.broker.consume.filter_modules import FilterModules
from turbopump.broker.consume.filters import FILE as FILTER_FILE
from turbopump.broker.consume.filters import GroupFilters
from turbopump.broker.groups.groups import SubscriptionGroups
from turbopump.broker.groups.locks import LockTable
from turbopump.broker.groups.members import Members
from turbopump.broker.groups.offsets import FILE as OFFSETS_FILE
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.groups.request_modes import FILE as REQUEST_MODES_FILE
from turbopump.broker.groups.request_modes import RequestModes
from turbopump.broker.metrics.statistics import Statistics
from turbopump.broker.metrics.traffic import Traffic
from turbopump.broker.persist import PAUSE_S, PersistedTable
from turbopump.broker.storage import Storage
from turbopump.broker.topics import TopicTable
from turbopump.remoting.connection import Connection
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Workers
from turbopump.store.config_files import ConfigFiles

TOPICS_FILE = "topics.json"
GROUPS_FILE = "subscriptionGroup.json"


class Tables:
    """Holds the tables of a broker: topics, groups, offsets, filters, members, locks, statistics, …"""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: Storage,
        modules: FilterModules | None,
        members: Members[Connection],
    ) -> None:
        """`members` are the connected clients, which a change of the broker's role does not disconnect."""
        light = config.store.uses_light_queues
        self.topics = TopicTable(config.topics, config.identity, clock, light)
        self.groups = SubscriptionGroups(config.groups, clock, light)
        self.offsets = CommittedOffsets(config.offsets, clock, light)
        self.filters = GroupFilters(config.filters, clock, modules)
        self.request_modes = RequestModes()
        self.members = members
        self.locks = LockTable(config.groups.lock_ms / 1000)
        self.traffic = Traffic(clock, lambda: store.log.appended_messages)
        cluster = config.identity.cluster_name
        self.statistics = Statistics(cluster, clock, self.traffic, store, self.topics.is_system)

    def configure(self, config: BrokerConfig) -> None:
        """Gives the topic, group and filter tables a configuration that changed while the broker runs."""
        self.topics.configure(config.topics)
        self.groups.configure(config.groups)
        self.filters.configure(config.filters)

    def load(self, files: ConfigFiles) -> None:
        load(files, TOPICS_FILE, self.topics.load)
        load(files, GROUPS_FILE, self.groups.load)
        load(files, OFFSETS_FILE, self.offsets.load)
        if self.offsets.file_name != OFFSETS_FILE:
            load(files, self.offsets.file_name, self.offsets.load)
        load(files, FILTER_FILE, self.filters.load)
        load(files, REQUEST_MODES_FILE, self.request_modes.load)


class TableFiles:
    """Writes the tables of topics, groups, offsets, filters and request modes to files when they change.

    The listener of topics calls `topics.changed` itself.
    """

    def __init__(
        self,
        tables: Tables,
        files: ConfigFiles,
        workers: Workers,
        stack: AsyncExitStack,
        offsets_pause_s: float,
    ) -> None:
        self.publish: Callable[[str, bytes], Awaitable[None]] | None = None
        """Gets each table that was written; until it has returned, the change does not count as settled."""
        self._files, self._workers, self._stack = files, workers, stack
        offsets = tables.offsets
        self.topics = self._persisted(TOPICS_FILE, tables.topics.dump)
        self.groups = self._persisted(GROUPS_FILE, tables.groups.dump)
        tables.groups.on_change = self.groups.changed
        offsets.on_change = self._persisted(offsets.file_name, offsets.slices, offsets_pause_s).changed
        tables.filters.on_change = self._persisted(FILTER_FILE, tables.filters.dump).changed
        modes = tables.request_modes
        self.request_modes = self._persisted(REQUEST_MODES_FILE, modes.dump)
        modes.on_change = self.request_modes.changed

    def _persisted(
        self, name: str, dump: Callable[[], bytes | Iterator[bytes]], pause_s: float = PAUSE_S
    ) -> PersistedTable:
        persisted = PersistedTable(name, dump, self._files.save, self._workers, pause_s, self._published)
        self._stack.push_async_callback(persisted.close)
        return persisted

    async def _published(self, name: str, contents: bytes) -> None:
        if self.publish is not None:
            await self.publish(name, contents)


def load(files: ConfigFiles, name: str, take: Callable[[bytes], int]) -> None:
    """Calls `take` with the bytes of a configuration file, or with those of its backup if `take` raises."""

    def valid(data: bytes) -> bool:
        take(data)
        return True

    files.load(name, valid)
