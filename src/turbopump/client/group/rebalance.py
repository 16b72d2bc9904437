"""Computes the queues of a topic for one member of a group, and which to drop and to take for that.

There is no central decision: every member of a group computes it with the same strategy (`strategies.py`)
from the same two lists. Values in, values out.
"""

from collections.abc import Collection
from dataclasses import dataclass

from turbopump.client.group.strategies import Strategy, averagely
from turbopump.client.message import MessageQueue

__all__ = ["AssignmentChange", "Strategy", "assignment_change", "averagely", "own_queues"]


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """The queues that a member has to give up (`dropped`) and those that it has to take (`taken`)."""

    dropped: tuple[MessageQueue, ...]
    taken: tuple[MessageQueue, ...]


def assignment_change(held: Collection[MessageQueue], mine: Collection[MessageQueue]) -> AssignmentChange:
    """Returns the queues to drop and to take so that a member holds `mine` instead of `held`."""
    return AssignmentChange(tuple(sorted(set(held) - set(mine))), tuple(sorted(set(mine) - set(held))))


def own_queues(
    queues: Collection[MessageQueue], members: Collection[str], me: str, strategy: Strategy = averagely
) -> tuple[MessageQueue, ...]:
    """Returns the strategy's queues for the member `me`; queues and members may be in any order."""
    return strategy(sorted(queues), sorted(members), me)
