"""Offsets that are given out a second time: consumers that knew the first ones go back, and skip nothing.

A consumer outlives its broker, and a topic, and goes on where it was. When a crash cost the last messages of
the log, or a topic was deleted and made anew, their offsets are given to new messages, and that consumer
would skip those: it asks for, or commits, an offset that its group was never handed since. Such an offset is
void. Apache lets it pass, or sends the consumer to the end.

In: the offsets that groups are handed, and those that their consumers speak of. Out: which of these are void.
A consumer that asks where to begin, and is told nothing, begins where it likes: that is remembered with its
connection, so that it holds for no other of its group.
"""

from typing import Protocol


class Queue(Protocol):
    def first_at_or_after(self, physical: int) -> int: ...


class Queues(Protocol):
    def find_queue(self, topic: str, queue_id: int) -> Queue | None: ...


FREE = "begins where it likes"  # of a connection: group, topic and queue


class Fence:
    """`recovered_end` is where the log ended when the broker started, or None: nothing can have been lost."""

    def __init__(self, queues: Queues, recovered_end: int | None) -> None:
        self.is_up = recovered_end is not None
        self._queues = queues
        self._recovered_end = recovered_end
        self._anew: dict[str, int] = {}  # topic -> where the log ended when it was deleted
        self._handed: dict[tuple[str, str, int], int] = {}  # group, topic, queue -> the furthest offset

    def topic_deleted(self, topic: str, log_end: int) -> None:
        """Should it come back, its offsets begin anew."""
        self.is_up = True
        self._anew[topic] = log_end
        self._handed = {key: offset for key, offset in self._handed.items() if key[1] != topic}

    def group_deleted(self, group: str) -> None:
        self._handed = {key: offset for key, offset in self._handed.items() if key[0] != group}

    def handed(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group has been told of this offset."""
        if self.is_up:
            key = group, topic, queue_id
            self._handed[key] = max(offset, self._handed.get(key, 0))

    def begins_freely(self, peer: dict[str, object], group: str, topic: str, queue_id: int) -> None:
        free = peer.setdefault(FREE, set())
        assert isinstance(free, set)
        free.add((group, topic, queue_id))

    def is_void(self, peer: dict[str, object], group: str, topic: str, queue_id: int, offset: int) -> bool:
        """`peer` is what is remembered with the connection of who speaks of the offset."""
        key = group, topic, queue_id
        if not self.is_up or offset <= self._handed.get(key, 0):
            return False
        free = peer.get(FREE, ())
        if isinstance(free, set) and key in free:
            return False
        end = self.end(topic, queue_id)
        return end is not None and offset > end

    def end(self, topic: str, queue_id: int) -> int | None:
        """The first offset of a queue that was given out anew; None when there is none."""
        began = self._anew.get(topic, self._recovered_end)
        if began is None:
            return None
        queue = self._queues.find_queue(topic, queue_id)
        return queue.first_at_or_after(began) if queue is not None else 0
