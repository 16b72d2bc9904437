"""Which delayed messages wait and which are due: a state machine without a clock and without a disk.

In: the entries of the queues of SCHEDULE_TOPIC_XXXX as they appear, and which of them are done. Out: what to
read next, what is due, and which positions to save.

The entries of a queue are in the order of the log. As long as a level has one delay that is the order of
delivery too, and one offset describes the queue. It is not when the delay of a level was changed, when a
message was rewritten before its file was deleted, or when the clock was set back: then the queue falls into
runs, each in the order of delivery, and each is delivered by itself. So no message waits behind one that is
due later, and memory grows with the number of runs, not of messages.

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
    """The entries of a delay queue that are not delivered: those in `ranges`, and all from `rest` on."""

    rest: int
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def first(self) -> int:
        """The queue offset before which everything is delivered: all that Apache saves of a queue."""
        return self.ranges[0][0] if self.ranges else self.rest


@dataclass(eq=False, slots=True)
class DueRun:
    """Adjacent entries of a delay queue, `at` to before `end`, each due no earlier than the one before."""

    queue_id: int
    at: int
    end: int
    due_ms: int  # of the first
    last_due_ms: int

    def __len__(self) -> int:
        return self.end - self.at


@dataclass(slots=True)
class _Queue:
    unread: deque[tuple[int, int]]  # ranges of the saved position that were not read since
    rest: int  # everything before was read, is in `unread`, or is done
    last: DueRun | None = None
    runs: dict[DueRun, None] = field(default_factory=dict)


class PendingDelays:
    """The runs of waiting messages of all delay levels, by when the first message of each run is due."""

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}
        self._heads: list[tuple[int, int, int, DueRun]] = []  # a heap: due, number, place, run
        self._number = 0
        self._done: set[int] = set()

    # what happens

    def resume(self, queue_id: int, position: QueuePosition, low: int, high: int) -> None:
        """Adds a queue with its saved position, cut to the entries that it has: `low` to before `high`.

        A queue of the same number that was added before is dropped: it was deleted and created again.
        """
        for run in self._queues[queue_id].runs if queue_id in self._queues else ():
            run.at = run.end  # empty: `_head` drops it from the heap
        ranges = ((max(begin, low), min(end, high)) for begin, end in position.ranges)
        unread = deque((begin, end) for begin, end in ranges if begin < end)
        self._queues[queue_id] = _Queue(unread, min(max(position.rest, low), high))

    def were_done(self, log_offsets: Iterable[int]) -> None:
        """Notes originals (physical offsets) that were delivered or rewritten after the position was saved.

        `saw` leaves them out.
        """
        self._done.update(log_offsets)

    def forget_done(self) -> None:
        """Drops the offsets of `were_done` that `saw` did not meet; call it when all entries were read.

        Their messages are deleted from the queues.
        """
        self._done.clear()

    def saw(self, queue_id: int, offset: int, entries: Iterable[Entry]) -> None:
        """Sorts entries of a queue into runs. `offset` is that of the first entry: the begin of `wanted`."""
        queue = self._queues[queue_id]
        run = queue.last
        for physical, _, due_ms in entries:
            if physical in self._done:
                # Delivered before a crash: the run ends here, since runs have no gaps.
                self._done.discard(physical)
                run = None
            elif run is not None and run.end == offset and due_ms >= run.last_due_ms:
                # The run grows in place. Its key in the heap, the time of its first entry, stays valid.
                run.end = offset + 1
                run.last_due_ms = due_ms
            else:
                # The first entry, one after a gap, or one due earlier than its neighbour: a new run.
                run = DueRun(queue_id, offset, offset + 1, due_ms, due_ms)
                queue.runs[run] = None
                self._push(run)
            offset += 1
        queue.last = run
        self._looked_at(queue, offset)

    def done(self, run: DueRun, count: int, next_due_ms: int) -> None:
        """Removes the first `count` (at least one) entries of a run, which were delivered or rewritten.

        `next_due_ms`: when the entry after them is due, if there is one.
        """
        queue = self._queues[run.queue_id]
        run.at += count
        if run.at < run.end:
            run.due_ms = next_due_ms
            self._push(run)
            return
        del queue.runs[run]
        # A finished run must not grow: it is no longer in the heap.
        if queue.last is run:
            queue.last = None

    def put_off(self, run: DueRun, due_ms: int) -> None:
        """Postpones the whole run: its first entry counts as due at `due_ms`."""
        run.due_ms = due_ms
        self._push(run)

    # what is to do

    def wanted(self, queue_id: int, high: int) -> tuple[int, int] | None:
        """Returns the next range (begin, end) to read, in a queue that ends at `high`; None: all was read."""
        queue = self._queues[queue_id]
        if queue.unread:
            return queue.unread[0]
        return (queue.rest, high) if queue.rest < high else None

    def due(self, now_ms: int) -> DueRun | None:
        """Returns the run whose first message is most overdue; None when no message is due."""
        run = self._head()
        return run if run is not None and run.due_ms <= now_ms else None

    @property
    def next_due_ms(self) -> int | None:
        run = self._head()
        return None if run is None else run.due_ms

    def runs(self) -> Iterator[DueRun]:
        """Yields all runs of waiting messages. Runs may be shortened or finished during the iteration."""
        for queue in list(self._queues.values()):
            yield from list(queue.runs)

    # what is known

    def position(self, queue_id: int) -> QueuePosition:
        """Returns which entries of a queue are not delivered, in as few ranges as possible."""
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
        # A run may be in the heap several times; `_head` accepts only the entry that matches it. The number
        # keeps equal times in order, and keeps runs from being compared.
        heapq.heappush(self._heads, (run.due_ms, self._number, run.at, run))

    def _head(self) -> DueRun | None:
        heads = self._heads
        while heads:
            due_ms, _, at, run = heads[0]
            if run.at == at and run.due_ms == due_ms and run:
                return run
            heapq.heappop(heads)  # stale: finished, advanced or postponed since
        return None
