"""The interface of the message log that broker modules use. Today it is that of `store/message_log.py`.

A log that is replicated, or agreed on by a quorum, can take its place: it appends in the same way, but its
committed end follows the copies, and it may have to cut records that were never committed. Whether a
message is safe is decided in `acknowledgement.py`.
"""

from collections.abc import Sequence
from typing import Protocol

from turbopump.protocol.record import Record
from turbopump.runtime.disk import Buffer
from turbopump.store.append import Appended, Draft
from turbopump.store.dispatch import Arrival


class Log(Protocol):
    """An append-only sequence of records, addressed by byte offset."""

    @property
    def min_offset(self) -> int:
        """Offset of the oldest record that was not deleted."""

    @property
    def end(self) -> int:
        """Offset at which the next record begins."""

    @property
    def committed(self) -> int:
        """Offset below which readers may see every record. Never above `end`."""

    def append(self, drafts: Sequence[Draft], together: bool = False) -> list[Appended]:
        """Stores all of the messages, or none and raises Refused. `together`: in one file, as a batch."""

    def rewrite(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Appends messages whose file is about to be deleted, even while the disk counts as full."""

    def read(self, offset: int, size: int) -> bytes | None:
        """Returns the bytes of a record; None when they are not in the log."""

    def look_up(self, offset: int) -> Record | None:
        """Returns the record that begins at this offset; None when none does."""

    async def cut(self, end: int) -> list[str]:
        """Removes every record from `end` on; returns the files that keep some of them.

        Nothing may append meanwhile.
        """


class LocalLog(Log, Protocol):
    """The log of this broker's own store: it stamps and announces messages, and can be read through."""

    store_host: bytes
    """Packed address of the broker, stamped on every record."""
    on_arrival: Arrival | None
    """Called with queue, next offset and tag code for every message that becomes readable."""

    @property
    def synced(self) -> int:
        """Offset below which everything is on the medium."""

    @property
    def appended_messages(self) -> int:
        """Messages appended since the start."""

    @property
    def appended_bytes(self) -> int:
        """Bytes of the records appended since the start."""

    @property
    def pool_buffers_left(self) -> int | None:
        """Unused buffers of the transient pool; None without a pool."""

    def locate(self, offset: int) -> tuple[Buffer, int] | None:
        """Returns the mapped file that holds this offset, and the position in it; None when none does."""

    def references(self, begin: int, count: int) -> tuple[list[int], int]:
        """Returns the origins that the next `count` records name, and the offset to continue from."""

    def carrying(self, mark: bytes, begin: int, count: int) -> tuple[list[Record], int]:
        """Returns those of the next `count` records with `mark` in their properties, and where to go on."""
