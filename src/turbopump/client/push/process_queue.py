"""What a consumer holds of one queue: messages between the pull that brought them and their end.

The offset that may be committed is the lowest one not finished yet: whatever the order in which messages
are finished, a restart repeats some of them and loses none. No socket and no clock.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from turbopump.client.message import MessageExt


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """When to pull no more of a queue until the handler has caught up. Apache's defaults."""

    messages: int = 1000
    bytes: int = 100 << 20
    span: int | None = 2000  # between the oldest unfinished message and the newest: what a crash would repeat


class ProcessQueue:
    __slots__ = (
        "_arrival",
        "_bytes",
        "_limits",
        "_room",
        "_taken",
        "_unfinished",
        "dropped",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "leaving",
        "locked_at_s",
        "next_offset",
    )

    def __init__(self, start: int) -> None:
        self.next_offset = start
        """Where the next pull begins."""
        self.dropped = False
        """The queue belongs to someone else now: what still runs has no effect on its offset."""
        self.leaving = False
        """It will soon be another's: an ordered delivery that runs is the last one."""
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self.last_lock_ms = 0
        self.locked_at_s: float | None = None
        """When the broker last gave us its lock, by the monotonic clock; only for ordered queues."""
        self._unfinished: dict[int, MessageExt] = {}  # by offset; pulls bring them in ascending order
        self._taken = 0  # so many of the first are consumed and not committed
        self._bytes = 0
        self._limits: CacheLimits | None = None  # someone waits until it is within them
        self._room: asyncio.Future[None] | None = None
        self._arrival: asyncio.Future[None] | None = None

    def put(self, messages: Sequence[MessageExt], next_offset: int) -> None:
        """`messages` are those to be consumed; all below `next_offset` has been looked at."""
        unfinished = self._unfinished
        for message in messages:
            record = message.record
            if record.queue_offset not in unfinished:
                unfinished[record.queue_offset] = message
                self._bytes += len(record.body)
        self.next_offset = next_offset
        if messages:
            _tell(self._arrival)

    def finish(self, messages: Iterable[MessageExt]) -> None:
        for message in messages:
            ended = self._unfinished.pop(message.record.queue_offset, None)
            if ended is not None:
                self._bytes -= len(ended.record.body)
        if self._limits is not None and not self.is_full(self._limits):
            self._limits = None
            _tell(self._room)

    def replace(self, message: MessageExt) -> None:
        """The same message with another count of failures."""
        if message.offset in self._unfinished:
            self._unfinished[message.offset] = message

    def first(self, count: int) -> list[MessageExt]:
        """The lowest that are not finished, without those that are kept."""
        return list(islice(self._unfinished.values(), self._taken, self._taken + count))

    def keep(self, count: int) -> None:
        """So many of the first are consumed; they hold back the offset until `commit` or `give_back`."""
        self._taken += count

    def commit(self, messages: Iterable[MessageExt]) -> None:
        """These, which come next, and all that are kept are finished."""
        kept, self._taken = list(islice(self._unfinished.values(), self._taken)), 0
        self.finish([*kept, *messages])

    def give_back(self) -> None:
        """What is kept comes again."""
        self._taken = 0

    def holds(self, message: MessageExt) -> bool:
        return message.offset in self._unfinished

    async def room(self, limits: CacheLimits) -> None:
        """Returns when it is full no more, or `wake` was called."""
        if self.is_full(limits):
            self._limits = limits
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def arrival(self) -> None:
        """Returns when something has come, or `wake` was called."""
        self._arrival = asyncio.get_running_loop().create_future()
        await self._arrival

    def wake(self) -> None:
        """Whoever waits looks again."""
        _tell(self._arrival)
        _tell(self._room)

    @property
    def committable(self) -> int:
        """Everything below is done."""
        return next(iter(self._unfinished), self.next_offset)

    @property
    def count(self) -> int:
        return len(self._unfinished)

    @property
    def waiting(self) -> int:
        """Without those that are kept."""
        return len(self._unfinished) - self._taken

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def newest(self) -> int:
        """The highest offset that is held; 0 when nothing is, as Java's consumers tell it."""
        return next(reversed(self._unfinished), 0)

    def is_full(self, limits: CacheLimits) -> bool:
        count = len(self._unfinished)
        if count > limits.messages or self._bytes > limits.bytes:
            return True
        return limits.span is not None and count > 0 and self.newest - self.committable > limits.span


def _tell(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
