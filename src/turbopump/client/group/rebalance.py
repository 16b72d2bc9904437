"""Who has which queues of a topic, and what has to change so that it is so.

Nobody decides this centrally: every member of a group computes it with the same strategy (`strategies.py`)
from the same two lists. Values in, values out.
"""

from collections.abc import Collection
from dataclasses import dataclass

from turbopump.client.group.strategies import Strategy, averagely
from turbopump.client.message import MessageQueue

__all__ = ["AssignmentChange", "Strategy", "assignment_change", "averagely", "own_queues"]


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """What has to change so that a member holds what is its own."""

    dropped: tuple[MessageQueue, ...]
    taken: tuple[MessageQueue, ...]


def assignment_change(held: Collection[MessageQueue], mine: Collection[MessageQueue]) -> AssignmentChange:
    return AssignmentChange(tuple(sorted(set(held) - set(mine))), tuple(sorted(set(mine) - set(held))))


def own_queues(
    queues: Collection[MessageQueue], members: Collection[str], me: str, strategy: Strategy = averagely
) -> tuple[MessageQueue, ...]:
    """The queues of one member, out of lists in any order."""
    return strategy(sorted(queues), sorted(members), me)
