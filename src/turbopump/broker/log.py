"""`Log` and `LocalLog`: the interfaces of the commit log that broker modules use.

`store/message_log.py` implements both, also for a DLedger group: there the committed end follows what a
majority has. Whether a message is safe is decided in `acknowledgement.py`. No broker module cuts the log: the
node of a group does that below it (`replication/dledger`), and `turbopump replica` on a stopped broker.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from turbopump.protocol.record import Record
from turbopump.runtime.disk import Buffer
from turbopump.store.append import Appended, Draft
from turbopump.store.dispatch import Arrival


class Log(Protocol):
    """The commit log: an append-only sequence of records, addressed by physical offset (bytes)."""

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest record that was not deleted."""

    @property
    def end(self) -> int:
        """Physical offset at which the next record will begin."""

    @property
    def committed(self) -> int:
        """Physical offset below which readers may see every record. Never above `end`."""

    def append(self, drafts: Sequence[Draft], together: bool = False) -> list[Appended]:
        """Appends all of the messages, or appends none and raises Refused. Returns where each was stored.

        `together`: in one file, as a batch.
        """

    def rewrite(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Appends copies of messages whose file will be deleted next; also while the disk counts as full."""

    def read(self, offset: int, size: int) -> bytes | None:
        """Returns the `size` bytes of the record at physical `offset`; None when they are not in the log."""

    def look_up(self, offset: int) -> Record | None:
        """Returns the record that begins at physical `offset`; None when none begins there or can be read."""


class LocalLog(Log, Protocol):
    """The commit log of this broker's own store: also reports arrivals and syncs, and can be scanned."""

    store_host: bytes
    """Packed address of the broker, stamped on every record."""
    on_arrival: Arrival | None
    """Called with queue, next offset and tag code for every message that becomes readable."""
    on_growth: Callable[[], None] | None
    """Called after each append, for those that copy the log."""

    @property
    def dispatched(self) -> int:
        """Physical offset below which every record is in its queue."""

    @property
    def synced(self) -> int:
        """Physical offset below which everything is synced to disk."""

    @property
    def appended_messages(self) -> int:
        """Number of messages appended since the broker started."""

    @property
    def appended_bytes(self) -> int:
        """Bytes of the records appended since the broker started."""

    @property
    def pool_buffers_left(self) -> int | None:
        """Number of unused buffers of the transient store pool; None without a pool."""

    def locate(self, offset: int) -> tuple[Buffer, int] | None:
        """Returns the mapped file with physical `offset`, and the position in it; None: not in the log."""

    def references(self, begin: int, count: int) -> tuple[list[int], int]:
        """Returns the prepared transaction offsets in `count` records from `begin` on, and the next offset.

        A record with such an offset is a copy, and the offset says of which record; see
        `level_records.origin`. Other records are left out. `begin` is a physical offset, and so is the second
        result, from which to continue.
        """

    def carrying(self, mark: bytes, begin: int, count: int) -> tuple[list[Record], int]:
        """Returns those of `count` records from `begin` on whose properties have `mark`, and the next offset.

        `begin` is a physical offset, and so is the second result, from which to continue. `mark` is the
        encoded name of a property with its separator.
        """
