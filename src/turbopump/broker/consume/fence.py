"""Offsets that are given out a second time: consumers that knew the first ones go back, and skip nothing.

A consumer outlives its broker, and a topic, and goes on where it was. When a crash cost the last messages of
the log, or a topic was deleted and made anew, their offsets are given to new messages, and that consumer
would skip those: it asks for, or commits, an offset that its group was never handed since. Such an offset is
void. Apache lets it pass, or sends the consumer to the end.

In: the offsets that consumers are handed, and those that they speak of. Out: which of these are void. What
one member of a group was handed says nothing of another, which may know the offset from before, so it is
remembered with the connection. So is who asked where to begin and was told nothing: it begins where it likes.
"""

from collections.abc import Callable
from typing import Protocol


class Queue(Protocol):
    def first_at_or_after(self, physical: int) -> int: ...


class Queues(Protocol):
    def find(self, topic: str, queue_id: int) -> Queue | None: ...


class Peer(Protocol):
    """A connection."""

    attributes: dict[str, object]
    peer: tuple[str, int]


Key = tuple[str, str, int, int]
"""Group, topic, queue, and which life of the topic."""

FREE, HANDED = "begins where it likes", "furthest offsets handed"  # of a connection
MAX_HOSTS = 200_000  # of those that were handed something, with group and queue
FIRST_LIFE = -1


class ReusedOffsets:
    """`recovered_end` is where the log ended when the broker started, or None: nothing can have been lost."""

    def __init__(self, queues: Queues, recovered_end: int | None) -> None:
        self.is_up = recovered_end is not None
        self._queues = queues
        self._recovered_end = recovered_end
        self._anew: dict[str, int] = {}  # topic -> where the log ended when it was deleted
        self._told: dict[Key, int] = {}  # the furthest offset that a tool has set for all of the group
        self._hosts: dict[tuple[str, Key], int] = {}  # the furthest offset that any connection from there got

    def topic_deleted(self, topic: str, log_end: int) -> None:
        """Should it come back, its offsets begin anew."""
        self.is_up = True
        self._anew[topic] = log_end
        self._forget(lambda key: key[1] == topic)

    def group_deleted(self, group: str) -> None:
        self._forget(lambda key: key[0] == group)

    def _forget(self, is_gone: Callable[[Key], bool]) -> None:
        self._told = {key: offset for key, offset in self._told.items() if not is_gone(key)}
        self._hosts = {place: offset for place, offset in self._hosts.items() if not is_gone(place[1])}

    def told(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A tool has moved the group there: all of it may speak of this offset."""
        if self.is_up:
            key = self._key(group, topic, queue_id)
            self._told[key] = max(offset, self._told.get(key, 0))

    def handed(self, peer: Peer, group: str, topic: str, queue_id: int, offset: int) -> None:
        """This consumer has been told of this offset."""
        if not self.is_up:
            return
        key = self._key(group, topic, queue_id)
        handed = _offsets(peer)
        handed[key] = max(offset, handed.get(key, 0))
        place = peer.peer[0], key
        self._hosts[place] = max(offset, self._hosts.pop(place, 0))
        if len(self._hosts) > MAX_HOSTS:
            del self._hosts[next(iter(self._hosts))]

    def begins_freely(self, peer: Peer, group: str, topic: str, queue_id: int) -> None:
        free = peer.attributes.setdefault(FREE, set())
        assert isinstance(free, set)
        free.add(self._key(group, topic, queue_id))

    def is_void(
        self,
        peer: Peer,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        committed: int,
        is_commit: bool = False,
    ) -> bool:
        """Whether the peer cannot have this offset from us. What its group has `committed` it may know from
        anybody. Old clients commit over a connection of its own, which is handed nothing: then what counts is
        what was handed to its host.
        """
        if not self.is_up or offset <= committed:
            return False
        key = self._key(group, topic, queue_id)
        handed = _offsets(peer).get(key)
        if handed is None and is_commit:
            handed = self._hosts.get((peer.peer[0], key))
        if offset <= max(handed or 0, self._told.get(key, 0)):
            return False
        free = peer.attributes.get(FREE, ())
        if isinstance(free, set) and key in free:
            return False
        end = self.end(topic, queue_id)
        return end is not None and offset > end

    def end(self, topic: str, queue_id: int) -> int | None:
        """The first offset of a queue that was given out anew; None when there is none."""
        began = self._anew.get(topic, self._recovered_end)
        if began is None:
            return None
        queue = self._queues.find(topic, queue_id)
        return queue.first_at_or_after(began) if queue is not None else 0

    def _key(self, group: str, topic: str, queue_id: int) -> Key:
        return group, topic, queue_id, self._anew.get(topic, FIRST_LIFE)


def _offsets(peer: Peer) -> dict[Key, int]:
    handed = peer.attributes.setdefault(HANDED, {})
    assert isinstance(handed, dict)
    return handed
