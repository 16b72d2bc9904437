"""Errors of the store: files that cannot be used, and records that are not in memory."""


class NotInMemory(Exception):
    """Raised instead of blocking on the disk. `places`: path, position and length of what has to be read."""

    def __init__(self, places: list[tuple[str, int, int]]) -> None:
        super().__init__(f"{len(places)} parts of files")
        self.places = places


class UnusableStore(Exception):
    """The store cannot be opened; its files are left as they were found."""


class NoRoom(UnusableStore):
    """The disk is too full to finish recovery; the next start continues it."""
