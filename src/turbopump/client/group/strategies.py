"""Allocation strategies: which queues a member of a group gets, exactly as in Apache's clients.

Every member computes its queues from the same two lists, so all members of a group, in whatever language,
must use the same strategy. A strategy takes the queues in order, the ids of the members in order and the id
of one of them; an id that is not among them gets nothing. Values in, values out.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import MessageQueue

T = TypeVar("T")

Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], tuple[MessageQueue, ...]]
"""Takes queues in order, member ids in order and one of these ids; returns the queues of that member."""


def averagely(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> tuple[MessageQueue, ...]:
    """Returns a contiguous part of the queues for `me`; a remainder goes to the first members, one each."""
    if me not in members:
        return ()
    size, rest = divmod(len(queues), len(members))
    index = members.index(me)
    start = index * size + min(index, rest)
    return tuple(queues[start : start + size + (index < rest)])


def by_circle(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> tuple[MessageQueue, ...]:
    """Returns the queues of `me` when the queues go to the members one by one, in turn."""
    if me not in members:
        return ()
    return tuple(queues[members.index(me) :: len(members)])


def md5_hash(text: str) -> int:
    """Returns the first 32 bits of the MD5 of a text, as a number that is not negative."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """A strategy that assigns queues on a hash ring, so that few move when a member joins or leaves.

    Each member has several points on the ring; a queue belongs to the next point after its own hash.
    """

    virtual_nodes: int = 10
    hash: Callable[[str], int] = md5_hash

    def __post_init__(self) -> None:
        if self.virtual_nodes < 0:
            raise InvalidArgument(f"virtual_nodes must be at least 0, got {self.virtual_nodes}")

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> tuple[MessageQueue, ...]:
        if me not in members or not self.virtual_nodes:
            return ()
        owners = {self.hash(f"{one}-{k}"): one for one in members for k in range(self.virtual_nodes)}
        ring = sorted(owners)

        def owner(queue: MessageQueue) -> str:
            return owners[ring[bisect_left(ring, self.hash(_java_text(queue))) % len(ring)]]

        return tuple(queue for queue in queues if owner(queue) == me)


@dataclass(frozen=True, slots=True)
class ByConfig:
    """A strategy that always returns the configured queues, whatever queues and members there are."""

    queues: tuple[MessageQueue, ...]

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> tuple[MessageQueue, ...]:
        return self.queues


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """A strategy that divides only the queues of brokers in `rooms`, with names such as `room@broker-a`."""

    rooms: Collection[str]

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> tuple[MessageQueue, ...]:
        if me not in members:
            return ()
        near = [queue for queue in queues if self._is_here(queue.broker)]
        size, rest = divmod(len(near), len(members))
        index = members.index(me)
        own = near[index * size : (index + 1) * size]
        if index < rest:
            own.append(near[index + size * len(members)])
        return tuple(own)

    def _is_here(self, broker: str) -> bool:
        parts = broker.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """A strategy that gives queues of a machine room to members in that room, by the `inner` strategy.

    Queues of rooms without a member are divided among all members.

    >>> nearby = MachineRoomNearby(
    ...     averagely,
    ...     room_of_queue=lambda queue: queue.broker.split("-")[0],
    ...     room_of_member=lambda client_id: client_id.split("-")[0],
    ... )
    """

    inner: Strategy
    room_of_queue: Callable[[MessageQueue], str]
    room_of_member: Callable[[str], str]

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> tuple[MessageQueue, ...]:
        if me not in members:
            return ()
        queues_of = _by_room(queues, self.room_of_queue)
        members_of = _by_room(members, self.room_of_member)
        here = self.room_of_member(me)
        own = list(self.inner(queues_of.pop(here, []), members_of[here], me))
        for room in sorted(queues_of):
            if room not in members_of:
                own += self.inner(queues_of[room], members, me)
        return tuple(own)


def _by_room(things: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise InvalidArgument(f"the machine room of {thing} must not be empty")
        rooms.setdefault(room, []).append(thing)
    return rooms


def _java_text(queue: MessageQueue) -> str:
    """Returns a queue as Java's `MessageQueue.toString()`, which consistent hashing hashes."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.id}]"
