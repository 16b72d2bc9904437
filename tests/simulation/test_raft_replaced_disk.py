"""A schedule that chance hardly finds: an empty disk, between a leader that it helped to elect and the one before.

n1 leads and hands over to n0, but does not hear of it; n0 is elected by n2, and commits with it. Then n2 gets an
empty disk, and n0 is cut off: n1, which still takes itself for the leader, and n2 must not commit anything.
"""

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

from tests.simulation.raft.check import check
from tests.simulation.raft.history import Stop
from tests.simulation.raft.plan import Plan, plan_of
from tests.simulation.raft.world import World

from turbopump.raft import Role, Transfer
from turbopump.raft.newcomer import Newcomer

STEP_MS = 1.0


class _Script(World):
    """A group without chance in its faults: the test says what happens."""

    def __init__(self) -> None:
        with mock.patch("tests.simulation.raft.world.plan_of", _quiet_plan):
            super().__init__(seed=1)
        for member in self.members.values():
            member.start()

    def until(self, condition: Callable[[], bool], max_ms: float = 30_000.0) -> None:
        """Lets time pass until something has come about."""
        end = self.now + max_ms
        while not condition():
            assert self.now < end, "it has not come about"
            self._pass_time(self.now + STEP_MS)

    def leads(self, name: str) -> bool:
        """Returns whether a member takes itself for the leader."""
        node = self.members[name].node
        return node is not None and node.role is Role.LEADER

    def cut_off(self, name: str) -> None:
        """Cuts one member off, and connects all others."""
        others = [other for other in self.members if other != name]
        self.network.cut = {way for other in others for way in ((name, other), (other, name))}

    def hand_over(self, to: str) -> None:
        """Asks the leader to hand over, until the other member leads."""
        leader = self.leader()
        assert leader is not None
        if leader.name != to:
            leader.do(leader.event, Transfer(to))
            self.until(lambda: self.leads(to) and not self.leads(leader.name))


def _quiet_plan(*_: object) -> Plan:
    plan = plan_of(1, 3, ("none",))
    return replace(
        plan,
        has_power_cuts=False,
        is_new_group=False,
        speed=1.0,
        timeout_ms=6_000.0,
        clock_rates=(1.0, 1.0, 1.0),
        preferred_leaders=(),
        drop=0.0,
        duplicate=0.0,
        slow=0.0,
        delay_ms=2.0,
        tick_late_ms=0.0,
        save_ms=0.0,
    )


def _anomalies() -> set[str]:
    world = _Script()
    world.until(lambda: world.leader() is not None)
    world._pass_time(world.now + 3_000)
    world.hand_over("n1")
    world._pass_time(world.now + 3_000)

    earlier, later, voter = (world.members[name] for name in ("n1", "n0", "n2"))
    world.network.cut = {("n0", "n1"), ("n2", "n1")}  # n1 is heard, and hears nothing
    earlier.do(earlier.event, Transfer("n0"))
    world.until(lambda: world.leads("n0"))
    assert later.append(["later"])
    world.until(lambda: later.node is not None and later.node.committed_index == later.disk.log.end_index)

    voter.stop(Stop.DISK_LOST)
    world.cut_off("n0")
    voter.start()
    assert world.leads("n1")
    world.until(lambda: earlier.append(["earlier"]), max_ms=4_000)  # it gives up the hand-over first
    world._pass_time(world.now + 5_000)
    return {one.name for one in check(world.history)}


def test_an_empty_disk_does_not_help_an_earlier_leader_to_commit() -> None:
    assert _anomalies() == set()


def test_the_schedule_shows_an_empty_disk_that_acknowledges_at_once() -> None:
    with mock.patch.object(Newcomer, "may_acknowledge", True):
        assert "two committed entries" in _anomalies()
