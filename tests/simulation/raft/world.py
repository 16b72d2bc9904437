"""A group of nodes in virtual time, from one seed: members, network, clients, faults, and then a calm end.

No event loop: a heap of what happens next. After the last fault all is connected and a majority runs; then a
new append must be committed at every running member within `MAX_CALM_TIMEOUTS` leader timeouts.
"""

import heapq
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.raft.faults import FAULTS
from tests.simulation.raft.history import Ended, History, Note, Occurrence, Stop, Stuck
from tests.simulation.raft.member import Member
from tests.simulation.raft.network import Network
from tests.simulation.raft.plan import plan_of

from turbopump.raft import AppendOutcome, AppendResult, Node, NodeConfig, Role, SavedState
from turbopump.raft.messages import MemberId

MAX_CALM_TIMEOUTS = 12
"""Leader timeouts (6 s by default) from the last fault to a new append that every running member commits."""
SETTLE_MS = 6_000
"""How long a run goes on after that, so that all that was asked is answered."""
MAX_HAPPENINGS = 60_000
"""A run has some thousands; one that has more has members that talk without end."""
MAX_TIMEOUTS_DOWN = 2
ABSENT_SHARE = 0.3
"""How often a minority stays away in the calm end."""
APPENDS_AT_ONCE = 3


class World:
    """One run of a group."""

    def __init__(self, seed: int, members: int | None = None, is_traced: bool = False) -> None:
        self.plan = plan_of(seed, members, tuple(FAULTS))
        self.chance = random.Random(f"run {seed}")
        self.is_traced = is_traced
        self.now = 0.0
        self.occurrences: list[Occurrence] = []
        self.note: Callable[[Occurrence], None] = self.occurrences.append
        self.calm_ms = 0.0
        """How long progress took after the last fault."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._ids = 0
        self.is_calm = False
        self._goal_index: int | None = None
        self._is_done = False
        self.network = Network(self)
        self.members: dict[MemberId, Member] = {
            name: Member(self, name, rate, flush_ms)
            for name, rate, flush_ms in zip(
                self.plan.members, self.plan.clock_rates, self.plan.flush_ms, strict=True
            )
        }

    def run(self) -> History:
        """Runs the world to its end, and returns what happened."""
        for member in self.members.values():
            late_ms = self.plan.timeout_ms * self.chance.random() ** 4
            self.later(late_ms, self._start, member, member.life)
        self.later(0, self._append)
        self.later(self._pause(self.plan.fault_interval_ms), self._fault)
        self._pass_time(self.plan.fault_ms)
        self._calm_down()
        begin = self.now
        self._pass_time(begin + MAX_CALM_TIMEOUTS * self.plan.timeout_ms)
        self.calm_ms = self.now - begin
        if not self._is_done:
            self.note(Stuck(self.now, self._why_stuck()))
        self._pass_time(self.now + SETTLE_MS, is_settling=True)
        self.note(Ended(self.now))
        return self.history

    @property
    def history(self) -> History:
        """What has happened so far."""
        return History(self.plan.members, self.plan.has_power_cuts, self.occurrences)

    # --- what members, network and faults use --------------------------------------------------------------

    def at(self, when: float, work: Callable[..., None], *args: Any) -> None:
        """Does something at a time."""
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, work, args))

    def later(self, delay_ms: float, work: Callable[..., None], *args: Any) -> None:
        """Does something after a time."""
        self.at(self.now + delay_ms, work, *args)

    def next_id(self) -> int:
        """Returns a number that no other call returns."""
        self._ids += 1
        return self._ids

    def build_node(self, config: NodeConfig, saved: SavedState, log: Any, chance: random.Random) -> Node:
        """Returns the node of a member that is started."""
        return Node(config, saved, log, chance)

    def die(self, member: Member, how: Stop | None = None) -> None:
        """Ends a member's process, also by a power cut where there are some; it starts again later."""
        if how is None:
            how = Stop.POWER_CUT if self.plan.has_power_cuts and self.chance.random() < 0.7 else Stop.KILL
        member.stop(how)
        down_ms = MAX_TIMEOUTS_DOWN * self.plan.timeout_ms * self.chance.random() ** 3
        self.later(10 + down_ms, self._start, member, member.life)

    def leader(self) -> Member | None:
        """Returns a member that takes itself for the leader, by chance if there are several."""
        leading = [
            one for one in self.members.values() if one.node is not None and one.node.role is Role.LEADER
        ]
        return self.chance.choice(leading) if leading else None

    def append_at_leader(self, prefix: str, count: int) -> None:
        """Appends what clients send to one that leads, if there is one."""
        if (leader := self.leader()) is not None:
            leader.append([f"{prefix}{self.next_id()}" for _ in range(count)])

    def append_done(self, name: str, result: AppendResult) -> None:
        """Notes an answer: the first append of the calm end is what all members must commit."""
        is_new = self.is_calm and name.startswith("calm")
        if is_new and result.outcome is AppendOutcome.COMMITTED and self._goal_index is None:
            self._goal_index = result.index

    def committed(self, member: Member, index: int) -> None:
        """Notes that a member has committed more."""
        if self._goal_index is not None and not self._is_done:
            nodes = [one.node for one in self.members.values() if one.node is not None]
            self._is_done = all(node.committed_index >= self._goal_index for node in nodes)

    # --- the run -------------------------------------------------------------------------------------------

    def _pass_time(self, until: float, is_settling: bool = False) -> None:
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            if self._is_done and not is_settling:
                return
            if self._sequence > MAX_HAPPENINGS:
                self.note(Stuck(self.now, f"more than {MAX_HAPPENINGS} events"))
                heap.clear()
                return
            self.now, _, work, args = pop(heap)
            work(*args)
        self.now = max(self.now, until)

    def _start(self, member: Member, life: int) -> None:
        if member.node is None and member.life == life:
            member.start()

    def _append(self) -> None:
        if self._is_done:
            return
        count = 1 + int(self.chance.random() * APPENDS_AT_ONCE)
        self.append_at_leader("calm" if self.is_calm else "a", count)
        self.later(self._pause(self.plan.append_interval_ms), self._append)

    def _fault(self) -> None:
        if not self.is_calm:
            FAULTS[self.chance.choice(self.plan.fault_kinds)](self)
            self.later(self._pause(self.plan.fault_interval_ms), self._fault)

    def _pause(self, mean_ms: float) -> float:
        return mean_ms * 2 * self.chance.random()

    def _calm_down(self) -> None:
        self.is_calm = True
        self.note(Note(self.now, "the last fault is over: all is connected"))
        self.network.cut, self.network.drop, self.network.slow = set(), 0.0, 0.0
        for member in self.members.values():
            member.fuse = None
            member.usual_disk()
            if member.is_frozen:
                member.thaw()
        absent = self._absent()
        for member in self.members.values():
            if member in absent:
                if member.node is not None:
                    member.stop(Stop.KILL)
                member.life += 1
            elif member.node is None:
                member.start()

    def _absent(self) -> list[Member]:
        """Returns who stays away: a minority at most, and nobody while one has lost what it knew."""
        members = list(self.members.values())
        if self.chance.random() > ABSENT_SHARE or not all(one.disk.saved.joined for one in members):
            return []
        return self.chance.sample(members, (len(members) - 1) // 2)

    def _why_stuck(self) -> str:
        states = [
            f"{one.name} {one.node.role} term {one.node.term} "
            f"commit {one.node.committed_index} of {one.disk.log.end_index}"
            for one in self.members.values()
            if one.node is not None
        ]
        goal = (
            "no append was committed" if self._goal_index is None else f"{self._goal_index} is not committed"
        )
        return f"{goal} {self.calm_ms:.0f} ms after the last fault: {', '.join(states)}"
