"""Appends that wait for their commit, on the clock."""

import asyncio

import pytest
from tests.kit import virtual

from turbopump.raft.pending_appends import AppendOutcome, AppendResult
from turbopump.replication.dledger.alarm import Alarm
from turbopump.replication.dledger.commit_waits import CommitWaits
from turbopump.testing.loop import VirtualClock

TIMEOUT_MS = 1000


@virtual
async def test_an_append_is_answered_at_its_own_deadline_though_earlier_ones_were_committed() -> None:
    waits, told = CommitWaits(VirtualClock()), list[AppendResult]()
    waits.wait(1, 1, TIMEOUT_MS, told.append)
    await asyncio.sleep(0.4)
    waits.wait(1, 2, TIMEOUT_MS, told.append)
    waits.committed(1)
    await asyncio.sleep(0.9)
    assert [(one.outcome, one.index) for one in told] == [(AppendOutcome.COMMITTED, 1)]
    await asyncio.sleep(0.11)
    assert told[1:] == [AppendResult(AppendOutcome.TIMED_OUT, 1, 2)]


@virtual
async def test_a_shorter_timeout_is_not_held_up_by_a_longer_one() -> None:
    waits, told = CommitWaits(VirtualClock()), list[AppendResult]()
    waits.wait(1, 1, TIMEOUT_MS, told.append)
    waits.wait(1, 2, TIMEOUT_MS // 2, told.append)
    await asyncio.sleep(0.6)
    assert [one.index for one in told] == [2]


@virtual
async def test_the_timer_is_not_set_for_each_append(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[int | None] = []
    original = Alarm.set

    def counted(self: Alarm, delay_ms: int | None) -> None:
        delays.append(delay_ms)
        original(self, delay_ms)

    monkeypatch.setattr(Alarm, "set", counted)
    waits = CommitWaits(VirtualClock())
    for index in range(100):
        waits.wait(1, index, TIMEOUT_MS, lambda _: None)
        waits.committed(index)
        await asyncio.sleep(0.001)
    assert delays == [TIMEOUT_MS]
    waits.role_lost()
    assert delays[-1] is None
