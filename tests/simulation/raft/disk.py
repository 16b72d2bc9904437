"""A member's disk: its log, of which a part is safe from power cuts, and the state that it saved."""

import random

from turbopump.raft.config import SavedState
from turbopump.raft.messages import NO_INDEX, NO_TERM, PushedEntry

HEADER_SIZE = 48
BODY_SIZE = 100


class SimulatedLog:
    """The log of a member, as its node sees it (a `LogView`), and as its driver writes it."""

    __slots__ = ("_begin", "entries", "synced_index")

    def __init__(self) -> None:
        self._begin = 0
        self.entries: list[PushedEntry] = []
        self.synced_index = NO_INDEX

    @property
    def begin_index(self) -> int:
        """Index of the first entry."""
        return self._begin if self.entries else NO_INDEX

    @property
    def end_index(self) -> int:
        """Index of the last entry."""
        return self._begin + len(self.entries) - 1 if self.entries else NO_INDEX

    @property
    def end_term(self) -> int:
        """Term of the last entry."""
        return self.entries[-1].term if self.entries else NO_TERM

    def term_of(self, index: int) -> int | None:
        """Returns the term of an entry; None if it is not in the log."""
        place = index - self._begin
        return self.entries[place].term if 0 <= place < len(self.entries) else None

    def holds(self, entry: PushedEntry) -> bool:
        """Returns whether an identical entry is in the log."""
        place = entry.index - self._begin
        return 0 <= place < len(self.entries) and self.entries[place] == entry

    def size_of(self, first: int, last: int) -> int:
        """Returns how many bytes entries have together."""
        return sum(entry.size for entry in self.read(first, last))

    def read(self, first: int, last: int) -> tuple[PushedEntry, ...]:
        """Returns entries of the log."""
        entries = (
            tuple(self.entries[first - self._begin : last + 1 - self._begin]) if first >= self._begin else ()
        )
        assert len(entries) == last + 1 - first, f"{first}..{last} is not in {self._begin}..{self.end_index}"
        return entries

    def next_entry(self, term: int, body: object) -> PushedEntry:
        """Returns an entry that fits at the end."""
        last = self.entries[-1] if self.entries else None
        pos = last.pos + last.size if last else 0
        return PushedEntry(self._begin + len(self.entries), term, pos, HEADER_SIZE + BODY_SIZE, 0, body)

    def append(self, entries: tuple[PushedEntry, ...]) -> None:
        """Writes entries at the end; an empty log begins with the first of them."""
        if not self.entries:
            self._begin = entries[0].index
        self.entries.extend(entries)

    def truncate(self, after_index: int) -> None:
        """Removes all entries above an index."""
        del self.entries[max(0, after_index + 1 - self._begin) :]
        if not self.entries:
            self._begin = 0
        self.synced_index = min(self.synced_index, self.end_index)

    def replace(self, entry: PushedEntry) -> None:
        """Drops the whole log, and begins with an entry."""
        self.entries = [entry]
        self._begin = entry.index
        self.synced_index = NO_INDEX

    def expire(self, begin_index: int) -> None:
        """Deletes the entries before an index that is in the log."""
        del self.entries[: begin_index - self._begin]
        self._begin = begin_index


class MemberDisk:
    """What outlives a member's process."""

    def __init__(self, joined: bool) -> None:
        self.log = SimulatedLog()
        self.saved = SavedState(joined=joined)
        self.committed_index = NO_INDEX
        """The last commit that was noted."""

    def cut_power(self, chance: random.Random) -> None:
        """Loses what was not flushed: all of it, or all behind some entry."""
        log = self.log
        if (unsynced := log.end_index - log.synced_index) > 0:
            log.truncate(log.synced_index + int(chance.random() * (unsynced + 1)))

    def start_state(self) -> SavedState:
        """Returns what a node that is started finds."""
        saved = self.saved
        return SavedState(saved.term, saved.voted_for, saved.joined, self.committed_index)
