"""What a store must not believe when its role changes: progress that is ahead of its log.

Delays, timers and transactions keep how far they are in files, and read the log from there on. The files of a
slave come from its master, or from the time when this broker was a master itself: after its log was cut, or
when a master died whose last records did not get here, they may name records that this log does not have. All
of it can be found again in the log, which only takes longer. So progress counts only as far as the log of
this store reaches; the rest is forgotten when the store is opened.
"""

import logging
import os

import msgspec

from turbopump.broker.delay.levels import FILE as DELAY_FILE
from turbopump.broker.delay.timers import FILE as TIMER_FILE
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.transactions.transactions import GROUP as TRANSACTION_GROUP
from turbopump.broker.transactions.transactions import QUEUE
from turbopump.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from turbopump.replication.progress import FILE as REPLICA_FILE
from turbopump.replication.progress import CopyProgress
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Disk
from turbopump.store.config_files import ConfigFiles

log = logging.getLogger(__name__)

TRANSACTION_FILE = "transactionProgress.json"
TIMER_PARTS = ("timerlog", "timerwheel")
CRASHED = "it has crashed since it was last compared with its master, and may have lost the end of its log"


class _LogOffset(msgspec.Struct):
    logOffset: int | None = None  # noqa: N815 - as in delayOffset.json


class TransactionProgress(msgspec.Struct):
    """How far a master had closed its half messages when its log ended at `logOffset`."""

    half: int
    op: int
    logOffset: int  # noqa: N815


def transaction_progress(offsets: CommittedOffsets, end: int) -> bytes | None:
    """Returns the progress of transactions for slaves, of a log that ends at `end`; None: there is none."""
    half = offsets.query(TRANSACTION_GROUP, HALF_TOPIC, QUEUE)
    op = offsets.query(TRANSACTION_GROUP, OP_HALF_TOPIC, QUEUE)
    return None if half < 0 else msgspec.json.encode(TransactionProgress(half, op, end))


class RoleChange:
    """Prepares the files of a store for the role in which it is opened."""

    def __init__(self, files: ConfigFiles, disk: Disk, root_dir: str, clock: Clock) -> None:
        self.progress = CopyProgress(lambda data: files.save(REPLICA_FILE, data), clock.monotonic)
        self._files = files
        self._disk = disk
        self._root = root_dir

    def begin_slave(self, offsets: CommittedOffsets, end: int, has_crashed: bool = False) -> None:
        """Prepares a store for copying: removes timer files, and progress counted beyond the log's `end`.

        Also called after the log was shortened.
        """
        if not self.progress.is_kept or self.progress.state.promoted_at >= 0:
            self.progress.demoted()
            self.progress.is_kept = True
        elif has_crashed and self.progress.state.is_compared and not self.progress.state.doubt:
            self.progress.doubt(CRASHED)
        offsets.forget_group(TRANSACTION_GROUP)
        for name in (DELAY_FILE, TRANSACTION_FILE):
            self._forget_beyond(name, end)
        self._files.remove(TIMER_FILE)
        for part in TIMER_PARTS:
            path = os.path.join(self._root, part)
            if self._disk.exists(path):
                self._disk.remove_tree(path)
        self._disk.sync_dir(self._root)

    @property
    def is_promotion(self) -> bool:
        """Whether this store was last that of a slave; asked by a master at its start."""
        return self.progress.is_kept and self.progress.state.promoted_at < 0

    def lost_from(self, end: int) -> int:
        """Returns the log offset from which on consumers may know other messages than a promoted store has.

        That is the `end` of its log, or 0 when it was found to hold other records than its last master's.
        """
        return 0 if self.progress.state.differs else end

    def begin_promoted(self, offsets: CommittedOffsets, end: int) -> None:
        """Commits transaction progress that a master pushed; removes progress that counts beyond `end`."""
        offsets.forget_group(TRANSACTION_GROUP)
        for name in (DELAY_FILE, TRANSACTION_FILE):
            self._forget_beyond(name, end)
        if (data := self._files.load(TRANSACTION_FILE)) is not None:
            found = msgspec.json.decode(data, type=TransactionProgress)
            offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, QUEUE, found.half)
            offsets.commit(TRANSACTION_GROUP, OP_HALF_TOPIC, QUEUE, found.op)

    def promoted(self, end: int, is_elected: bool = False) -> None:
        """Notes that everything is prepared: the next start is that of a master again.

        `is_elected`: by its DLedger group, which is nothing to warn of.
        """
        self.progress.promoted(end)
        if is_elected:
            return
        log.warning("This store was that of a slave; its log ends at %d, where this master goes on", end)

    def _forget_beyond(self, name: str, end: int) -> None:
        data = self._files.load(name)
        if data is None:
            return
        try:
            reached = msgspec.json.decode(data, type=_LogOffset).logOffset
        except msgspec.DecodeError:
            return  # an Apache file, which names no offset of the log
        if reached is not None and reached > end:
            log.warning(
                "%s counts up to %d, beyond the end %d of this log: the log is read again", name, reached, end
            )
            self._files.remove(name)
