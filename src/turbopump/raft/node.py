"""A member of a group: events in, effects out. No socket, no file, no clock.

    node = Node(config, saved, log, chance)
    for effect in node.step(now_ms, Received(7, "n1", Heartbeat(term=1))):
        ...

The driver calls `step` with whatever happens, performs the effects in their order (see `effects.py`), and
calls it with a `Tick` when `deadline_ms` has come, the first time at once.
"""

import random

from turbopump.raft.config import NodeConfig, SavedState
from turbopump.raft.effects import Effect, Role
from turbopump.raft.events import Event
from turbopump.raft.log_view import LogView
from turbopump.raft.messages import MemberId


class Node:
    """One member of a group that agrees on a log."""

    def __init__(self, config: NodeConfig, saved: SavedState, log: LogView, chance: random.Random) -> None:
        self.config = config
        self.log = log
        self.chance = chance
        self.role = Role.CANDIDATE
        self.term = saved.term
        self.voted_for = saved.voted_for
        self.leader: MemberId | None = None
        self.committed_index = min(saved.committed_index, log.end_index)
        self.joined = saved.joined

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Takes in one event, and returns what is to be done about it, in order."""
        raise NotImplementedError

    @property
    def deadline_ms(self) -> int:
        """When the node wants its next `Tick`; 0 before the first step."""
        raise NotImplementedError

    @property
    def transferring_to(self) -> MemberId | None:
        """Whom this leader is giving the leadership; it takes no appends meanwhile."""
        raise NotImplementedError
