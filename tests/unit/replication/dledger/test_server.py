"""Members of a DLedger group over an in-memory network: elections, appends, crashes, cuts of the network."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.kit import virtual
from tests.unit.replication.dledger.kit import FAST, GroupBench, MemberBench
from tests.unit.store.dledger.kit import all_entries, body

from turbopump.protocol.dledger.codes import DLedgerRequestCode
from turbopump.raft import AppendOutcome, AppendResult, Role
from turbopump.raft.messages import RaftCode
from turbopump.replication.dledger.errors import NotLeading
from turbopump.testing.simulated_files import Survival


@virtual
async def test_a_first_group_elects_a_leader_and_commits_what_it_appends():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    assert (await group.committed(leader, 1, 2, 3)).outcome is AppendOutcome.COMMITTED
    await group.until_committed(1, 2, 3)
    first, *others = [all_entries(bench.log) for bench in group.benches.values()]
    assert all(other == first for other in others)
    assert leader.commits[-1] == leader.log.end_index
    await group.stop()


@virtual
async def test_an_append_returns_the_offset_of_each_entry():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    first = leader.log.next_index
    offsets = leader.server.append([body(number) for number in range(400)])
    assert leader.server.end_index == first + 399
    assert offsets == [leader.log.place_of(first + number) for number in range(400)]
    assert offsets[-1] - offsets[0] > leader.log.file_size
    await group.stop()


@virtual
async def test_the_owner_is_told_of_a_commit_when_readers_see_it():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    seen: list[tuple[int, int, int]] = []
    for bench in group.benches.values():
        log = bench.log
        bench.server.on_commit = lambda index, log=log: seen.append(
            (index, log.committed_index, log.committed - log.end_of(index))
        )
    await group.committed(leader, 1, 2, 3)
    await group.until_committed(1, 2, 3)
    assert len(seen) >= 3
    assert all(index == committed and beyond == 0 for index, committed, beyond in seen)
    await group.stop()


@virtual
async def test_a_member_alone_leads_at_once():
    group = GroupBench(members=1)
    await group.start()
    leader = await group.leader()
    assert (await group.committed(leader, 1)).outcome is AppendOutcome.COMMITTED
    await group.stop()


@virtual
async def test_a_follower_refuses_an_append_and_names_the_leader():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    with pytest.raises(NotLeading) as refused:
        group.followers()[0].append(1)
    assert (refused.value.leader, refused.value.address) == (leader.member, f"{leader.ip}:40911")
    await group.stop()


@virtual
async def test_a_killed_leader_is_replaced_and_follows_when_it_is_back():
    group = GroupBench()
    await group.start()
    first = await group.leader()
    await group.committed(first, 1, 2)
    disk = await group.kill(first.member)
    second = await group.leader()
    assert second.server.term > first.server.term
    assert (await group.committed(second, 3)).outcome is AppendOutcome.COMMITTED
    await group.start_on(first.member, disk)
    await group.until_committed(1, 2, 3)
    assert (await group.leader()).member == second.member
    await group.stop()


@virtual
async def test_with_fast_timings_a_dead_leader_is_replaced_within_a_second():
    for seed in range(10):
        group = GroupBench(seed=seed, timings=FAST)
        await group.start()
        first = await group.leader()
        await group.committed(first, 1)
        await group.until_committed(1)
        await group.kill(first.member)
        began = group.clock.monotonic()
        second = await group.leader()
        assert (await group.committed(second, 2)).outcome is AppendOutcome.COMMITTED
        assert group.clock.monotonic() - began < 1.5
        await group.stop()


@virtual
async def test_a_preferred_leader_leads_soon_after_it_is_back():
    group = GroupBench(preferred="n2")
    await group.start()
    await group.until(lambda: group.benches["n2"].server.role is Role.LEADER)
    disk = await group.kill("n2")
    other = await group.leader()
    await group.committed(other, 1)
    await group.start_on("n2", disk)
    await group.until(lambda: group.benches["n2"].server.role is Role.LEADER)
    await group.until_committed(1)
    await group.stop()


@virtual
async def test_all_members_come_back_from_their_disks_with_everything_that_is_committed():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    for number in range(20):
        await group.committed(leader, number)
    disks = {member: await group.kill(member) for member in group.ips}
    for member, disk in disks.items():
        await group.start_on(member, disk)
    await group.leader()
    await group.until_committed(*range(20))
    await group.stop()


@virtual
async def test_a_follower_with_a_torn_tail_gets_it_again(caplog):
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    await group.committed(leader, *range(30))
    await group.until_committed(*range(30))
    follower = group.followers()[0]
    await group.restart(follower.member, Survival.RANDOM)
    await group.until_committed(*range(30))
    await group.stop()


@virtual
async def test_a_leader_that_is_cut_off_steps_down_and_its_tail_is_replaced(caplog):
    caplog.set_level(logging.INFO)
    group = GroupBench()
    await group.start()
    old = await group.leader()
    await group.committed(old, 1)
    for bench in group.followers():
        group.network.cut(old.ip, bench.ip)
    lost = await group.committed(old, 77, 78, timeout_ms=30_000)
    assert lost.outcome is AppendOutcome.ROLE_LOST
    others = tuple(member for member in group.ips if member != old.member)
    new = await group.leader(*others)
    assert (await group.committed(new, 2)).outcome is AppendOutcome.COMMITTED
    for bench in group.benches.values():
        group.network.join(old.ip, bench.ip)
    await group.until_committed(1, 2)
    assert old.numbers == [1, 2]
    lines = caplog.text
    assert "Cut entries" in lines
    assert "set-aside" in lines
    assert "cannot be reached" in lines
    assert "is reachable again" in lines
    await group.stop()


@virtual
async def test_an_append_without_a_majority_is_answered_at_its_deadline():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    for bench in group.followers():
        group.network.cut(leader.ip, bench.ip)
    began = group.clock.monotonic()
    assert (await group.committed(leader, 1, timeout_ms=2500)).outcome is AppendOutcome.TIMED_OUT
    assert group.clock.monotonic() - began == pytest.approx(2.5, abs=0.01)
    await group.stop()


@virtual
async def test_every_waiter_is_answered_once_when_the_leader_steps_down_or_stops():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    for bench in group.followers():
        group.network.cut(leader.ip, bench.ip)
    results: list[AppendResult] = []
    for number in range(50):
        leader.server.when_committed(leader.append(number), 60_000, results.append)
    assert leader.server.status().pending_appends == 50
    await group.until(lambda: leader.server.role is not Role.LEADER)
    assert [result.outcome for result in results] == [AppendOutcome.ROLE_LOST] * 50
    await group.stop()
    assert len(results) == 50


@virtual
async def test_a_stop_answers_what_waits():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    for bench in group.followers():
        group.network.cut(leader.ip, bench.ip)
    waiting = asyncio.create_task(group.committed(leader, 1, timeout_ms=60_000))
    await asyncio.sleep(0)
    await group.stop()
    assert (await waiting).outcome is AppendOutcome.ROLE_LOST
    with pytest.raises(NotLeading):
        leader.append(2)


@virtual
async def test_a_slow_follower_delays_nobody_and_catches_up():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    slow = group.followers()[0]
    group.network.cut(leader.ip, slow.ip, one_way=True)
    for number in range(100):
        assert (await group.committed(leader, number)).outcome is AppendOutcome.COMMITTED
    group.network.join(leader.ip, slow.ip)
    await group.until_committed(*range(100))
    await group.stop()


@virtual
async def test_many_entries_go_to_members_of_ours_in_batches():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    await group.until(lambda: all(peer.is_ours for peer in leader.server.status().peers))
    assert (await group.committed(leader, *range(400))).outcome is AppendOutcome.COMMITTED
    await group.until_committed(*range(400))
    await group.stop()


@virtual
async def test_with_sync_flush_nothing_that_is_committed_is_lost_when_the_power_fails_everywhere():
    group = GroupBench(flush="SYNC_FLUSH")
    await group.start()
    leader = await group.leader()
    for number in range(25):
        assert (await group.committed(leader, number)).outcome is AppendOutcome.COMMITTED
    leader.append(90)
    disks = {member: await group.kill(member, Survival.LOST) for member in group.ips}
    for member, disk in disks.items():
        await group.start_on(member, disk)
    await group.leader()
    await group.until(
        lambda: all(bench.committed[:25] == list(range(25)) for bench in group.benches.values())
    )
    await group.stop()


@virtual
async def test_with_sync_flush_a_follower_answers_when_its_sync_has_ended():
    group = GroupBench(flush="SYNC_FLUSH")
    await group.start()
    leader = await group.leader()
    await group.committed(leader, 1)
    for bench in group.followers():
        bench.workers.stall(1.5)
    began = group.clock.monotonic()
    assert (await group.committed(leader, 2)).outcome is AppendOutcome.COMMITTED
    assert group.clock.monotonic() - began >= 1.5
    await group.stop()


@virtual
async def test_a_sync_that_fails_is_tried_again():
    group = GroupBench(flush="SYNC_FLUSH")
    await group.start()
    leader = await group.leader()
    for bench in group.followers():
        bench.disk.fail_sync(path_part="/data/")
    assert (await group.committed(leader, 1, timeout_ms=10_000)).outcome is AppendOutcome.COMMITTED
    await group.until_committed(1)
    await group.stop()


@virtual
async def test_a_member_that_cannot_save_its_vote_starts_again_from_disk(caplog):
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    await group.committed(leader, 1)
    survivors = group.followers()
    for bench in survivors:
        bench.disk.fail_sync(path_part="currterm")
    await group.kill(leader.member)
    new = await group.leader()
    assert (await group.committed(new, 2)).outcome is AppendOutcome.COMMITTED
    assert "starts again from disk" in caplog.text
    await group.stop()


@virtual
async def test_a_follower_whose_disk_is_full_answers_and_catches_up_when_there_is_space():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    follower = group.followers()[0]
    capacity, follower.disk.capacity = follower.disk.capacity, 0
    for number in range(200):
        assert (await group.committed(leader, number)).outcome is AppendOutcome.COMMITTED
    assert len(follower.numbers) < 200
    follower.disk.capacity = capacity
    await group.until_committed(*range(200))
    await group.stop()


@virtual
async def test_a_member_that_lost_its_disk_gets_the_log_again():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    await group.committed(leader, *range(10))
    emptied = group.followers()[0].member
    await group.kill(emptied)
    await group.start(emptied)
    await group.until_committed(*range(10))
    await group.until(lambda: group.benches[emptied].server.status().joined)
    await group.stop()


@virtual
async def test_the_leadership_goes_to_the_member_that_an_operator_names():
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    await group.committed(leader, 1)
    await group.until_committed(1)
    wanted = group.followers()[0]
    answer = await leader.server.transfer(wanted.member)
    assert answer.code is RaftCode.SUCCESS
    assert (await group.leader()).member == wanted.member
    assert (await leader.server.transfer(wanted.member)).code is RaftCode.NOT_LEADER
    await group.stop()


@virtual
async def test_role_term_and_leader_are_told_to_the_owner_and_the_log(caplog):
    caplog.set_level(logging.INFO)
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    assert leader.changes[-1].role is Role.LEADER
    assert f"{leader.member} is leader in term {leader.server.term}" in caplog.text
    follower = group.followers()[0]
    assert (
        f"{follower.member} is follower in term {leader.server.term}, leader {leader.member}" in caplog.text
    )
    status = leader.server.status()
    assert (status.role, status.leader, status.joined) == (Role.LEADER, leader.member, True)
    assert [peer.is_reachable for peer in status.peers] == [True, True]
    await group.stop()


@virtual
async def test_a_callback_of_the_owner_that_fails_ends_nothing(caplog):
    group = GroupBench()
    await group.start()
    leader = await group.leader()

    def fail(index: int) -> None:
        raise ValueError("of the owner")

    leader.server.on_commit = fail
    assert (await group.committed(leader, 1)).outcome is AppendOutcome.COMMITTED
    assert "of the owner" in caplog.text
    await group.until_committed(1)
    await group.stop()


@virtual
async def test_a_leader_takes_no_more_appends_than_may_wait(monkeypatch):
    monkeypatch.setattr("turbopump.raft.pending_appends.MAX_PENDING_APPENDS", 3)
    group = GroupBench()
    await group.start()
    leader: MemberBench = await group.leader()
    for bench in group.followers():
        group.network.cut(leader.ip, bench.ip)
    for number in range(3):
        leader.server.when_committed(leader.append(number), 1000, lambda result: None)
    with pytest.raises(Exception, match="3 appends wait"):
        leader.server.append([body(4)])
    await group.stop()


@virtual
async def test_members_sign_what_they_ask_of_each_other():
    signed: list[int] = []
    group = GroupBench(sign=lambda request: signed.append(request.code))
    await group.start()
    leader = await group.leader()
    await group.committed(leader, 1)
    await group.stop()
    assert {DLedgerRequestCode.VOTE, DLedgerRequestCode.HEART_BEAT, DLedgerRequestCode.PUSH} <= set(signed)
