"""The messages that a pull consumer has fetched and not given out yet, and the offsets it may commit.

Messages given out by one call count as done when the next call begins: a crash in between repeats them and
loses none. No socket here.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.process_queue import CacheLimits
from turbopump.protocol import bodies

MIB = 1 << 20


class PrefetchBuffer:
    """The fetched messages of one queue that are not given out yet, and the offset that may be committed."""

    def __init__(self, queue: MessageQueue, start: int) -> None:
        self.queue = queue
        self.next_offset = start
        """Where the next pull begins."""
        self.dropped = False
        """The queue was given up, or another buffer has its messages."""
        self.paused = False
        self.last_pull_ms = 0
        self.last_poll_ms = 0
        self._messages: deque[MessageExt] = deque()
        self._bytes = 0
        self._given_out: int | None = None  # the first offset that the current call gave out

    def put(self, messages: Sequence[MessageExt], next_offset: int) -> None:
        """Adds the messages of one pull; the next pull begins at `next_offset`."""
        self._messages.extend(messages)
        self._bytes += sum(len(message.record.body) for message in messages)
        self.next_offset = next_offset

    def take(self, max_count: int) -> list[MessageExt]:
        """Removes and returns the oldest messages, at most `max_count`; they are not done before `settle`."""
        given = [self._messages.popleft() for _ in range(min(max_count, len(self._messages)))]
        # Several takes may belong to one call: the first offset of the call holds back the commit.
        if given and self._given_out is None:
            self._given_out = given[0].offset
        self._bytes -= sum(len(message.record.body) for message in given)
        return given

    def settle(self) -> None:
        """Marks all messages that were given out as done: their offsets may be committed."""
        self._given_out = None

    def emptied(self) -> "PrefetchBuffer":
        """Returns a new buffer of the queue that pulls the messages again that were not given out yet."""
        copy = PrefetchBuffer(self.queue, self.position)
        copy.paused = self.paused
        copy._given_out = self._given_out
        return copy

    @property
    def position(self) -> int:
        """The queue offset of the next message to give out."""
        return self._messages[0].offset if self._messages else self.next_offset

    @property
    def done(self) -> int:
        """The queue offset that may be committed: all messages below it are done."""
        return self.position if self._given_out is None else self._given_out

    @property
    def is_ready(self) -> bool:
        return bool(self._messages) and not self.paused

    def is_full(self, limits: CacheLimits) -> bool:
        count = len(self._messages)
        if count >= limits.messages or self._bytes >= limits.bytes:
            return True
        return bool(count and limits.span) and self._messages[-1].offset - self.position > (limits.span or 0)

    def to_wire(self) -> bodies.ProcessQueueInfo:
        """Returns the state of the queue for tools, with Apache's field names."""
        return bodies.ProcessQueueInfo(
            commitOffset=self.done,
            cachedMsgCount=len(self._messages),
            cachedMsgMinOffset=self._messages[0].offset if self._messages else 0,
            cachedMsgMaxOffset=self._messages[-1].offset if self._messages else 0,
            cachedMsgSizeInMiB=self._bytes // MIB,
            droped=self.dropped,
            lastPullTimestamp=self.last_pull_ms,
            lastConsumeTimestamp=self.last_poll_ms,
        )

    def __len__(self) -> int:
        return len(self._messages)


class PrefetchBuffers:
    """The buffers of all assigned queues; `take` gives out messages of the queues in turns."""

    def __init__(self, limits: CacheLimits, max_total: int, per_turn: int, now_ms: Callable[[], int]) -> None:
        self._limits = limits
        self._now_ms = now_ms
        self._max_total = max_total
        self._per_turn = per_turn
        self._left_of_turn = per_turn
        self._buffers: dict[MessageQueue, PrefetchBuffer] = {}
        self._ready: deque[PrefetchBuffer] = deque()
        self._given_out: set[PrefetchBuffer] = set()
        self._count = 0

    def add(self, buffer: PrefetchBuffer) -> None:
        """Adds a buffer, in place of the queue's old one if there is one."""
        self.remove(buffer.queue)
        self._buffers[buffer.queue] = buffer
        if buffer.done != buffer.position:
            self._given_out.add(buffer)

    def remove(self, queue: MessageQueue) -> PrefetchBuffer | None:
        buffer = self._buffers.pop(queue, None)
        if buffer is not None:
            buffer.dropped = True
            self._count -= len(buffer)
            self._given_out.discard(buffer)
            self._update_ready(buffer)
        return buffer

    def put(self, buffer: PrefetchBuffer, messages: Sequence[MessageExt], next_offset: int) -> None:
        buffer.put(messages, next_offset)
        self._count += len(messages)
        self._update_ready(buffer)

    def take(self, max_count: int) -> list[MessageExt]:
        """Removes and returns messages of the queue whose turn it is; empty: no queue has any."""
        if not self._ready:
            return []
        buffer = self._ready[0]
        given = buffer.take(min(max_count, self._left_of_turn))
        buffer.last_poll_ms = self._now_ms()
        self._count -= len(given)
        self._given_out.add(buffer)
        self._left_of_turn -= len(given)
        # Its turn is over: to the back of the line, if it still has messages.
        if not buffer.is_ready or self._left_of_turn <= 0:
            self._ready.popleft()
            self._left_of_turn = self._per_turn
            self._update_ready(buffer)
        return given

    def settle(self) -> None:
        """Marks all messages that earlier calls gave out as done, because a new call begins."""
        for buffer in self._given_out:
            buffer.settle()
        self._given_out.clear()

    def pause(self, buffer: PrefetchBuffer, paused: bool) -> None:
        buffer.paused = paused
        self._update_ready(buffer)

    def is_full(self, buffer: PrefetchBuffer) -> bool:
        return self._count >= self._max_total or buffer.is_full(self._limits)

    def find(self, queue: MessageQueue) -> PrefetchBuffer | None:
        return self._buffers.get(queue)

    def __iter__(self) -> Iterator[PrefetchBuffer]:
        return iter(tuple(self._buffers.values()))

    def __len__(self) -> int:
        return len(self._buffers)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(sorted(self._buffers))

    @property
    def count(self) -> int:
        """How many messages all buffers hold together."""
        return self._count

    def _update_ready(self, buffer: PrefetchBuffer) -> None:
        """Enters the buffer into the turns of `take` if it can give messages, else removes it from them."""
        is_waiting = buffer in self._ready
        belongs = buffer.is_ready and self._buffers.get(buffer.queue) is buffer
        if belongs and not is_waiting:
            self._ready.append(buffer)
        elif is_waiting and not belongs:
            if self._ready[0] is buffer:
                self._left_of_turn = self._per_turn
            self._ready.remove(buffer)
