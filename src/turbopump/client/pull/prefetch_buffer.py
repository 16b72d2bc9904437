"""What a pull consumer holds: messages of each queue from the pull that brought them until they are given
out, and which of them it may commit. No socket here.

Messages of one call are the user's until the next call: only then they count as done. So a crash in between
repeats them and loses none.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.process_queue import CacheLimits
from turbopump.protocol import bodies

MIB = 1 << 20


class PrefetchBuffer:
    """Of one queue."""

    def __init__(self, queue: MessageQueue, start: int) -> None:
        self.queue = queue
        self.next_offset = start
        """Where the next pull begins."""
        self.dropped = False
        """The queue is not ours any more, or another shelf has its messages."""
        self.paused = False
        self.last_pull_ms = 0
        self.last_poll_ms = 0
        self._messages: deque[MessageExt] = deque()
        self._bytes = 0
        self._in_hand: int | None = None  # the first offset that the current call gave out

    def put(self, messages: Sequence[MessageExt], next_offset: int) -> None:
        self._messages.extend(messages)
        self._bytes += sum(len(message.record.body) for message in messages)
        self.next_offset = next_offset

    def take(self, most: int) -> list[MessageExt]:
        given = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
        if given and self._in_hand is None:
            self._in_hand = given[0].offset
        self._bytes -= sum(len(message.record.body) for message in given)
        return given

    def settle(self) -> None:
        """What was given out is done."""
        self._in_hand = None

    def emptied(self) -> "PrefetchBuffer":
        """The same without the messages that were not given out yet: they are to be pulled again."""
        anew = PrefetchBuffer(self.queue, self.position)
        anew.paused = self.paused
        anew._in_hand = self._in_hand
        return anew

    @property
    def position(self) -> int:
        """The first offset that has not been given out."""
        return self._messages[0].offset if self._messages else self.next_offset

    @property
    def done(self) -> int:
        """The first offset that is not done."""
        return self.position if self._in_hand is None else self._in_hand

    @property
    def is_ready(self) -> bool:
        return bool(self._messages) and not self.paused

    def is_full(self, limits: CacheLimits) -> bool:
        count = len(self._messages)
        if count >= limits.messages or self._bytes >= limits.bytes:
            return True
        return bool(count and limits.span) and self._messages[-1].offset - self.position > (limits.span or 0)

    def to_wire(self) -> bodies.ProcessQueueInfo:
        """As tools want to see it."""
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
    """Of all queues that are ours. Each gives some of its messages, then it is the next one's turn."""

    def __init__(self, limits: CacheLimits, most_of_all: int, turn: int, now_ms: Callable[[], int]) -> None:
        self._limits = limits
        self._now_ms = now_ms
        self._most_of_all = most_of_all
        self._turn = turn
        self._left_of_turn = turn
        self._shelves: dict[MessageQueue, PrefetchBuffer] = {}
        self._ready: deque[PrefetchBuffer] = deque()
        self._in_hand: set[PrefetchBuffer] = set()
        self._count = 0

    def add(self, shelf: PrefetchBuffer) -> None:
        """Instead of the one that the queue had, if any."""
        self.remove(shelf.queue)
        self._shelves[shelf.queue] = shelf
        if shelf.done != shelf.position:
            self._in_hand.add(shelf)

    def remove(self, queue: MessageQueue) -> PrefetchBuffer | None:
        shelf = self._shelves.pop(queue, None)
        if shelf is not None:
            shelf.dropped = True
            self._count -= len(shelf)
            self._in_hand.discard(shelf)
            self._look(shelf)
        return shelf

    def put(self, shelf: PrefetchBuffer, messages: Sequence[MessageExt], next_offset: int) -> None:
        shelf.put(messages, next_offset)
        self._count += len(messages)
        self._look(shelf)

    def take(self, most: int) -> list[MessageExt]:
        """Of one queue; empty: nothing is there now."""
        if not self._ready:
            return []
        shelf = self._ready[0]
        given = shelf.take(min(most, self._left_of_turn))
        shelf.last_poll_ms = self._now_ms()
        self._count -= len(given)
        self._in_hand.add(shelf)
        self._left_of_turn -= len(given)
        if not shelf.is_ready or self._left_of_turn <= 0:
            self._ready.popleft()
            self._left_of_turn = self._turn
            self._look(shelf)
        return given

    def settle(self) -> None:
        """A new call begins: what earlier ones gave out is done."""
        for shelf in self._in_hand:
            shelf.settle()
        self._in_hand.clear()

    def pause(self, shelf: PrefetchBuffer, paused: bool) -> None:
        shelf.paused = paused
        self._look(shelf)

    def is_full(self, shelf: PrefetchBuffer) -> bool:
        return self._count >= self._most_of_all or shelf.is_full(self._limits)

    def find(self, queue: MessageQueue) -> PrefetchBuffer | None:
        return self._shelves.get(queue)

    def __iter__(self) -> Iterator[PrefetchBuffer]:
        return iter(tuple(self._shelves.values()))

    def __len__(self) -> int:
        return len(self._shelves)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(sorted(self._shelves))

    @property
    def count(self) -> int:
        """Messages that are held."""
        return self._count

    def _look(self, shelf: PrefetchBuffer) -> None:
        """Is it among those whose turn comes?"""
        is_waiting = shelf in self._ready
        belongs = shelf.is_ready and self._shelves.get(shelf.queue) is shelf
        if belongs and not is_waiting:
            self._ready.append(shelf)
        elif is_waiting and not belongs:
            if self._ready[0] is shelf:
                self._left_of_turn = self._turn
            self._ready.remove(shelf)
