"""Where entries of a leader go in the log of a follower. Values in, values out.

Both logs have the same bytes before an entry, and files of the same size, so it lies at the same offset in
both: where the log ends if it fits into the file, with 8 bytes left, and otherwise at the start of the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from turbopump.protocol.dledger.entry import END_MARK, HEAD_SIZE, MAGIC, DLedgerEntry


class MisplacedEntry(Exception):
    """Raised for an entry that does not continue the log: another index, a smaller term, another offset."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log: index of the next entry, term of the last one, offset."""

    index: int
    term: int
    offset: int
    begins_file: bool  # the next entry begins a file that is not there yet


def starts_of(entries: Sequence[DLedgerEntry], end: LogEnd, file_size: int) -> list[int]:
    """Returns the starts of the files that these entries begin. Raises MisplacedEntry.

    A leader may leave a file before it is full: it was restarted after it had marked the file's end.
    """
    index, term, offset, begins = end.index, end.term, end.offset, end.begins_file
    starts = []
    for entry in entries:
        next_start = offset if begins else offset - offset % file_size + file_size
        if entry.index != index or entry.term < term or entry.magic != MAGIC:
            raise MisplacedEntry(f"entry {index} of term {term} or later is next, got {_name(entry)}")
        largest = file_size - END_MARK.size
        if entry.size != HEAD_SIZE + len(entry.body) or not HEAD_SIZE < entry.size <= largest:
            raise MisplacedEntry(f"{_name(entry)} has a body of {len(entry.body)} bytes")
        fits = not begins and offset % file_size + entry.size <= largest
        if entry.pos == next_start:
            starts.append(next_start)
        elif not fits or entry.pos != offset:
            raise MisplacedEntry(
                f"entry {index} goes to {offset} or {next_start}, got {_name(entry)}. All nodes of a group "
                f"need the same mappedFileSizeCommitLog"
            )
        index, term, offset, begins = index + 1, entry.term, entry.pos + entry.size, False
    return starts


def _name(entry: DLedgerEntry) -> str:
    return f"entry {entry.index} of term {entry.term} at {entry.pos}"
