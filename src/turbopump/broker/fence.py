"""Offsets that are given out a second time: consumers that knew the first ones go back, and skip nothing.

A consumer outlives its broker, and a topic, and goes on where it was. When a crash cost the last messages of
the log, or a topic was deleted and made anew, their offsets are given to new messages, and that consumer
would skip those: it asks for an offset that was reached without it. Such a pull, the first of its group on
that queue since then, is sent back to the first message that came after. Apache lets it pass, or sends it to
the end.

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
        self._recovered_end = recovered_end
        self._anew: dict[str, int] = {}  # topic -> where the log ended when it was deleted
        self._trusted: set[tuple[str, str, int]] = set()

    def topic_deleted(self, topic: str, log_end: int) -> None:
        """Should it come back, its offsets begin anew."""
        self.is_up = True
        self._anew[topic] = log_end
        self._trusted = {key for key in self._trusted if key[1] != topic}

    def group_deleted(self, group: str) -> None:
        self._trusted = {key for key in self._trusted if key[0] != group}

    def trust(self, group: str, topic: str, queue_id: int) -> None:
        if self.is_up:
            self._trusted.add((group, topic, queue_id))

    def back_to(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """Where a consumer at `offset` has to go back to; None when it may go on."""
        began = self._anew.get(topic, self._recovered_end)
        if began is None or (group, topic, queue_id) in self._trusted:
            return None
        queue = self._queues.find_queue(topic, queue_id)
        end = queue.first_at_or_after(began) if queue is not None else 0
        return end if offset > end else None
