"""A member's log as the checker follows it."""

from turbopump.raft.messages import PushedEntry


class KnownLog:
    """Entries without a gap; those before `begin_index` were deleted, and had been committed."""

    __slots__ = ("_entries", "begin_index", "synced_index")

    def __init__(self) -> None:
        self.begin_index = 0
        self.synced_index = -1
        self._entries: list[PushedEntry] = []

    def copy(self) -> "KnownLog":
        """Returns this log as it is now."""
        other = KnownLog()
        other.begin_index, other.synced_index, other._entries = (
            self.begin_index,
            self.synced_index,
            self._entries[:],
        )
        return other

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self._entries

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1: there has been none."""
        return self.begin_index + len(self._entries) - 1

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1: there has been none."""
        return self._entries[-1].term if self._entries else -1

    def entry(self, index: int) -> PushedEntry:
        """Returns the entry at an index of the log."""
        return self._entries[index - self.begin_index]

    def has(self, entry: PushedEntry) -> bool:
        """Returns whether an entry is in the log, or was before its beginning was deleted."""
        if entry.index < self.begin_index:
            return True
        place = entry.index - self.begin_index
        return place < len(self._entries) and self._entries[place] == entry

    def holds_safely(self, entry: PushedEntry, is_synced: bool) -> bool:
        """Returns whether an entry survives a crash: a power cut (`is_synced`), or the end of the process."""
        return self.has(entry) and (not is_synced or entry.index <= self.synced_index)

    def above(self, index: int) -> list[PushedEntry]:
        """Returns the entries above an index."""
        return self._entries[max(0, index + 1 - self.begin_index) :]

    def append(self, entry: PushedEntry) -> None:
        """Adds an entry at the end; an empty log begins with it."""
        if not self._entries:
            self.begin_index = entry.index
        self._entries.append(entry)

    def cut(self, after_index: int) -> None:
        """Removes the entries above an index."""
        del self._entries[max(0, after_index + 1 - self.begin_index) :]
        self.synced_index = min(self.synced_index, after_index)

    lose = cut

    def expire(self, begin_index: int) -> None:
        """Deletes the entries before an index."""
        del self._entries[: begin_index - self.begin_index]
        self.begin_index = begin_index
