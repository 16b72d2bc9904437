"""Members that die again and again, on torn disks and a network that breaks: nothing committed is lost."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest
from tests.kit import virtual
from tests.unit.replication.dledger.kit import GroupBench, MemberBench

from turbopump.raft import AppendOutcome, AppendResult
from turbopump.replication.dledger.errors import AppendRefused
from turbopump.testing.network import PERFECT, NetworkConditions
from turbopump.testing.simulated_files import Survival

LAST = 5000


def send(leader: MemberBench, number: int, committed: list[int], answered: list[int]) -> None:
    """Appends a number, and notes it when it is answered, and when it is committed."""

    def done(result: AppendResult) -> None:
        answered.append(number)
        if result.outcome is AppendOutcome.COMMITTED:
            committed.append(number)

    leader.server.when_committed(leader.append(number), 3000, done)


@pytest.mark.parametrize("seed", range(4))
@virtual
async def test_what_was_answered_as_committed_is_in_all_logs_once(seed: int):
    chance = random.Random(seed)
    group = GroupBench(seed=seed, flush="SYNC_FLUSH" if seed % 2 else "ASYNC_FLUSH")
    group.network.conditions = NetworkConditions(0.0, 0.02, loss=0.002)
    await group.start()
    sent: list[int] = []
    committed: list[int] = []
    answered: list[int] = []
    for turn in range(10):
        leader = await group.leader()
        for number in range(8 * turn, 8 * turn + 8):
            try:
                send(leader, number, committed, answered)
            except AppendRefused:
                break
            sent.append(number)
        await asyncio.sleep(chance.random() * 0.3)
        # Without a sync before the answer only the death of a process is survived.
        survival = chance.choice(list(Survival)) if seed % 2 else Survival.KEPT
        victim = chance.choice(list(group.ips))
        disk = await group.kill(victim, survival)
        await asyncio.sleep(chance.random() * 8)
        await group.start_on(victim, disk)
    group.network.conditions = PERFECT
    await group.committed(await group.leader(), LAST, timeout_ms=20_000)
    is_last = partial(all_end_with, group, LAST)
    await group.until(is_last)
    first, *others = [bench.committed for bench in group.benches.values()]
    assert all(other == first for other in others)
    assert len(set(first)) == len(first)
    assert set(committed) <= set(first)
    assert sorted(answered) == sent
    assert len(committed) > len(sent) // 2
    await group.stop()


def all_end_with(group: GroupBench, number: int) -> bool:
    return all(bench.committed[-1:] == [number] for bench in group.benches.values())
