"""What a seed decides before a run: the group, its clocks, disks and network, and which faults occur in it.

No run has everything: a fault shows best where others do not stop all progress.
"""

import random
from dataclasses import dataclass

from turbopump.raft.config import NodeConfig
from turbopump.raft.messages import MemberId

PREFERRED_SHARE = 0.2
NEW_GROUP_SHARE = 0.3
POWER_CUT_SHARE = 0.5
LEADER_TIMEOUT_MS = 6_000  # with the default settings


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices of one seed."""

    members: tuple[MemberId, ...]
    has_power_cuts: bool
    """The log is flushed before it counts, and machines lose their power; otherwise processes are killed."""
    is_new_group: bool
    """No member finds anything of its own at the first start."""
    speed: float
    """Waits of the nodes are this part of their defaults; votes need a network and disks that are faster."""
    clock_rates: tuple[float, ...]
    preferred_leaders: tuple[MemberId, ...]
    take_batches: bool
    fault_kinds: tuple[str, ...]
    timeout_ms: float
    """How long followers wait for a leader: the measure of all that takes time."""
    fault_ms: float
    """How long faults occur."""
    fault_interval_ms: float
    append_interval_ms: float
    drop: float
    duplicate: float
    slow: float
    """Shares of the messages that are lost, repeated, and much delayed."""
    delay_ms: float
    slow_delay_ms: float
    tick_late_ms: float
    save_ms: float
    flush_ms: tuple[float, ...]
    """Of each member's disk."""

    def config(self, own_id: MemberId) -> NodeConfig:
        """Returns the settings of a member."""

        def scaled(milliseconds: int) -> int:
            return max(1, int(milliseconds * self.speed))

        return NodeConfig(
            own_id,
            self.members,
            heartbeat_interval_ms=scaled(2000),
            min_vote_wait_ms=scaled(300),
            max_vote_wait_ms=scaled(1000),
            vote_round_ms=scaled(2000),
            shorter_log_wait_ms=scaled(1000),
            not_follower_wait_ms=scaled(500),
            push_timeout_ms=scaled(1000),
            gap_wait_ms=scaled(1000),
            transfer_interval_ms=scaled(1000),
            transfer_timeout_ms=scaled(3000),
            max_transfer_lag=5,
            preferred_leaders=self.preferred_leaders,
            max_outstanding_pushes=12,
            max_batch_entries=4,
            max_early_pushes=12,
        )


def plan_of(seed: int, members: int | None, fault_kinds: tuple[str, ...]) -> Plan:
    """Returns the choices of a seed; `members` None: the seed chooses how many there are."""
    chance = random.Random(f"plan {seed}")
    names = tuple(f"n{number}" for number in range(members or (5 if chance.random() < 0.25 else 3)))
    has_power_cuts = chance.random() < POWER_CUT_SHARE
    kinds = tuple(kind for kind in fault_kinds if chance.random() < 0.5)
    spread = chance.choice((0.0, 0.05, 0.3))
    speed = chance.choice((0.2, 0.4, 1.0))
    timeout_ms = LEADER_TIMEOUT_MS * speed
    return Plan(
        members=names,
        has_power_cuts=has_power_cuts,
        is_new_group=chance.random() < NEW_GROUP_SHARE,
        speed=speed,
        clock_rates=tuple(1 + spread * (2 * chance.random() - 1) for _ in names),
        preferred_leaders=(chance.choice(names),) if chance.random() < PREFERRED_SHARE else (),
        take_batches=chance.random() < 0.5,
        fault_kinds=kinds or fault_kinds,
        timeout_ms=timeout_ms,
        fault_ms=timeout_ms * (6 + 8 * chance.random()),
        fault_interval_ms=timeout_ms * chance.choice((0.2, 0.5, 1.0)),
        append_interval_ms=timeout_ms * chance.choice((0.2, 0.4, 1.0)),
        drop=chance.choice((0.0, 0.0, 0.02, 0.2)),
        duplicate=chance.choice((0.0, 0.0, 0.05, 0.2)),
        slow=chance.choice((0.0, 0.0, 0.05, 0.2)),
        delay_ms=speed * chance.choice((2.0, 10.0, 80.0)),
        slow_delay_ms=timeout_ms * chance.choice((0.1, 0.5, 2.0)),
        tick_late_ms=speed * chance.choice((0.0, 5.0, 50.0)),
        save_ms=speed * chance.choice((0.0, 0.0, 5.0, 60.0)),
        flush_ms=tuple(speed * chance.choice((1.0, 10.0, 10.0, 300.0)) for _ in names),
    )
