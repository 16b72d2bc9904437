"""The broker around a slave: finds the master, and takes its tables.

In: tables of the master, as the contents of the files that keep them. Out: tables of this broker that equal
the master's, on disk too. Commits made here while the master is away are in `slave_commits.py`, the copying
of the log is in `replication/slave.py`.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from turbopump.broker.config import BrokerConfig
from turbopump.broker.consume.filters import FILE as FILTER_FILE
from turbopump.broker.consume.slave_reused_offsets import SlaveReusedOffsets
from turbopump.broker.delay import levels
from turbopump.broker.delay.levels import FILE as DELAY_FILE
from turbopump.broker.groups.offsets import end_of_queue
from turbopump.broker.groups.request_modes import FILE as REQUEST_MODES_FILE
from turbopump.broker.persist import PersistedTable
from turbopump.broker.registration import NameServerRegistration
from turbopump.broker.replicas.given_offsets import GivenOffsetSender
from turbopump.broker.replicas.moved_offsets import FILE as MOVED_OFFSETS
from turbopump.broker.replicas.moved_offsets import rows_of
from turbopump.broker.replicas.progress_files import TRANSACTION_FILE, RoleChange
from turbopump.broker.replicas.slave_commits import SlaveCommits
from turbopump.broker.storage import Storage
from turbopump.broker.tables import GROUPS_FILE, TOPICS_FILE, Tables
from turbopump.broker.transactions.transactions import GROUP as TRANSACTION_GROUP
from turbopump.protocol.addresses import HA_PORT_STEP, join_address, split_address
from turbopump.remoting.client import Client
from turbopump.replication.slave import MasterAddress, SlaveState
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Workers
from turbopump.store.config_files import ConfigFiles

log = logging.getLogger(__name__)

# Between two questions to the name servers while no master answers: each registers the whole topic table.
FIRST_REFRESH_S = 0.1
MAX_REFRESH_S = 2.0

EMPTY: Mapping[str, Callable[[bytes], None]] = MappingProxyType({})


class SlaveBroker:
    """Tells a slave where its master is and takes the master's tables (`replication.slave.SlaveListener`)."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        tables: Tables,
        files: ConfigFiles,
        registration: NameServerRegistration,
        client: Client,
        store: Storage,
        workers: Workers,
        clock: Clock,
        role: RoleChange,
        reused: SlaveReusedOffsets,
        master_seen: Callable[[bool], None],
        more_tables: Mapping[str, Callable[[bytes], None]] = EMPTY,
    ) -> None:
        """`master_seen` is called with whether consumers find the master, when that may have changed.

        `more_tables` take further tables of the master, by name.
        """
        self.state = SlaveState.SEARCHING
        self._config = config
        self._tables = tables
        self._registration = registration
        self._store = store
        self._clock = clock
        self._role = role
        self._reused = reused
        self._ask_at = 0.0
        self._refresh_s = FIRST_REFRESH_S
        self._commits = SlaveCommits(files, workers, client, clock, partial(end_of_queue, store.queues))
        self._given = GivenOffsetSender(reused, client, clock)
        self._master_seen = master_seen
        reused.log_differs(role.progress.state.differs)
        self._known: dict[str, bytes] = {}  # the last contents of each table
        self._takes: dict[str, Callable[[bytes], None]] = {
            TOPICS_FILE: tables.topics.copy,
            GROUPS_FILE: tables.groups.copy,
            tables.offsets.file_name: self._take_offsets,
            MOVED_OFFSETS: self._take_moved_offsets,
            FILTER_FILE: self._take_filters,
            REQUEST_MODES_FILE: self._take_request_modes,
            DELAY_FILE: lambda contents: self._take_progress(DELAY_FILE, contents),
            TRANSACTION_FILE: lambda contents: self._take_progress(TRANSACTION_FILE, contents),
            **more_tables,
        }
        self._progress = {
            name: PersistedTable(name, partial(self._known.__getitem__, name), files.save, workers)
            for name in (DELAY_FILE, TRANSACTION_FILE)
        }
        tables.offsets.on_commit = self._commits.committed

    # of SlaveListener

    def master(self) -> MasterAddress | None:
        """Returns where the master is, by configuration or name servers, which it may ask; None: unknown."""
        now = self._clock.monotonic()
        if self.state is SlaveState.SEARCHING and now >= self._ask_at:
            self._ask_at = now + self._refresh_s
            self._refresh_s = min(2 * self._refresh_s, MAX_REFRESH_S)
            self._registration.refresh()
        fixed, known = self._config().replication.master_address, self._registration.master
        if not fixed:
            return None if known is None else MasterAddress(*known)
        return _guessed(fixed) if known is None else MasterAddress(known[0], fixed)

    def changed(self, state: SlaveState) -> None:
        self.state = state
        self._reused.log_differs(self._role.progress.state.differs)
        follows = state in (SlaveState.COPYING, SlaveState.FOLLOWING)
        if follows:
            self._refresh_s = FIRST_REFRESH_S
        master = self.master() if follows else None
        address = None if master is None else master.broker
        self._commits.follow(address)
        # Consumers are sent to the master when it knows which offsets they were given here.
        self._given.follow(address, lambda: self._master_seen(True))
        # A slave that has stopped has compared its log with the master's: the master serves consumers.
        if address is None:
            self._master_seen(state is not SlaveState.SEARCHING)

    def table(self, name: str, contents: bytes, counted: int | None = None) -> None:
        """Replaces a table by the master's `contents`, if they are new. Raises BrokenBody if unreadable."""
        take = self._takes.get(name)
        if counted is not None and name == DELAY_FILE:
            contents = levels.with_log_offset(contents, counted)
        if take is not None and self._known.get(name) != contents:
            take(contents)
            self._known[name] = contents

    async def set_aside(self) -> list[str]:
        """Moves all files of the log aside and forgets the progress that belongs to it; returns the files."""
        kept = await self._store.upkeep.set_log_aside()
        self._role.begin_slave(self._tables.offsets, self._store.log.end)
        self._commits.lower()
        self._reused.log_replaced()
        for name in self._progress:
            self._known.pop(name, None)
        return kept

    # tables

    def _take_offsets(self, contents: bytes) -> None:
        """Replaces the committed offsets by the master's; commits made here that the master lacks stay.

        Where the master's log has lost messages is saved before what was written since is copied: this slave
        may be promoted with it.
        The progress of transactions comes separately, behind the part of the log that it counts.
        """
        offsets = self._tables.offsets
        offsets.load(contents)
        self._commits.master_has(offsets.query)
        self._role.progress.learn_crashes(offsets.crashes)
        self._reused.learn(offsets.crashes)
        offsets.forget_group(TRANSACTION_GROUP)
        offsets.copied(self._commits.pending)

    def _take_moved_offsets(self, contents: bytes) -> None:
        """Takes offsets that were committed at the master since its table was saved."""
        offsets = self._tables.offsets
        offsets.adopt(row for row in rows_of(contents) if row[0] != TRANSACTION_GROUP)
        self._known.pop(offsets.file_name, None)  # the same table means another change now
        self._commits.master_has(offsets.query)
        offsets.copied(self._commits.pending)

    def _take_filters(self, contents: bytes) -> None:
        self._tables.filters.load(contents)
        self._tables.filters.on_change()

    def _take_request_modes(self, contents: bytes) -> None:
        self._tables.request_modes.load(contents)
        self._tables.request_modes.on_change()

    def _take_progress(self, name: str, contents: bytes) -> None:
        """Saves the master's progress of delays or transactions to a file, for when this broker is master."""
        self._known[name] = contents
        self._progress[name].changed()

    async def close(self) -> None:
        await self._commits.close()
        await self._given.close()
        for table in self._progress.values():
            await table.close()


def _guessed(ha: str) -> MasterAddress:
    """Returns a master by its replication port alone: its main port is the one below, unless configured."""
    host, port = split_address(ha)
    broker = join_address(host, port - HA_PORT_STEP)
    return MasterAddress(
        broker,
        ha,
        f"{broker} is a guess: no name server has told where the master of haMasterAddress={ha} is. If its "
        f"haListenPort is not its listenPort + {HA_PORT_STEP}, set namesrvAddr on both",
    )
