"""Dispatches the records of committed entries: to queues, index and waiting pulls.

In: how far the group has committed (`EntryLog.commit_to`). Out: queues and index that follow, in slices. An
entry that is not committed is in no queue: it may be cut off again.
"""

from turbopump.protocol.dledger.entry import END_OF_FILE
from turbopump.store.dispatch import Dispatcher
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.entry_scan import EntryRun, scan_messages
from turbopump.store.flags import Flags, Reason
from turbopump.store.replica_log import BYTES_PER_TURN, MAX_LAST_TURNS, NotACopy


class CommittedEntries:
    """The dispatch of a DLedger node, leader or follower."""

    def __init__(self, log: EntryLog, dispatcher: Dispatcher, flags: Flags) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._flags = flags

    def open(self, dispatched: int) -> None:
        """Makes the store that of a DLedger node: only entries are appended, by the node's driver."""
        self._flags.set(Reason.SLAVE)
        self._dispatcher.copied_from = dispatched

    @property
    def is_behind(self) -> bool:
        """Whether committed entries are not dispatched yet."""
        return self._dispatcher.dispatched < self._log.committed

    def dispatch(self, size: int = BYTES_PER_TURN) -> bool:
        """Dispatches up to about `size` bytes of committed entries; returns whether more can be done at once.

        Raises NotACopy when a committed entry cannot be read.
        """
        log, began = self._log, self._dispatcher.dispatched
        if began >= log.committed:
            return False
        position = began % log.file_size
        start = began - position
        available = min(log.committed - start, log.file_size)
        at, ended_by = self._scan(start, position, min(position + size, available))
        if at == position and ended_by != END_OF_FILE:  # an entry larger than a turn
            at, ended_by = self._scan(start, position, available)
        if ended_by == END_OF_FILE:
            at = log.file_size
        if at == position:
            raise NotACopy(began)
        self._dispatcher.copied_from = start + at
        self._dispatcher.keys_waiting()
        return self.is_behind

    def finish(self) -> bool:
        """Dispatches the rest before an orderly stop. False: not all done."""
        try:
            turns = 0
            while self.dispatch():
                turns += 1
                if turns == MAX_LAST_TURNS:
                    return False
        except NotACopy:
            return False
        return True

    def _scan(self, start: int, position: int, limit: int) -> tuple[int, int]:
        buffer, last = self._log.files.mapped(start).buffer, self._log.committed_index
        each = self._dispatcher.dispatch_copied
        return scan_messages(buffer, start, position, limit, EntryRun(), last, each)
