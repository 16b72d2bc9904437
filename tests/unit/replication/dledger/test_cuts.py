"""A tail that is cut: copied and synced by workers, while the loop serves others; durable all the same."""

from __future__ import annotations

import pytest
from tests.kit import virtual
from tests.unit.replication.dledger.kit import GroupBench, MemberBench

from turbopump.testing.simulated_files import Survival

LOST = range(1000, 1400)  # more than a file of the log


async def with_a_tail(group: GroupBench) -> MemberBench:
    """A former leader with entries that the present one does not have, still cut off from all others."""
    await group.start()
    old = await group.leader()
    await group.committed(old, 1)
    await group.until_committed(1)  # all have joined, and can elect another leader
    await group.until(lambda: all(one.server.status().joined for one in group.benches.values()), "members")
    for bench in group.followers():
        group.network.cut(old.ip, bench.ip)
    old.append(*LOST)
    others = tuple(member for member in group.ips if member != old.member)
    new = await group.leader(*others)
    await group.committed(new, 2)
    return old


def join(group: GroupBench, old: MemberBench) -> None:
    for bench in group.benches.values():
        group.network.join(old.ip, bench.ip)


def count_loop_syncs(bench: MemberBench) -> list[str]:
    """Returns a list that gets the paths of the log's files that are synced outside of a worker."""
    disk, workers, found = bench.disk, bench.workers, list[str]()
    sync, run = disk.sync, workers.run
    is_working = [False]

    def note(path: str, node: object) -> None:
        if not is_working[0]:
            found.append(path)
        sync(path, node)  # type: ignore[arg-type]

    async def worked(work: object, *given: object) -> object:
        def do(*arguments: object) -> object:
            is_working[0] = True
            try:
                return work(*arguments)  # type: ignore[operator]
            finally:
                is_working[0] = False

        return await run(do, *given)

    disk.sync, workers.run = note, worked  # type: ignore[method-assign,assignment]
    return found


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@virtual
async def test_a_cut_syncs_nothing_on_the_loop(flush):
    group = GroupBench(flush=flush)
    old = await with_a_tail(group)
    found = count_loop_syncs(old)
    join(group, old)
    await group.until_committed(1, 2)
    assert found == []
    aside = old.disk.entries("/store/dledger-" + old.member + "/set-aside")
    assert aside, "what was cut is kept"
    await group.stop()


@virtual
async def test_a_cut_whose_sync_fails_is_synced_before_anything_is_appended():
    group = GroupBench(flush="SYNC_FLUSH")
    old = await with_a_tail(group)
    old.disk.fail_sync(path_part="/data/")
    old.disk.fail_sync(after=1, path_part="/data/")
    join(group, old)
    await group.until_committed(1, 2)
    await group.restart(old.member, Survival.LOST)
    await group.until_committed(1, 2)
    await group.stop()


@pytest.mark.parametrize("seed", range(12))
@virtual
async def test_power_that_fails_during_a_cut_leaves_a_log_that_goes_on(seed):
    group = GroupBench(flush="SYNC_FLUSH", seed=seed)
    old = await with_a_tail(group)
    old.disk.cut_power_after(seed * 2)
    join(group, old)
    await group.until(
        lambda: old.disk.is_off or old.log.end_index < 10, "the end of the cut, or of the power"
    )
    await group.restart(old.member, Survival.RANDOM)
    await group.until_committed(1, 2)
    await group.stop()
