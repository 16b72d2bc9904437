"""Errors of the store: files that cannot be used, and records that are not in memory."""


class NotInMemory(Exception):
    """Raised by a read that would block on the disk; `places`: path, position and length of what to load."""

    def __init__(self, places: list[tuple[str, int, int]]) -> None:
        super().__init__(f"{len(places)} parts of files")
        self.places = places


class UnusableStore(Exception):
    """Raised when a store, or a backup's target, cannot be used; its files are left as they were found."""


class NoRoom(UnusableStore):
    """Raised when the disk is too full to finish recovery; the next start continues the recovery."""
