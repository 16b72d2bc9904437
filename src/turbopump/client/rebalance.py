"""Which queues of a topic are whose.

Nobody decides this centrally: every member of a group computes it from the same two lists, so the rule must
be the same in all members, in whatever language they are written. Values in, values out.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from turbopump.client.message import MessageQueue

Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], tuple[MessageQueue, ...]]
"""Queues in order, member ids in order, one of these ids: the queues of that member. Unknown ids get none."""


def averagely(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> tuple[MessageQueue, ...]:
    """Runs of neighbouring queues; when they do not divide evenly, the first members have one more."""
    if me not in members:
        return ()
    size, rest = divmod(len(queues), len(members))
    index = members.index(me)
    start = index * size + min(index, rest)
    return tuple(queues[start : start + size + (index < rest)])


@dataclass(frozen=True, slots=True)
class Shift:
    """What has to change so that a member holds what is its own."""

    dropped: tuple[MessageQueue, ...]
    taken: tuple[MessageQueue, ...]


def shift(held: Collection[MessageQueue], mine: Collection[MessageQueue]) -> Shift:
    return Shift(tuple(sorted(set(held) - set(mine))), tuple(sorted(set(mine) - set(held))))


def share(
    queues: Collection[MessageQueue], members: Collection[str], me: str, strategy: Strategy = averagely
) -> tuple[MessageQueue, ...]:
    """The queues of one member, out of lists in any order."""
    return strategy(sorted(queues), sorted(members), me)
