"""The broker around a follower of a DLedger group: where its leader is, and the leader's tables.

In: tables from the log of the group, or from an Apache leader, which keeps them out of the log. Out: tables
of this broker that equal the leader's, on disk too, and commits of consumers that are brought to the leader.
"""

import logging
from collections.abc import Callable

from turbopump.broker.dledger.member import GroupMember
from turbopump.broker.dledger.table_copies import TableCopies
from turbopump.broker.dledger.table_records import Table
from turbopump.broker.dledger.topic_changes import CHANGED_TOPICS
from turbopump.broker.replicas.slave_broker import SlaveBroker
from turbopump.broker.tables import Tables
from turbopump.replication.metadata import INTERVAL_S, MetadataPuller
from turbopump.replication.slave import MasterAddress, SlaveState
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Workers

log = logging.getLogger(__name__)

LOOK_S = 0.5  # between two looks at who leads


class FollowerBroker(SlaveBroker):
    """Knows the leader's address from its tables, or from the name servers if Apache's broker leads."""

    leader_address: str | None = None

    def master(self) -> MasterAddress | None:
        if self.leader_address is not None:
            return MasterAddress(self.leader_address, self.leader_address)
        return super().master()


class LeaderTables:
    """Copies the leader's tables, whichever way it offers them, while this member follows."""

    def __init__(
        self,
        member: GroupMember,
        copies: TableCopies,
        broker: FollowerBroker,
        puller: MetadataPuller,
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._member = member
        self._copies = copies
        self._broker = broker
        self._puller = puller
        self._workers = workers
        self._clock = clock
        self._told: str | None = None

    async def run(self) -> None:
        """Follows the leader; asks one of Apache's for its tables at intervals."""
        pull_at = 0.0
        while True:
            server = self._member.server
            has_leader = server.leader is not None
            has_tables = self._copies.term == server.term
            self._broker.leader_address = self._copies.address if has_tables else None
            self._tell(has_leader)
            if self.is_apache and self._clock.monotonic() >= pull_at:
                await self._pull()
                pull_at = self._clock.monotonic() + INTERVAL_S
            await self._clock.sleep(LOOK_S)

    @property
    def is_apache(self) -> bool:
        """Whether an Apache broker leads: it writes no tables to the log."""
        server = self._member.server
        return server.leader is not None and not server.is_leader_ours

    def _tell(self, has_leader: bool) -> None:
        """Has commits and consumers go to the leader that is known now, if it is another one than before."""
        master = self._broker.master()
        address = master.broker if has_leader and master is not None else None
        if address == self._told:
            return
        if self._told is not None:
            self._broker.changed(SlaveState.SEARCHING)
        if address is not None:
            self._broker.changed(SlaveState.FOLLOWING)
        self._told = address

    async def _pull(self) -> None:
        master = self._broker.master()
        if master is not None:
            # First: tables in the log that are older must not replace what is copied now.
            await self._workers.run(self._copies.ignore_before)
            await self._puller.pull(master.broker)


def take_into(tables: Tables, broker: SlaveBroker) -> Callable[[Table], None]:
    """Returns what takes a table of the log into the tables of a follower."""

    def take(table: Table) -> None:
        if table.name == CHANGED_TOPICS:
            tables.topics.merge(table.contents)
        else:
            broker.table(table.name, table.contents)

    return take
