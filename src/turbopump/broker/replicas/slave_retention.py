"""Keeps the files of a slave's log that its master still has: a guard of `store/retention.py`.

Delayed messages, half messages and timers may wait in a file long after it has expired; a master rewrites
them before it deletes the file. A slave cannot do that, so it deletes a file only when its master has: what
waited in it is then further on in the log, and the file goes when that part is here as well. While the master
cannot be asked, nothing is deleted. Only on a full disk the slave deletes what it needs to go on: with a
warning, and as a copy that is incomplete.
"""

import logging
from collections.abc import Callable

from turbopump.replication.comparison import CannotCompare, Extent, LogComparison
from turbopump.replication.progress import CopyProgress
from turbopump.replication.slave import Slave, SlaveState
from turbopump.store.replica_log import ReplicaLog

log = logging.getLogger(__name__)


class SlaveRetention:
    """Answers whether a slave may delete the beginning of its log."""

    def __init__(
        self,
        slave: Slave,
        comparison: LogComparison,
        replica: ReplicaLog,
        progress: CopyProgress,
        is_disk_full: Callable[[], bool],
    ) -> None:
        self._slave = slave
        self._comparison = comparison
        self._replica = replica
        self._progress = progress
        self._is_disk_full = is_disk_full
        self._known: tuple[str, Extent] | None = None  # address of a master, and what it said last
        self._kept = -1

    async def may_delete(self, below: int) -> bool:
        """Returns whether the log below an offset may go: the master has deleted it, or the disk is full."""
        # The last answer first: what the master had when it gave it is likely to be here by now.
        if self._has_gone(below):
            return True
        why = await self._ask()
        if self._has_gone(below):
            return True
        if self._is_disk_full():
            self._delete_early(below, why)
            return True
        if self._kept != below:
            self._kept = below
            log.info("Keeping the expired log before %d: %s", below, why)
        return False

    def _has_gone(self, below: int) -> bool:
        """Whether the master has deleted its log below an offset, and all that it had then is here."""
        master = self._slave.master
        if self._known is None or master is None or self._known[0] != master.broker:
            return False
        extent = self._known[1]
        return below <= extent.begin and extent.end <= self._replica.dispatched

    async def _ask(self) -> str:
        """Asks the master where its log begins. Returns why the log before is kept if that does not help."""
        slave = self._slave
        if slave.master is None or slave.state not in (SlaveState.COPYING, SlaveState.FOLLOWING):
            return "the master, which may still have it, cannot be asked"
        address = slave.master.broker
        try:
            extent = await self._comparison.extent(address, slave.is_ours)
        except CannotCompare as error:
            return str(error)
        self._known = address, extent
        self._progress.master_begins(extent.begin)
        return f"the log of the master at {address} begins at {extent.begin}"

    def _delete_early(self, below: int, why: str) -> None:
        log.warning(
            "The disk is full: deleting the log before %d, with messages that may still wait there. %s. This "
            "slave is incomplete until its master has deleted that part, too",
            *(below, why[:1].upper() + why[1:]),
        )
        self._progress.deleted_early(below)
