"""Makes queues and index agree with the committed entries of DLedger's log.

In: a log that `entry_recovery.py` has brought in order. Out: queues and index that hold exactly what is
committed. Where reading begins is decided as for a commit log; nothing of DLedger's log is cut or synced
here.

Files of `commitlog/` without an entry behind them are those of a plain store that is switched over: they are
recovered as in a plain store, with all its rules, and then ended (`switch_over.py`).
"""

from dataclasses import replace

from turbopump.protocol.dledger.entry import END_MAGIC, END_MARK, HEAD_SIZE, read_head
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.entry_scan import EntryRun, beginning, scan_messages
from turbopump.store.errors import UnusableStore
from turbopump.store.recovery import Plan, Recovered, Recovery
from turbopump.store.scan import BLANK

ANY_INDEX = 1 << 63


class EntryMessageRecovery(Recovery):
    """Recovery of queues and index from entries, and from the files of `commitlog/` before them."""

    _run = EntryRun()

    def run(self) -> Recovered:
        found = super().run()
        if not self._switches_over:
            return found
        return replace(found, end=self._entry_log.continue_after(found.end))

    def has_nothing_to_do(self) -> bool:
        """Whether everything is as it was noted; a switch-over has to write."""
        return not self._switches_over and super().has_nothing_to_do()

    @property
    def _switches_over(self) -> bool:
        return self._entry_log.awaits_switch_over

    @property
    def _entry_log(self) -> EntryLog:
        assert isinstance(self._log, EntryLog), "entries are read from a log of entries"
        return self._log

    def _plan(self) -> Plan:
        self._commit_dispatched()
        return super()._plan()

    def _commit_dispatched(self) -> None:
        """Commits what the store's checkpoint has in queues: only committed entries were put there.

        DLedger's own checkpoint may have been noted earlier.
        """
        note = self._checkpoint.note
        if note is None or note.last_record < self._log.committed or not self._note_holds():
            return
        at = note.last_record - HEAD_SIZE
        start = self._file_start(at)
        head = read_head(self._log.files.mapped(start).buffer, at - start)
        if head.pos == at and self._entry_log.has(head.index):
            self._entry_log.commit_to(head.index)

    def _read(self, plan: Plan) -> int:
        self._run = EntryRun()
        end = super()._read(plan)
        if end < self._log.files.divided_at and not self._switches_over:
            raise UnusableStore(
                f"the record at {end} in {self._log.files.path(self._file_start(end))} is damaged, and "
                f"entries of DLedger follow. Copy the file from another member of the group, or move it and "
                f"all before it elsewhere to continue without their messages"
            )
        return end

    def _scan(self, start: int, position: int, plan: Plan) -> tuple[int, int]:
        if self._is_older(start):
            return super()._scan(start, position, plan)
        buffer = self._log.files.reading_ahead(start).buffer
        limit = max(0, min(self._log.committed - start, self._log.file_size))
        position = position or beginning(buffer, self._log.file_size)
        return scan_messages(buffer, start, position, limit, self._run, ANY_INDEX, self._put(plan))

    def _size_at(self, offset: int) -> int:
        size = super()._size_at(offset)
        if size >= 0 or offset < 0 or self._is_older(offset):
            return size
        start = self._file_start(offset)
        if not self._log.files.has(start):
            return size
        at = offset - start
        buffer = self._log.files.mapped(start).buffer
        is_end = (
            at + END_MARK.size <= self._log.file_size and END_MARK.unpack_from(buffer, at)[0] == END_MAGIC
        )
        return BLANK if is_end else size

    def _first_record(self, start: int) -> int:
        if self._is_older(start):
            return start
        return start + beginning(self._log.files.mapped(start).buffer, self._log.file_size) + HEAD_SIZE

    def _begin_of(self, record: int) -> int:
        return record if self._is_older(record) else record - HEAD_SIZE

    def _check_beginning(self, end: int) -> None:
        if self._switches_over:  # otherwise the log itself was checked before
            super()._check_beginning(end)

    def _cut_log(self, end: int) -> None:
        if self._switches_over:  # otherwise what is behind `end` is not committed: it stays
            super()._cut_log(end)

    def _settle(self, plan: Plan, end: int) -> None:
        if self._switches_over:  # otherwise the log was synced before
            super()._settle(plan, end)

    def _continue_at(self, end: int) -> None:
        """The log goes on behind its last entry, committed or not."""

    def _is_older(self, offset: int) -> bool:
        return offset < self._log.files.divided_at
