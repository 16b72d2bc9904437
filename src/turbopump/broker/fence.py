"""After a crash that cost the end of the log: consumers that were beyond it go back to where it ends now.

A consumer outlives the broker and goes on where it was. When the machine lost the last messages, their
offsets are given to new ones, and that consumer would skip those: it asks for an offset that this life of the
broker reached without it. Such a pull, the first of its group on that queue since the start, is sent back to
the first message of this life. Apache lets it pass.

In: which group asks for which offset. Out: where it has to go back to. A group is trusted with a queue once
it has asked where to begin, or has pulled from within what there was.
"""

from typing import Protocol


class Queue(Protocol):
    def first_at_or_after(self, physical: int) -> int: ...


class Queues(Protocol):
    def find_queue(self, topic: str, queue_id: int) -> Queue | None: ...


class Fence:
    """`recovered_end` is where the log ended when the broker started, or None: nothing can have been lost."""

    def __init__(self, queues: Queues, recovered_end: int | None) -> None:
        self.is_up = recovered_end is not None
        self._queues = queues
        self._recovered_end = recovered_end or 0
        self._trusted: set[tuple[str, str, int]] = set()

    def trust(self, group: str, topic: str, queue_id: int) -> None:
        if self.is_up:
            self._trusted.add((group, topic, queue_id))

    def back_to(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """Where a consumer at `offset` has to go back to; None when it may go on."""
        if not self.is_up or (group, topic, queue_id) in self._trusted:
            return None
        queue = self._queues.find_queue(topic, queue_id)
        end = queue.first_at_or_after(self._recovered_end) if queue is not None else 0
        return end if offset > end else None
