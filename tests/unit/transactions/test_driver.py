"""The driver of the machines, in virtual time, over a journal in memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.unit.transactions.machine_kit import ABORT, COMMIT

from turbopump.protocol.errors import SystemBusy
from turbopump.protocol.global_transactions import GlobalKind, GlobalRecord, GlobalState, GlobalTransaction
from turbopump.testing.loop import VirtualClock, run_virtual
from turbopump.transactions.distributed.driver import (
    CALL_TIMEOUT_S,
    MAX_DATA_BYTES,
    MAX_TEXT_BYTES,
    Drive,
    answer_of_error,
    drive,
)
from turbopump.transactions.distributed.journal import LEASE_S
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchAnswered,
    BranchRegistered,
    BranchVerdict,
    CallBranch,
    Finish,
    GlobalOutcome,
    Machine,
    Phase,
)
from turbopump.transactions.distributed.memory_journal import MemoryBook, MemoryJournal
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.distributed.saga import SagaMachine, SagaStep, sequence
from turbopump.transactions.distributed.tcc import TccMachine
from turbopump.transactions.distributed.xa import XaMachine
from turbopump.transactions.errors import (
    Contradicted,
    Declined,
    FenceRefused,
    InDoubt,
    Later,
    NotTried,
    Parked,
)

GROUP, GID = "bank", "g1"
SAGA, TCC, XA = GlobalKind.SAGA, GlobalKind.TCC, GlobalKind.XA
COMMITTED, ABORTED, IN_DOUBT = GlobalOutcome.COMMITTED, GlobalOutcome.ABORTED, GlobalOutcome.IN_DOUBT


class NotingJournal(MemoryJournal):
    """Notes what is stored, in order with the calls, and fails as a test wants."""

    def __init__(self, book: MemoryBook, owner: str, lines: list[str]) -> None:
        super().__init__(book, GROUP, owner)
        self.lines = lines
        self.errors: dict[str, Exception] = {}

    async def append(self, known: GlobalTransaction, records: Sequence[GlobalRecord], *more: Any) -> None:
        if (error := self.errors.get("append")) is not None:
            raise error
        await asyncio.sleep(0.01)
        await super().append(known, records, *more)
        self.lines.append(f"kept {' '.join(one.event for one in records)} {more[0]}".strip())

    async def decide(self, *arguments: Any) -> GlobalTransaction:
        await asyncio.sleep(0.01)
        if (error := self.errors.get("decide")) is not None:
            raise error
        known = await super().decide(*arguments)
        self.lines.append(f"decided {known.decision}")
        return known


class Bench:
    """A book, a client, and participants whose answers a test gives."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.book = MemoryBook(self.clock)
        self.lines: list[str] = []
        self.journal = NotingJournal(self.book, "tm1", self.lines)
        self.other = MemoryJournal(self.book, GROUP, "tm2")
        self.answers: dict[str, list[Any]] = {}
        """By branch and phase: exceptions, results, or coroutine functions; then DONE."""

    async def call(self, call: CallBranch) -> BranchAnswered:
        words = f"{call.phase} {call.branch}"
        self.lines.append(words)
        answers = self.answers.get(words, [])
        answer = answers.pop(0) if answers else ""
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = await answer()
        return BranchAnswered(call.branch, call.phase, BranchVerdict.DONE, answer)

    def drive(self, machine: Machine, known: GlobalTransaction | None = None, **more: Any) -> Drive:
        return Drive(GID, machine, self.journal, self.call, self.clock, known=known, **more)

    def stored(self) -> GlobalTransaction:
        return self.book.transactions[GID]


def scenario(test: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    """Makes a test of a coroutine function that takes a bench."""

    def run() -> None:
        async def main() -> None:
            await test(Bench())

        run_virtual(main())

    run.__name__ = test.__name__
    return run


def two_steps(**more: Any) -> SagaMachine:
    return SagaMachine(sequence([SagaStep("a", **more), SagaStep("b", **more)]))


async def xa_left(bench: Bench, commit: bool = True, **more: Any) -> tuple[Drive, Finish]:
    deadline_ms = bench.clock.now_ms() + 30_000
    driving = bench.drive(XaMachine(["a", "b"], timeout_s=30), deadline_ms=deadline_ms, **more)
    driving.post(BlockLeft(commit, "" if commit else "x"))
    return driving, await driving.run()


@scenario
async def test_what_stands_behind_a_record_is_done_when_it_is_stored(bench: Bench) -> None:
    known = await bench.journal.open(GID, SAGA, "plan")
    finish = await drive(GID, two_steps(), bench.journal, bench.call, bench.clock, known)
    assert finish == Finish(COMMITTED)
    assert bench.lines == ["do a", "kept done", "do b", "decided commit", "kept done ended"]


@scenario
async def test_a_commit_by_xa_is_two_writes_and_branches_are_called_at_once(bench: Bench) -> None:
    driving, finish = await xa_left(bench)
    assert finish == Finish(COMMITTED)
    assert driving.decision is COMMIT
    assert bench.lines == ["prepare a", "prepare b", "decided commit", "commit a", "commit b", "kept  ended"]
    assert bench.stored().state is GlobalState.ENDED


@scenario
async def test_an_abort_by_xa_is_not_written(bench: Bench) -> None:
    _, finish = await xa_left(bench, commit=False)
    assert finish == Finish(ABORTED, "x")
    assert bench.lines == ["roll back a", "roll back b"]
    assert bench.book.transactions == {}


@scenario
async def test_the_decision_is_known_before_the_branches_have_ended(bench: Bench) -> None:
    asked = asyncio.Event()

    async def slowly() -> str:
        await asked.wait()
        return ""

    bench.answers["commit a"] = [slowly]
    driving = bench.drive(XaMachine(["a", "b"]), deadline_ms=bench.clock.now_ms() + 30_000)
    driving.post(BlockLeft(True))
    running = asyncio.create_task(driving.run())
    await driving.decided.wait()
    assert driving.decision is COMMIT
    assert not running.done()
    asked.set()
    assert await running == Finish(COMMITTED)


@scenario
async def test_whoever_loses_the_lease_stops_and_calls_nobody_any_more(bench: Bench) -> None:
    known = await bench.journal.open(GID, SAGA, "plan")
    bench.book.resolve(GID, GROUP, "retry", "ops")  # fences the owner
    finish = await bench.drive(two_steps(), known).run()
    assert finish.outcome is IN_DOUBT
    assert bench.lines == ["do a"]


@scenario
async def test_whoever_loses_the_lease_after_the_decision_knows_the_outcome(bench: Bench) -> None:
    async def lose() -> str:
        bench.book.resolve(GID, GROUP, "retry", "ops")
        return ""

    bench.answers["commit b"] = [lose]
    _, finish = await xa_left(bench)
    assert finish.outcome is COMMITTED


@scenario
async def test_a_decision_of_another_client_counts_and_its_lease_is_not_taken(bench: Bench) -> None:
    async def abort_first() -> str:
        await bench.other.decide(GID, XA, ABORT)
        return ""

    bench.answers["prepare b"] = [abort_first]
    driving, finish = await xa_left(bench)
    assert finish == Finish(ABORTED, "decided by tm2")
    assert driving.known is not None
    assert driving.known.lease == 0
    assert bench.lines[-2:] == ["roll back a", "roll back b"]


@pytest.mark.parametrize("error", [InDoubt(GID), ConnectionResetError("away"), SystemBusy("full")])
def test_a_decision_that_cannot_be_asked_for_leaves_it_in_doubt(error: Exception) -> None:
    @scenario
    async def test(bench: Bench) -> None:
        bench.journal.errors["decide"] = error
        driving, finish = await xa_left(bench)
        assert finish.outcome is IN_DOUBT
        assert driving.decided.is_set()
        assert bench.lines == ["prepare a", "prepare b"]

    test()


@scenario
async def test_a_record_that_cannot_be_stored_ends_it_before_what_rests_on_it(bench: Bench) -> None:
    known = await bench.journal.open(GID, SAGA, "plan")
    bench.journal.errors["append"] = ConnectionResetError("away")
    assert (await bench.drive(two_steps(), known).run()).outcome is IN_DOUBT
    assert bench.lines == ["do a"]


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Declined("no"), BranchVerdict.REFUSED),
        (FenceRefused(GID, "a"), BranchVerdict.REFUSED),
        (KeyError("unknown account"), BranchVerdict.REFUSED),
        (Later("busy", 2.5), BranchVerdict.LATER),
        (Parked(GID, "a", "1402"), BranchVerdict.PARK),
        (NotTried(GID, "a", "x"), BranchVerdict.PARK),
        (Contradicted(GID, "a", "confirm", "cancel"), BranchVerdict.PARK),
        (ValueError("bug"), BranchVerdict.FAILED),
        (ConnectionResetError(), BranchVerdict.FAILED),
    ],
)
def test_an_exception_of_a_participant_has_a_meaning(error: Exception, verdict: BranchVerdict) -> None:
    answer = answer_of_error(CallBranch("a", Phase.TRY), error, final=(KeyError,))
    assert answer.verdict is verdict
    assert answer.reason
    assert answer.after_s == (2.5 if verdict is BranchVerdict.LATER else None)


@scenario
async def test_a_participant_that_does_not_answer_has_failed(bench: Bench) -> None:
    async def never() -> str:
        await asyncio.sleep(10_000)
        return ""

    bench.answers["prepare a"] = [never]
    before = bench.clock.monotonic()
    bench.answers["prepare b"] = [TimeoutError("lock wait timeout")]
    _, finish = await xa_left(bench, call_timeout_s=10)
    assert finish == Finish(ABORTED, "TimeoutError: lock wait timeout")
    assert bench.clock.monotonic() - before == pytest.approx(10, abs=1)
    bench.answers["prepare a"] = [never]
    assert (await xa_left(bench, call_timeout_s=10))[1] == Finish(ABORTED, "no answer in 10 s")
    assert CALL_TIMEOUT_S == 30


@scenario
async def test_a_lease_is_kept_while_a_participant_works_for_long(bench: Bench) -> None:
    async def slowly() -> str:
        await asyncio.sleep(10 * LEASE_S)
        return ""

    bench.answers["do a"] = [slowly]
    known = await bench.journal.open(GID, SAGA, "plan")
    running = asyncio.create_task(bench.drive(two_steps(), known, call_timeout_s=1_000).run())
    for _ in range(90):
        await asyncio.sleep(LEASE_S / 9)
        assert await bench.other.claim(9) == []
    assert await running == Finish(COMMITTED)


@scenario
async def test_the_lease_is_kept_while_the_block_of_the_user_runs(bench: Bench) -> None:
    known = await bench.journal.open(GID, TCC, "", bench.clock.now_ms() + 600_000)
    driving = bench.drive(TccMachine(timeout_s=600), known)
    running = asyncio.create_task(driving.run())
    driving.post(BranchRegistered("a"))
    await asyncio.sleep(5 * LEASE_S)
    assert await bench.other.claim(9) == []
    driving.post(BlockLeft(True))
    assert await running == Finish(COMMITTED)


@scenario
async def test_nobody_takes_it_over_during_a_pause_and_the_error_is_shown(bench: Bench) -> None:
    retry = Retry(attempts=None, first=100)
    bench.answers["do a"] = [OSError("away")]
    known = await bench.journal.open(GID, SAGA, "plan")
    running = asyncio.create_task(bench.drive(two_steps(retry=retry), known).run())
    await asyncio.sleep(99)
    assert await bench.other.claim(9) == []
    assert bench.stored().error == "a: OSError: away"
    assert bench.lines == ["do a", "kept"]  # no renewals meanwhile
    assert await running == Finish(COMMITTED)


@scenario
async def test_who_was_stopped_for_long_asks_before_he_calls(bench: Bench) -> None:
    known = await bench.journal.open(GID, SAGA, "plan")
    driving = bench.drive(two_steps(), known)
    asyncio.get_running_loop().jump(LEASE_S + 1)  # type: ignore[attr-defined]
    [claimed] = await bench.other.claim(9)
    assert claimed.lease == 2
    assert (await driving.run()).outcome is IN_DOUBT
    assert bench.lines == []


@scenario
async def test_a_result_that_does_not_fit_into_a_record_is_a_failure(bench: Bench) -> None:
    bench.answers["do a"] = ["x" * (MAX_DATA_BYTES + 1)]
    known = await bench.journal.open(GID, SAGA, "plan")
    finish = await bench.drive(two_steps(retry=Retry(attempts=1)), known).run()
    words = f"its result must have at most {MAX_DATA_BYTES} bytes, got {MAX_DATA_BYTES + 1}"
    assert finish == Finish(ABORTED, f"a: {words}")
    bench.answers["do a"] = ["x" * MAX_DATA_BYTES]
    del bench.book.transactions[GID]
    known = await bench.journal.open(GID, SAGA, "plan")
    assert await bench.drive(two_steps(), known).run() == Finish(COMMITTED)


@scenario
async def test_long_reasons_are_cut_and_data_is_not(bench: Bench) -> None:
    bench.answers["do a"] = [Declined("ä" * 5_000)]
    known = await bench.journal.open(GID, SAGA, "plan")
    assert (await bench.drive(two_steps(), known).run()).outcome is ABORTED
    refused = next(one for one in bench.stored().records if one.event == "refused")
    assert MAX_TEXT_BYTES - 2 < len(refused.data.encode()) <= MAX_TEXT_BYTES
    assert len(bench.stored().error.encode()) <= MAX_TEXT_BYTES


def test_failures_of_a_branch_are_logged_once_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    @scenario
    async def test(bench: Bench) -> None:
        bench.answers["commit a"] = [OSError("away")] * 5
        driving, finish = await xa_left(bench)
        assert finish == Finish(COMMITTED)
        assert driving.failures == {"a": 5}

    with caplog.at_level(logging.INFO, "turbopump"):
        test()
    assert caplog.messages == [
        "Transaction g1: commit of branch a failed: OSError: away",
        "Transaction g1: commit of branch a done after 5 failures",
    ]


@scenario
async def test_a_driver_that_is_cancelled_leaves_the_rest_to_recovery(bench: Bench) -> None:
    async def never() -> str:
        await asyncio.sleep(10_000)
        return ""

    bench.answers["do b"] = [never]
    known = await bench.journal.open(GID, SAGA, "plan")
    driving = bench.drive(two_steps(), known)
    running = asyncio.create_task(driving.run())
    await asyncio.sleep(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert driving.decided.is_set()
    await asyncio.sleep(LEASE_S)
    [claimed] = await bench.other.claim(9)
    machine = SagaMachine.resumed(claimed, two_steps().graph)
    assert await drive(GID, machine, bench.other, bench.call, bench.clock, claimed) == Finish(COMMITTED)
    assert bench.lines == ["do a", "kept done", "do b", "do b"]
