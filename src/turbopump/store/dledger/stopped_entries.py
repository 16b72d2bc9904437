"""The entries of a DLedger node, read from its directory without opening its store. Reads only.

In: a store directory, ours or Apache's. Out: its entries in order, up to the first bytes that are no entry,
its term and vote, and how far it knew its log to be committed.
"""

from collections.abc import Generator, Iterator

from turbopump.protocol.dledger.entry import (
    END_OF_FILE,
    UNIT_SIZE,
    Buffer,
    DLedgerEntry,
    EntryHead,
    measure,
    read_entry,
    read_head,
    read_unit,
)
from turbopump.runtime.disk import Disk
from turbopump.store.dledger.entry_scan import EntryRun, beginning, scan_entries
from turbopump.store.dledger.entry_walk import entry_parts
from turbopump.store.dledger.state_files import StateFiles
from turbopump.store.location import dledger_id
from turbopump.store.pieces import LogPart, log_parts, part_of

SCANNED = 1 << 20  # bytes of a file whose entries are looked at together


class StoppedEntries:
    """The log of a node that is not opened."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.node = dledger_id(directory, disk)
        self.parts = [part for part in entry_parts(directory, disk) if part.size]
        self._base = f"{directory}/dledger-{self.node}"
        self._disk = disk
        state = StateFiles(self._base, disk)
        self.checkpoint = state.peek_checkpoint()
        self.vote = state.peek_vote()

    def entries(self, first: int = 0) -> Iterator[DLedgerEntry]:
        """Yields the entries from index `first` on."""
        for buffer, position, head in self._walk(self._place_of(first)):
            if head.index >= first:
                yield read_entry(buffer, position, len(buffer))

    def heads(self) -> Iterator[EntryHead]:
        """Yields the heads of all entries."""
        return (head for _, _, head in self._walk(None))

    def committed_tail(self) -> tuple[int, list[int]]:
        """Returns the end of the last entry that the checkpoint has as committed, and the ends of later ones.

        Queues may have more of them: only what is committed gets there.
        """
        last, end = self.checkpoint.committed, self.parts[0].start if self.parts else 0
        ends = []
        for _, _, head in self._walk(self._place_of(last)):
            if head.index <= last:
                end = head.pos + head.size
            else:
                ends.append(head.pos + head.size)
        return end, ends

    def _place_of(self, index: int) -> int | None:
        """Returns the offset of an entry by the index files; None where they do not have it."""
        at = index * UNIT_SIZE
        for part in log_parts(f"{self._base}/index", self._disk):
            if part.start <= at < part.end:
                data = part_of(self._disk, part.path, at - part.start, UNIT_SIZE)
                unit = read_unit(data, 0) if len(data) == UNIT_SIZE else None
                return unit.pos if unit is not None and self._is_at(unit.pos, index) else None
        return None

    def _is_at(self, pos: int, index: int) -> bool:
        """Whether the entry with this index lies at an offset."""
        for part in self.parts:
            if part.start <= pos < part.end:
                mapped = self._disk.open_mapped(part.path, writable=False)
                try:
                    if measure(mapped.buffer, pos - part.start, part.size, check_crc=True) <= 0:
                        return False
                    head = read_head(mapped.buffer, pos - part.start)
                    return (head.index, head.pos) == (index, pos)
                finally:
                    mapped.close()
        return False

    def _walk(self, begin: int | None) -> Iterator[tuple[Buffer, int, EntryHead]]:
        """Yields file, position and head of the entries from the offset `begin` on; None: of all."""
        run = EntryRun()
        for part in self.parts:
            if begin is not None and part.end <= begin:
                continue
            mapped = self._disk.open_mapped(part.path, writable=False)
            try:
                at = beginning(mapped.buffer, part.size) if begin is None else max(0, begin - part.start)
                if not (yield from _walk_file(mapped.buffer, part, at, run)):
                    return
            finally:
                mapped.close()


def _walk_file(
    buffer: Buffer, part: LogPart, position: int, run: EntryRun
) -> Generator[tuple[Buffer, int, EntryHead], None, bool]:
    """Yields the entries of a file; returns whether its end was reached, behind which others follow."""
    found: list[tuple[EntryHead, int]] = []
    limit = min(position + SCANNED, part.size)
    while True:
        at, ended_by = scan_entries(
            buffer, part.start, position, limit, run, lambda head, at: found.append((head, at))
        )
        run.units.clear()
        for head, place in found:
            yield buffer, place, head
        found.clear()
        if ended_by == END_OF_FILE or (at == position and limit == part.size):
            return ended_by == END_OF_FILE
        limit = min(at + SCANNED, part.size) if at > position else part.size  # an entry larger than that
        position = at
