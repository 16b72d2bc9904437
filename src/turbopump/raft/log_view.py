"""What a node may ask about its log. The log itself belongs to the driver."""

from typing import Protocol

from turbopump.raft.messages import PushedEntry


class LogView(Protocol):
    """The log as of now, with all effects of the steps so far performed."""

    @property
    def begin_index(self) -> int:
        """Index of the first entry that is still held; -1 when the log is empty."""
        ...

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1 when the log is empty."""
        ...

    @property
    def end_term(self) -> int:
        """Term of the last entry; -1 when the log is empty."""
        ...

    @property
    def synced_index(self) -> int:
        """Entries up to here are safe, as safe as this node promises; falls when they are cut off.

        A log that was just opened is safe to its end: what a recovery finds is synced before the first step.
        """
        ...

    def term_of(self, index: int) -> int | None:
        """Returns the term of an entry; None if it is not in the log."""
        ...

    def holds(self, entry: PushedEntry) -> bool:
        """Returns whether an identical entry (size, index, term, pos, channel, body) is in the log."""
        ...

    def size_of(self, first: int, last: int) -> int:
        """Returns how many bytes the entries from `first` to `last` have together."""
        ...
