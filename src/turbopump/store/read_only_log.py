"""Reads the commit log: its ends, bytes by offset, the record at an offset.

In: the files of the log. Out: bytes and records. `commit_log.py` adds what changes the log.
"""

from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.record import Record, decode
from turbopump.runtime.disk import Buffer
from turbopump.store.segment import LogFiles


class ReadOnlyLog:
    """The commit log as it is read: files of records, and where they begin and end."""

    def __init__(self, files: LogFiles, file_size: int, uses_pool: bool) -> None:
        self.files = files
        self.file_size = file_size
        self.uses_pool = uses_pool
        self.base = 0
        self.position = 0
        self._committed = 0

    @property
    def min_offset(self) -> int:
        return self.files.starts[0] if self.files.starts else self.base

    @property
    def end(self) -> int:
        return self.base + self.position

    @property
    def committed(self) -> int:
        return self._committed if self.uses_pool else self.base + self.position

    def read(self, offset: int, size: int) -> bytes | None:
        """Returns `size` bytes from `offset` on; None: deleted, not committed or across the end of a file."""
        fits = size >= 0 and offset % self.file_size + size <= self.file_size
        if not fits or offset < self.min_offset or offset + size > self.committed:
            return None
        return self.slice(offset, offset + size)

    def slice(self, begin: int, end: int) -> bytes:
        """Returns the bytes [begin, end) unchecked: the caller knows that they are in one existing file."""
        at = begin % self.file_size
        return bytes(self.files.mapped(begin - at).buffer[at : at + end - begin])

    def locate(self, offset: int) -> tuple[Buffer, int] | None:
        """Returns the buffer that holds a log offset and the position in it; None: deleted, not committed."""
        if not self.min_offset <= offset < self.committed:
            return None
        at = offset % self.file_size
        return self.files.mapped(offset - at).buffer, at

    def head_before(self, buffer: Buffer, position: int) -> int:
        """Returns how many bytes lie before the record at a position of a file: none in a plain log."""
        return 0

    def first_record(self, start: int) -> int:
        """Returns the offset of the first record in the file that begins at `start`."""
        return start

    def identify(self, offset: int) -> Record | None:
        """Decodes the record at a log offset, even beyond `end`; None when no record is there."""
        at = offset % self.file_size
        if not self.files.has(offset - at):
            return None
        try:
            found = decode(self.files.mapped(offset - at).buffer, at)
        except BrokenRecord:
            return None
        return found if found.physical_offset == offset else None
