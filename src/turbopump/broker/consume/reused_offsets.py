"""Detects void consumer offsets, which the broker assigned again to new messages after a crash or deletion.

A consumer outlives its broker, and a topic, and goes on where it was. When a crash cost the last messages of
the log, or a topic was deleted and created again, their offsets are assigned to new messages, and that
consumer would skip those: it pulls or commits an offset that its group has not been given since. Such an
offset is void. Apache accepts it, or sends the consumer to the end of the queue.

In: the offsets that consumers are given, and those that they pull or commit. Out: which of these are void.
An offset given to one member of a group proves nothing about another member, which may know the offset from
before, so offsets are recorded per connection. So is a member that asked for its first offset and was given
none: it may start at any offset.

What a slave gave to a consumer, out of a copy of this log, counts as well (`slave_reused_offsets.py`).
"""

from collections.abc import Callable
from typing import Protocol

from turbopump.store.queues import ConsumeQueues


class Peer(Protocol):
    """Interface of a consumer's connection: its attributes and its address (host, port)."""

    attributes: dict[str, object]
    peer: tuple[str, int]


Key = tuple[str, str, int, int]
"""Group, topic, queue, and generation of the topic (where the log ended when it was last deleted)."""

Crash = tuple[int, int]
"""Where the log ended after a crash or a promotion, and when that was in milliseconds since 1970."""

# Keys of a connection's attributes.
FREE, HANDED = "begins where it likes", "furthest offsets handed"
CLIENT_ID = "client id"
MAX_HOSTS = 200_000  # entries of (host, group, queue) that were given an offset; beyond it the oldest goes
FIRST_GENERATION = -1
# A consumer that cannot reach its broker for two minutes asks again for its first offset.
JUDGED_S = 180.0


class ReusedOffsets:
    """Records the furthest offset given to each consumer, to detect offsets that were assigned twice.

    `recovered_end` is where the log ended when the broker started, or None when nothing can have been lost.
    """

    def __init__(self, queues: ConsumeQueues, recovered_end: int | None) -> None:
        self.is_active = recovered_end is not None
        self._queues = queues
        self._recovered_end = recovered_end
        self._deleted_at: dict[str, int] = {}  # topic -> where the log ended when it was deleted
        self._set_by_tool: dict[Key, int] = {}  # the furthest offset that a tool has set for the whole group
        self._hosts: dict[tuple[str, Key], int] = {}  # the furthest offset given to any connection of a host
        self._by_slaves: dict[tuple[str, Key], int] = {}  # the furthest offset that slaves gave a consumer

    def topic_deleted(self, topic: str, log_end: int) -> None:
        """Records a topic's deletion: offsets given before are void once the topic is created again.

        `log_end` is where the log ended then. The offsets of the new topic start at 0.
        """
        self.is_active = True
        self._deleted_at[topic] = log_end
        self._forget(lambda key: key[1] == topic)

    def group_deleted(self, group: str) -> None:
        """Forgets the offsets recorded for a deleted group."""
        self._forget(lambda key: key[0] == group)

    def _forget(self, is_gone: Callable[[Key], bool]) -> None:
        self._set_by_tool = {key: offset for key, offset in self._set_by_tool.items() if not is_gone(key)}
        self._hosts = {place: offset for place, offset in self._hosts.items() if not is_gone(place[1])}
        self._by_slaves = {
            place: offset for place, offset in self._by_slaves.items() if not is_gone(place[1])
        }

    def set_by_tool(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Records an offset that a tool set for a group: all members may pull and commit up to it."""
        if self.is_active:
            key = self._key(group, topic, queue_id)
            self._set_by_tool[key] = max(offset, self._set_by_tool.get(key, 0))

    def handed(self, peer: Peer, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Records an offset that the broker gave this consumer, which may pull and commit up to it."""
        if not self.is_active:
            return
        key = self._key(group, topic, queue_id)
        handed = _offsets(peer)
        handed[key] = max(offset, handed.get(key, 0))
        _raise(self._hosts, (peer.peer[0], key), offset)

    def given_by_slave(self, consumer: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Records an offset that a slave gave a consumer (`identity`) out of its copy of this log.

        Not for a topic that was deleted here: the slave may have had the messages of the old one.
        """
        if self.is_active and topic not in self._deleted_at:
            _raise(self._by_slaves, (consumer, self._key(group, topic, queue_id)), offset)

    def may_start_anywhere(self, peer: Peer, group: str, topic: str, queue_id: int) -> None:
        """Lets this consumer use any offset of the queue: the broker had no first offset to give it."""
        free = peer.attributes.setdefault(FREE, set())
        assert isinstance(free, set)
        free.add(self._free_key(group, topic, queue_id))

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
        """Returns whether an offset, perhaps assigned twice, is neither committed nor given to this consumer.

        What the peer's group has `committed`, the peer may know from any member. Old clients commit over a
        separate connection, which is given no offsets: then the offsets given to its host count.
        """
        if not self.is_active or offset <= committed:
            return False
        key = self._key(group, topic, queue_id)
        handed = _offsets(peer).get(key)
        if handed is None and is_commit:
            handed = self._hosts.get((peer.peer[0], key))
        given = self._by_slaves.get((identity(peer), key), 0) if self._by_slaves else 0
        if offset <= max(handed or 0, self._set_by_tool.get(key, 0), given):
            return False
        free = peer.attributes.get(FREE, ())
        if isinstance(free, set) and self._free_key(group, topic, queue_id) in free:
            return False
        end = self.end(topic, queue_id)
        return end is not None and offset > end and self._is_judged(peer, key, offset, is_commit)

    def _is_judged(self, peer: Peer, key: Key, offset: int, is_commit: bool) -> bool:
        """Returns whether an offset counts as void that was neither given nor committed here."""
        return True

    def end(self, topic: str, queue_id: int) -> int | None:
        """Returns the first queue offset that was or can be assigned a second time; None if there is none."""
        began = self._deleted_at.get(topic, self._recovered_end)
        if began is None:
            return None
        queue = self._queues.find(topic, queue_id)
        return queue.first_at_or_after(began) if queue is not None else 0

    def _key(self, group: str, topic: str, queue_id: int) -> Key:
        return group, topic, queue_id, self._deleted_at.get(topic, FIRST_GENERATION)

    def _free_key(self, group: str, topic: str, queue_id: int) -> Key:
        """Returns the key under which a consumer may start anywhere."""
        return self._key(group, topic, queue_id)


def identity(peer: Peer) -> str:
    """Returns what a consumer is known by at all brokers: its client id, or its host before a heartbeat."""
    client_id = peer.attributes.get(CLIENT_ID)
    return client_id if isinstance(client_id, str) else peer.peer[0]


def _raise(table: dict[tuple[str, Key], int], place: tuple[str, Key], offset: int) -> None:
    # `pop` moves the entry to the end of the dict: the first one is the oldest.
    table[place] = max(offset, table.pop(place, 0))
    if len(table) > MAX_HOSTS:
        del table[next(iter(table))]


def _offsets(peer: Peer) -> dict[Key, int]:
    handed = peer.attributes.setdefault(HANDED, {})
    assert isinstance(handed, dict)
    return handed
