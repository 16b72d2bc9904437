"""Dispatches the records of committed entries: to queues, index and waiting pulls.

In: how far the group has committed (`EntryLog.commit_to`). Out: queues and index that follow. An entry that
is not committed is in no queue: it may be cut off again. A follower reads the entries of its leader again, in
slices; a leader still knows what it has appended itself.
"""

import logging
from collections.abc import Callable

from turbopump.protocol.dledger.entry import END_OF_FILE
from turbopump.store.dispatch import Dispatcher
from turbopump.store.dledger.entry_appends import AppendBodies, EntryAppender
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.entry_scan import EntryRun, scan_messages
from turbopump.store.flags import Flags, Reason
from turbopump.store.replica_log import BYTES_PER_TURN, MAX_LAST_TURNS, NotACopy

log_line = logging.getLogger("turbopump.store")


class CommittedEntries:
    """The dispatch of a DLedger node, leader or follower."""

    def __init__(self, log: EntryLog, dispatcher: Dispatcher, appender: EntryAppender, flags: Flags) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._appender = appender
        self._flags = flags
        self._is_leading = False
        self.on_begin: Callable[[], None] = lambda: None
        """Called when the log begins at a later offset, as after retention: queues have to follow."""

    def open(self, dispatched: int) -> None:
        """Makes the store that of a DLedger node: only entries are appended, by the node's driver."""
        self._flags.set(Reason.SLAVE)
        self._dispatcher.copied_from = dispatched
        self._log.on_reset = self._begin_again

    def _begin_again(self) -> None:
        """Continues where a log begins that was reset: what lay before is not in the leader's entries."""
        log, began = self._log, self._dispatcher.dispatched
        if log.min_offset < log.files.divided_at:
            return  # it goes on behind the files of a commit log, which have stayed
        self._dispatcher.start_after_cut()
        if began < log.end:
            log_line.warning(
                "The log begins at %d now: the leader's entries do not reach back to %d", log.end, began
            )
            self.on_begin()

    # role

    def lead(self, append_bodies: AppendBodies) -> None:
        """Lets messages be appended, as entries, by `append_bodies`. Everything is committed and dispatched.

        Otherwise a message could get the queue offset of one that is not in its queue yet.
        """
        assert not self.is_behind, "committed entries are not in their queues"
        assert self._log.committed == self._log.end, "entries of earlier leaders are not committed"
        self._is_leading = True
        self._appender.lead(append_bodies)
        self._flags.clear(Reason.SLAVE)

    def follow(self) -> None:
        """Refuses messages. What was appended and is not committed is in no queue, and may come again."""
        self._flags.set(Reason.SLAVE)
        self._appender.follow()
        self._is_leading = False

    def index_of(self, offset: int) -> int:
        """Returns the index of the entry with the record at a log offset, until its sender was answered."""
        return self._appender.indexes.get(offset, -1)

    def advance(self) -> None:
        """On a leader: puts what is committed by now into its queues, and wakes the pulls that wait."""
        if self._is_leading:
            self._dispatcher.advance(self._log.committed)
            self._dispatcher.copied_from = self._log.committed

    def answered(self) -> None:
        """Forgets the indexes of messages that are committed: their senders were answered."""
        self._appender.answered()

    @property
    def is_behind(self) -> bool:
        """Whether committed entries are not dispatched yet."""
        return self._dispatcher.dispatched < self._log.committed

    def dispatch(self, size: int = BYTES_PER_TURN) -> bool:
        """Dispatches up to about `size` bytes of committed entries; returns whether more can be done at once.

        Raises NotACopy when a committed entry cannot be read.
        """
        if self._is_leading:
            self.advance()
            return False
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
        except Exception:  # the store is closed all the same; the next start reads the log again
            log_line.exception("Cannot put the last committed messages into their queues")
            return False
        return True

    def _scan(self, start: int, position: int, limit: int) -> tuple[int, int]:
        buffer, last = self._log.files.mapped(start).buffer, self._log.committed_index
        each = self._dispatcher.dispatch_copied
        return scan_messages(buffer, start, position, limit, EntryRun(), last, each)
