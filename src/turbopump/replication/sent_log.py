"""The log of a store as its master sends it: extents, and bytes that do not block the loop to read."""

from typing import Protocol

from turbopump.store.reading import QueueReader


class ReadableLog(Protocol):
    """The part of `store/message_log.py` that is used here."""

    @property
    def min_offset(self) -> int: ...
    @property
    def committed(self) -> int: ...
    def read(self, offset: int, size: int) -> bytes | None: ...


class StoreLog:
    """Implements `slave_connection.SentLog` over an open store."""

    def __init__(self, log: ReadableLog, reader: QueueReader, file_size: int) -> None:
        self.file_size = file_size
        self._log = log
        self._reader = reader

    @property
    def min_offset(self) -> int:
        return self._log.min_offset

    @property
    def end(self) -> int:
        """Offset behind the last byte that is in the log's files."""
        return self._log.committed

    def missing(self, begin: int, size: int) -> list[tuple[str, int, int]]:
        """Returns the places (path, position, size) to `fetch` first, so that `slice` does not block."""
        return self._reader.missing(((begin, size),))

    async def fetch(self, places: list[tuple[str, int, int]]) -> None:
        await self._reader.fetch(places)

    def slice(self, begin: int, end: int) -> bytes:
        """Returns the bytes [begin, end) of the log, which must lie in one file."""
        data = self._log.read(begin, end - begin)
        assert data is not None, f"the log has no bytes {begin} to {end}"
        return data
