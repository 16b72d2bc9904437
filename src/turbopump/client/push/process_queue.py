"""The unfinished messages of one queue: from the pull that brought them until their handler is done.

The offset that may be committed is the lowest one not finished yet: in whatever order messages are finished,
a restart repeats some of them and loses none. No socket and no clock.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from turbopump.client.message import MessageExt


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Messages, bytes and offset span above which pulls of a queue wait for handlers. Apache's defaults."""

    messages: int = 1000
    bytes: int = 100 << 20
    # Offsets between the oldest unfinished message and the newest: what a crash would repeat.
    span: int | None = 2000


class ProcessQueue:
    """The unfinished messages of one queue, in the order of their offsets."""

    __slots__ = (
        "_arrival",
        "_bytes",
        "_capacity_waiter",
        "_limits",
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
        """The queue was given up: handlers that still run have no effect on its offset."""
        self.leaving = False
        """The queue is being given up: an ordered delivery that runs is the last one."""
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self.last_lock_ms = 0
        self.locked_at_s: float | None = None
        """When the broker last granted its lock, by the monotonic clock; only for ordered queues."""
        self._unfinished: dict[int, MessageExt] = {}  # offset → message; pulls bring ascending offsets
        self._taken = 0  # how many of the first messages are consumed and not committed
        self._bytes = 0
        self._limits: CacheLimits | None = (
            None  # set while the pull loop waits until the queue is within them
        )
        self._capacity_waiter: asyncio.Future[None] | None = None
        self._arrival: asyncio.Future[None] | None = None

    def put(self, messages: Sequence[MessageExt], next_offset: int) -> None:
        """Adds the wanted messages of a pull that has read everything below `next_offset`."""
        unfinished = self._unfinished
        for message in messages:
            record = message.record
            # A pull that was repeated after a failure may bring a message twice.
            if record.queue_offset not in unfinished:
                unfinished[record.queue_offset] = message
                self._bytes += len(record.body)
        self.next_offset = next_offset
        if messages:
            _wake(self._arrival)

    def finish(self, messages: Iterable[MessageExt]) -> None:
        """Removes messages that are done; the pull loop continues when the queue is within its limits."""
        for message in messages:
            ended = self._unfinished.pop(message.record.queue_offset, None)
            if ended is not None:
                self._bytes -= len(ended.record.body)
        # Mostly the pull loop does not wait: then `_limits` is None.
        if self._limits is not None and not self.is_full(self._limits):
            self._limits = None
            _wake(self._capacity_waiter)

    def replace(self, message: MessageExt) -> None:
        """Replaces the unfinished message of the same offset, for another count of failures."""
        if message.offset in self._unfinished:
            self._unfinished[message.offset] = message

    def first(self, count: int) -> list[MessageExt]:
        """Returns up to `count` of the oldest unfinished messages, without kept ones; removes none."""
        # Dictionaries keep the order of insertion, which is that of the offsets: no sort is needed.
        return list(islice(self._unfinished.values(), self._taken, self._taken + count))

    def keep(self, count: int) -> None:
        """Marks the next `count` messages as consumed, not committed, until `commit` or `give_back`."""
        self._taken += count

    def commit(self, messages: Iterable[MessageExt]) -> None:
        """Finishes these messages, the next in order, and all before them that were marked by `keep`."""
        kept, self._taken = list(islice(self._unfinished.values(), self._taken)), 0
        self.finish([*kept, *messages])

    def give_back(self) -> None:
        """Lets all messages that were marked by `keep` be delivered again."""
        self._taken = 0

    def holds(self, message: MessageExt) -> bool:
        return message.offset in self._unfinished

    async def wait_for_capacity(self, limits: CacheLimits) -> None:
        """Waits until the queue is within the limits, or `wake` is called."""
        if self.is_full(limits):
            self._limits = limits
            self._capacity_waiter = asyncio.get_running_loop().create_future()
            await self._capacity_waiter

    async def arrival(self) -> None:
        """Waits until the next messages are put, or `wake` is called."""
        self._arrival = asyncio.get_running_loop().create_future()
        await self._arrival

    def wake(self) -> None:
        """Ends the waits in `wait_for_capacity` and `arrival`, so that the loops check the queue's state."""
        _wake(self._arrival)
        _wake(self._capacity_waiter)

    @property
    def committable(self) -> int:
        """The queue offset that may be committed: all messages below it are finished."""
        return next(iter(self._unfinished), self.next_offset)

    @property
    def count(self) -> int:
        return len(self._unfinished)

    @property
    def waiting(self) -> int:
        """How many messages are unfinished, without those marked by `keep`."""
        return len(self._unfinished) - self._taken

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def newest(self) -> int:
        """The highest unfinished offset; 0 when there is none, as Java's consumers report it."""
        return next(reversed(self._unfinished), 0)

    def is_full(self, limits: CacheLimits) -> bool:
        count = len(self._unfinished)
        if count > limits.messages or self._bytes > limits.bytes:
            return True
        return limits.span is not None and count > 0 and self.newest - self.committable > limits.span


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
