"""DLedger's log on disk as a node sees it."""

from turbopump.protocol.dledger.entry import DLedgerEntry
from turbopump.raft.messages import PushedEntry
from turbopump.store.dledger.entry_log import EntryLog


class EntryLogView:
    """A `raft.LogView` of an entry log. Bodies of pushed entries are `DLedgerEntry`.

    With `syncs_each` an entry is safe when it is on the medium, otherwise as soon as it is written.
    """

    def __init__(self, log: EntryLog, syncs_each: bool) -> None:
        self._log = log
        self._syncs_each = syncs_each

    @property
    def begin_index(self) -> int:
        return self._log.begin_index

    @property
    def end_index(self) -> int:
        return self._log.end_index

    @property
    def end_term(self) -> int:
        return self._log.end_term

    @property
    def synced_index(self) -> int:
        return self._log.synced_index if self._syncs_each else self._log.end_index

    def term_of(self, index: int) -> int | None:
        return self._log.term_of(index) if self._log.has(index) else None

    def holds(self, entry: PushedEntry) -> bool:
        if not self._log.has(entry.index):
            return False
        held, pushed = self._log.entry(entry.index), entry.body
        assert held is not None
        assert isinstance(pushed, DLedgerEntry)
        return _compared(held) == _compared(pushed)

    def size_of(self, first: int, last: int) -> int:
        return self._log.bytes_between(first, last)


def _compared(entry: DLedgerEntry) -> tuple[object, ...]:
    """Returns the fields that Apache compares: not the checksum, which it does not write."""
    return entry.magic, entry.size, entry.index, entry.term, entry.pos, entry.channel, entry.body
