"""Checks heads of DLedger's entries, given in log order, against one another and the index. Reads only."""

from turbopump.protocol.dledger.entry import UNIT_SIZE, EntryHead, EntryUnit, read_head, read_unit
from turbopump.runtime.disk import Disk
from turbopump.store.dledger.state_files import StateFiles
from turbopump.store.findings import Findings
from turbopump.store.location import dledger_id
from turbopump.store.pieces import Piece, log_parts, part_of

CHUNK = UNIT_SIZE << 10  # bytes of the index that are read at once


class EntryCheck:
    """Compares the entries of a log with its index and its checkpoint."""

    def __init__(self, directory: str, disk: Disk, findings: Findings) -> None:
        node = dledger_id(directory, disk)
        base = f"{directory}/dledger-{node}"
        self._disk = disk
        self._findings = findings
        self._parts = log_parts(f"{base}/index", disk) if node else []
        self._checkpoint = StateFiles(base, disk).peek_checkpoint()
        self._next: int | None = None
        self._term = -1
        self._chunk_at, self._chunk = 0, b""

    @property
    def is_committed(self) -> bool:
        """Whether the last process knew that all entries it had were committed."""
        return self._checkpoint.committed >= self._checkpoint.end

    def check(self, piece: Piece) -> None:
        """Checks the head of the next entry; reports what is wrong as findings."""
        head = read_head(piece.buffer, piece.position)
        if self._next is not None and head.index != self._next:
            text = f"entry {self._next} was next at {piece.offset}, but {head.index} is there"
            self._findings.add_problem("wrong index", text)
        if head.term < self._term:
            text = f"entry {head.index} is of term {head.term}, after term {self._term}"
            self._findings.add_problem("wrong term", text)
        self._next, self._term = head.index + 1, head.term
        if self._parts:
            self._check_unit(head)

    def _check_unit(self, head: EntryHead) -> None:
        unit = self._unit(head.index)
        if unit is None or (unit.pos, unit.size, unit.index, unit.term) != (
            *(head.pos, head.size, head.index, head.term),
        ):
            self._findings.add_problem("wrong unit of the index", f"entry {head.index} at {head.pos}: {unit}")

    def finish(self) -> None:
        """Notes entries that are not committed; to be called after the last entry."""
        if self._next is not None and not self._parts:
            self._findings.add_note("no index of entries", "the next start of the broker makes one")
        if self._next is not None and (count := self._next - 1 - self._checkpoint.committed) > 0:
            text = f"the last {count} entries, from {self._next - count} on"
            self._findings.add_note("entries not known to be committed", text, count)

    def _unit(self, index: int) -> EntryUnit | None:
        at = index * UNIT_SIZE - self._chunk_at
        if not 0 <= at < len(self._chunk):
            self._load(index * UNIT_SIZE)
            at = 0
        return read_unit(self._chunk, at) if at + UNIT_SIZE <= len(self._chunk) else None

    def _load(self, at: int) -> None:
        self._chunk_at, self._chunk = at, b""
        for part in self._parts:
            if part.start <= at < part.end:
                self._chunk = part_of(self._disk, part.path, at - part.start, min(CHUNK, part.end - at))
