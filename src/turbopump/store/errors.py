"""What stops a store from being opened: files we do not understand, and what to do about them."""


class NotInMemory(Exception):
    """What is to be read has to come from the disk first: `places` are paths, positions and lengths."""

    def __init__(self, places: list[tuple[str, int, int]]) -> None:
        super().__init__(f"{len(places)} parts of files")
        self.places = places


class UnusableStore(Exception):
    """The files are left as they were found."""


class NoRoom(UnusableStore):
    """The disk is full. What was begun is gone on with at the next start."""
