"""How entries reach followers: in batches, within a quota, again after a torn tail, past a slow member."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit import virtual
from tests.unit.replication.dledger.kit import GroupBench

from turbopump.raft import AppendOutcome, NodeConfig
from turbopump.raft.messages import OutgoingRequest, PushKind, PushOrder
from turbopump.replication.dledger.group import DLedgerGroup
from turbopump.replication.dledger.peer_link import PeerLink
from turbopump.testing.simulated_files import Survival

COMMITTED = AppendOutcome.COMMITTED


def pushes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Returns a list that gets, for each push of entries, the peer and how many entries it has."""
    seen: list[tuple[str, int]] = []
    send = PeerLink.send

    def noted(link: PeerLink, request: OutgoingRequest) -> None:
        if isinstance(request, PushOrder) and request.kind is PushKind.APPEND:
            seen.append((link.peer, request.last_index - request.first_index + 1))
        send(link, request)

    monkeypatch.setattr(PeerLink, "send", noted)
    return seen


def with_config(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    """Changes bounds of all members that are started from now on."""
    make = DLedgerGroup.node_config

    def changed(group: DLedgerGroup, *args: object) -> NodeConfig:
        return replace(make(group, *args), **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(DLedgerGroup, "node_config", changed)


@virtual
async def test_entries_go_to_members_of_ours_many_in_one_push(monkeypatch: pytest.MonkeyPatch) -> None:
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    await group.until(lambda: all(peer.is_ours for peer in leader.server.status().peers))
    seen = pushes(monkeypatch)
    assert (await group.committed(leader, *range(400))).outcome is COMMITTED
    await group.until_committed(*range(400))
    for follower in group.followers():
        sizes = [count for peer, count in seen if peer == follower.member]
        assert sum(sizes) == 400, "nothing is pushed twice"
        assert len(sizes) <= 3
    await group.stop()


@virtual
async def test_a_batch_has_at_most_as_many_entries_as_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(monkeypatch, max_batch_entries=16)
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    await group.until(lambda: all(peer.is_ours for peer in leader.server.status().peers))
    seen = pushes(monkeypatch)
    await group.committed(leader, *range(100))
    await group.until_committed(*range(100))
    assert max(count for _, count in seen) == 16
    await group.stop()


@virtual
async def test_a_follower_far_behind_gets_what_the_quota_allows_each_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else happens meanwhile: the timer of the quota alone makes the leader go on."""
    with_config(monkeypatch, far_behind_bytes=4096, far_behind_bytes_per_s=8192, max_batch_entries=8)
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    behind = group.followers()[0].member
    disk = await group.kill(behind)
    size = leader.log.end
    assert (await group.committed(leader, *range(400), timeout_ms=60_000)).outcome is COMMITTED
    lacking = leader.log.end - size
    assert lacking > 6 * 8192
    began = group.clock.monotonic()
    await group.start_on(behind, disk)
    await group.until_committed(*range(400))
    took_s = group.clock.monotonic() - began
    assert (lacking - 4096) // (8192 + 8 * 148) - 1 <= took_s <= lacking // 8192 + 6
    await group.stop()


@pytest.mark.parametrize("survival", [Survival.LOST, Survival.RANDOM, Survival.PREFIX])
@pytest.mark.parametrize("seed", range(3))
@virtual
async def test_a_tail_that_a_follower_lost_comes_again(survival: Survival, seed: int) -> None:
    group = GroupBench(seed=seed)
    await group.start()
    leader = await group.leader()
    await group.committed(leader, *range(10))
    await group.until_committed(*range(10))
    follower = group.followers()[0].member
    group.benches[follower].log.sync()
    assert (await group.committed(leader, *range(10, 60))).outcome is COMMITTED
    await group.until_committed(*range(60))
    again = await group.restart(follower, survival)
    left = again.numbers
    assert left == list(range(len(left)))
    assert len(left) >= 10, "what was synced is there"
    assert len(left) < 60 or survival is not Survival.LOST, "the test lost nothing"
    await group.until_committed(*range(60))
    assert len(again.numbers) == 60
    await group.stop()


@virtual
async def test_a_follower_with_a_slow_disk_delays_nobody_and_catches_up() -> None:
    group = GroupBench(flush="SYNC_FLUSH")
    await group.start()
    leader = await group.leader()
    await group.committed(leader, 0)
    await group.until_committed(0)
    group.followers()[0].workers.stall(20)
    for number in range(1, 100):
        began = group.clock.monotonic()
        assert (await group.committed(leader, number)).outcome is COMMITTED
        assert group.clock.monotonic() - began < 0.1
    await group.until_committed(*range(100))
    await group.stop()


@virtual
async def test_a_follower_that_does_not_answer_delays_nobody() -> None:
    group = GroupBench()
    await group.start()
    leader = await group.leader()
    silent = group.followers()[0]
    group.network.cut(silent.ip, leader.ip, one_way=True)
    for number in range(100):
        began = group.clock.monotonic()
        assert (await group.committed(leader, number)).outcome is COMMITTED
        assert group.clock.monotonic() - began < 0.1
    group.network.join(silent.ip, leader.ip)
    await group.until_committed(*range(100))
    await group.stop()
