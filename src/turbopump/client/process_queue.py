"""What a consumer holds of one queue: messages between the pull that brought them and their end.

The offset that may be committed is the lowest one not finished yet: whatever the order in which messages
are finished, a restart repeats some of them and loses none. No socket and no clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turbopump.protocol.record import Record


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """When to pull no more of a queue until the listener has caught up. Apache's defaults."""

    messages: int = 1000
    bytes: int = 100 << 20
    span: int = 2000  # between the oldest unfinished message and the newest: what a crash would repeat


class ProcessQueue:
    def __init__(self, start: int) -> None:
        self.next_offset = start
        """Where the next pull begins."""
        self.dropped = False
        """The queue belongs to someone else now: what still runs has no effect on its offset."""
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self._unfinished: dict[int, Record] = {}  # by offset; pulls bring them in ascending order
        self._bytes = 0

    def put(self, records: Sequence[Record], next_offset: int) -> None:
        """`records` are those to be consumed; all below `next_offset` has been looked at."""
        for record in records:
            if record.queue_offset not in self._unfinished:
                self._unfinished[record.queue_offset] = record
                self._bytes += len(record.body)
        self.next_offset = next_offset

    def finish(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            record = self._unfinished.pop(offset, None)
            if record is not None:
                self._bytes -= len(record.body)

    @property
    def committable(self) -> int:
        """Everything below is done."""
        return next(iter(self._unfinished), self.next_offset)

    @property
    def count(self) -> int:
        return len(self._unfinished)

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def newest(self) -> int:
        """The highest offset that is held; 0 when nothing is, as Java's consumers tell it."""
        return next(reversed(self._unfinished), 0)

    def is_full(self, limits: CacheLimits) -> bool:
        if self.count > limits.messages or self._bytes > limits.bytes:
            return True
        return self.count > 0 and self.newest - self.committable > limits.span
