"""Which delayed messages wait, and which of them are due: a state machine without a clock and without a disk.

In: the entries of the queues of SCHEDULE_TOPIC_XXXX as they appear, and word of those that are done. Out:
what to read next, what is due, and what to write down about it.

The entries of a queue are in the order of the log. As long as a level has one delay that is the order of
delivery too, and one place in the queue says it all. It is not when the delay of a level was changed, when a
message was written anew before its file was deleted, or when the clock was set back: then the queue falls
into runs, each in the order of delivery, and each is worked off by itself. So nothing waits behind a message
that is due later, and memory goes with the number of runs, not of messages.

    queue    0 1 2 3 4 5 6 7 8 9          due at   10 20 30 40 | 25 35 45 | 41 42 43
    runs     0-3, 4-6, 7-9                at time 41, done are 0-3, 4-5 and 7: two runs wait, 6 and 8-9
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Entry = tuple[int, int, int]
"""Where the record lies in the log, its size, and when it is due (ms)."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """What of a queue waits: the entries in `ranges`, and all from `rest` on."""

    rest: int
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def first(self) -> int:
        """Everything before is done: all that Apache keeps of a queue."""
        return self.ranges[0][0] if self.ranges else self.rest


@dataclass(eq=False, slots=True)
class DueRun:
    """Neighbours in a queue, from `at` to before `end`, each due no earlier than the one before."""

    queue_id: int
    at: int
    end: int
    due_ms: int  # of the first
    last_due_ms: int

    def __len__(self) -> int:
        return self.end - self.at


@dataclass(slots=True)
class _Queue:
    unread: deque[tuple[int, int]]  # ranges that waited when they were written down, not looked at since
    rest: int  # everything before was looked at, or is unread, or is done
    last: DueRun | None = None
    runs: dict[DueRun, None] = field(default_factory=dict)


class PendingDelays:
    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}
        self._heads: list[tuple[int, int, int, DueRun]] = []  # a heap: due, number, place, run
        self._number = 0
        self._done: set[int] = set()

    # what happens

    def resume(self, queue_id: int, position: QueuePosition, low: int, high: int) -> None:
        """A queue as it was left, which has entries from `low` to before `high` now. One that was known is
        forgotten: it was deleted and made again.
        """
        for run in self._queues[queue_id].runs if queue_id in self._queues else ():
            run.at = run.end
        ranges = ((max(begin, low), min(end, high)) for begin, end in position.ranges)
        unread = deque((begin, end) for begin, end in ranges if begin < end)
        self._queues[queue_id] = _Queue(unread, min(max(position.rest, low), high))

    def were_done(self, log_offsets: Iterable[int]) -> None:
        """Messages that turn out to be delivered, or written anew, after that was written down."""
        self._done.update(log_offsets)

    def forget_done(self) -> None:
        """Everything was looked at: what is left of them is long gone."""
        self._done.clear()

    def saw(self, queue_id: int, offset: int, entries: Iterable[Entry]) -> None:
        """The entries from `offset` on, which was the first of `wanted`."""
        queue = self._queues[queue_id]
        run = queue.last
        for physical, _, due_ms in entries:
            if physical in self._done:
                self._done.discard(physical)
                run = None
            elif run is not None and run.end == offset and due_ms >= run.last_due_ms:
                run.end = offset + 1
                run.last_due_ms = due_ms
            else:
                run = DueRun(queue_id, offset, offset + 1, due_ms, due_ms)
                queue.runs[run] = None
                self._push(run)
            offset += 1
        queue.last = run
        self._looked_at(queue, offset)

    def done(self, run: DueRun, count: int, next_due_ms: int) -> None:
        """The first `count` (at least one) of a run are delivered, written anew or gone. `next_due_ms`: when
        the one after them is due, if there is one.
        """
        queue = self._queues[run.queue_id]
        run.at += count
        if run.at < run.end:
            run.due_ms = next_due_ms
            self._push(run)
            return
        del queue.runs[run]
        if queue.last is run:
            queue.last = None

    def put_off(self, run: DueRun, due_ms: int) -> None:
        """The first of a run is not to be delivered before."""
        run.due_ms = due_ms
        self._push(run)

    # what is to do

    def wanted(self, queue_id: int, high: int) -> tuple[int, int] | None:
        """From where on and up to where entries have to be looked at, when the queue ends at `high`."""
        queue = self._queues[queue_id]
        if queue.unread:
            return queue.unread[0]
        return (queue.rest, high) if queue.rest < high else None

    def due(self, now_ms: int) -> DueRun | None:
        """The run whose first message has waited longest beyond its time; None when no message is due."""
        run = self._head()
        return run if run is not None and run.due_ms <= now_ms else None

    @property
    def next_due_ms(self) -> int | None:
        run = self._head()
        return None if run is None else run.due_ms

    def runs(self) -> Iterator[DueRun]:
        """All of them; they may be worked off meanwhile."""
        for queue in list(self._queues.values()):
            yield from list(queue.runs)

    # what is known

    def position(self, queue_id: int) -> QueuePosition:
        """What waits in a queue, in as few words as possible."""
        queue = self._queues[queue_id]
        ranges: list[tuple[int, int]] = []
        for begin, end in sorted([*((run.at, run.end) for run in queue.runs), *queue.unread]):
            if ranges and ranges[-1][1] == begin:
                ranges[-1] = ranges[-1][0], end
            else:
                ranges.append((begin, end))
        rest = queue.rest
        if ranges and ranges[-1][1] == rest:
            rest = ranges.pop()[0]
        return QueuePosition(rest, tuple(ranges))

    def positions(self) -> dict[int, QueuePosition]:
        return {queue_id: self.position(queue_id) for queue_id in sorted(self._queues)}

    # parts

    def _looked_at(self, queue: _Queue, end: int) -> None:
        if not queue.unread:
            queue.rest = end
        elif end < queue.unread[0][1]:
            queue.unread[0] = end, queue.unread[0][1]
        else:
            queue.unread.popleft()

    def _push(self, run: DueRun) -> None:
        self._number += 1
        heapq.heappush(self._heads, (run.due_ms, self._number, run.at, run))

    def _head(self) -> DueRun | None:
        heads = self._heads
        while heads:
            due_ms, _, at, run = heads[0]
            if run.at == at and run.due_ms == due_ms and run:
                return run
            heapq.heappop(heads)  # worked off, moved on or put off since
        return None
