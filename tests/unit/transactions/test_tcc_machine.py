"""TCC as a state machine: transcripts of what the TM does, and what holds whatever answers come."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.transactions.machine_kit import (
    ABORT,
    COMMIT,
    FAILED,
    LATER,
    PARK,
    REFUSED,
    answer,
    play,
    transcript,
    words,
)
from tests.unit.transactions.played import Played

from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalRecord, GlobalTransaction
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchRegistered,
    CallBranch,
    Decided,
    DecisionUnknown,
    Due,
    MachineEvent,
    Phase,
)
from turbopump.transactions.distributed.tcc import TccMachine

LEFT, FAILS = BlockLeft(True), BlockLeft(False, "ValueError")
TRIED_A = (BranchRegistered("a", "in A"), answer("a", Phase.TRY))
TRIED_B = (BranchRegistered("b", "in B"), answer("b", Phase.TRY))
CONFIRM_A, CONFIRM_B = answer("a", Phase.CONFIRM), answer("b", Phase.CONFIRM)
CANCEL_A, CANCEL_B = answer("a", Phase.CANCEL), answer("b", Phase.CANCEL)


def test_branches_are_registered_before_their_try_and_confirmed_after_the_decision() -> None:
    assert transcript(
        TccMachine(timeout_s=30), *TRIED_A, *TRIED_B, LEFT, Decided(COMMIT), CONFIRM_B, CONFIRM_A
    ) == [
        "wait 30 s of deadline",
        "keep registered a",
        "try a in A",
        "keep registered b",
        "try b in B",
        "decide commit a b",
        "confirm a in A",
        "confirm b in B",
        "keep confirmed b, confirmed a, ended, committed",
        "finish committed",
    ]


def test_a_block_that_fails_cancels_in_reverse_order() -> None:
    assert transcript(TccMachine(), *TRIED_A, *TRIED_B, FAILS, Decided(ABORT), CANCEL_B, CANCEL_A)[4:] == [
        "decide abort a b",
        "cancel b in B",
        "cancel a in A",
        "keep cancelled b, cancelled a, ended, aborted",
        "finish aborted: ValueError",
    ]


def test_a_refused_or_unknown_try_is_cancelled_too_even_if_the_block_goes_on() -> None:
    for verdict in (REFUSED, FAILED, PARK):
        failed = (BranchRegistered("b"), answer("b", Phase.TRY, verdict, reason="no"))
        assert play(TccMachine(), *TRIED_A, *failed, LEFT) == ["decide abort a b"]
        assert play(TccMachine(), *TRIED_A, *failed, LEFT, Decided(ABORT)) == ["cancel b"]


def test_a_try_that_has_no_answer_yet_is_called_again() -> None:
    machine = TccMachine()
    later = answer("a", Phase.TRY, LATER, after_s=2.0)
    assert play(machine, BranchRegistered("a"), later, LEFT) == []
    assert words(machine.step(Due("try a"))) == ["try a"]
    assert words(machine.step(answer("a", Phase.TRY))) == ["decide commit a"]


def test_nothing_is_registered_after_a_try_has_failed() -> None:
    machine = TccMachine()
    play(machine, BranchRegistered("a"), answer("a", Phase.TRY, REFUSED))
    assert not machine.takes_branches
    assert machine.step(BranchRegistered("b")) == []
    assert words(machine.step(FAILS)) == ["decide abort a"]


def test_the_deadline_aborts_while_the_block_still_runs() -> None:
    machine = TccMachine(timeout_s=10)
    assert play(machine, *TRIED_A, BranchRegistered("b"), Due("deadline")) == []
    assert words(machine.step(answer("b", Phase.TRY))) == ["decide abort a b"]
    assert words(machine.step(Decided(ABORT))) == ["cancel b"]
    assert machine.step(BranchRegistered("c")) == []
    assert machine.step(LEFT) == []
    machine.step(CANCEL_B)
    assert words(machine.step(CANCEL_A))[-1] == "finish aborted: not decided in 10 s"


def test_who_is_not_told_the_decision_calls_nobody() -> None:
    assert play(TccMachine(), *TRIED_A, LEFT, DecisionUnknown("away")) == ["finish in doubt: away"]


def test_a_late_commit_is_cancelled_as_the_broker_has_decided() -> None:
    assert play(TccMachine(), *TRIED_A, LEFT, Decided(ABORT, "deadline"), CANCEL_A)[-1] == (
        "finish aborted: decided by deadline"
    )


def test_a_transaction_without_branches_ends_at_once() -> None:
    assert transcript(TccMachine(), LEFT, Decided(COMMIT)) == [
        "decide commit",
        "keep ended, committed",
        "finish committed",
    ]


def test_a_confirm_that_fails_is_tried_again_and_parked_in_the_end() -> None:
    machine = TccMachine()
    play(machine, *TRIED_A, *TRIED_B, LEFT, Decided(COMMIT), CONFIRM_B)
    failed = answer("a", Phase.CONFIRM, FAILED, reason="gone")
    assert words(machine.step(failed)) == ["keep confirmed b, because a: gone", "wait 1 s of a"]
    waited = 1.0
    for _ in range(18):
        assert machine.step(Due("a")) == [CallBranch("a", Phase.CONFIRM, "in A")]
        waited += machine.step(failed)[1].seconds  # type: ignore[union-attr]
    assert 3_000 < waited < 4_000  # about an hour
    machine.step(Due("a"))
    assert words(machine.step(failed)) == [
        "keep parked a, because a: gone",
        "keep parked, because a: gone",
        "finish parked: a: gone",
    ]


def test_a_cancel_that_fails_keeps_no_other_branch_waiting() -> None:
    events = (*TRIED_A, *TRIED_B, FAILS, Decided(ABORT), answer("b", Phase.CANCEL, FAILED, reason="gone"))
    assert play(TccMachine(), *events) == ["keep because b: gone", "wait 1 s of b", "cancel a in A"]


def test_a_refused_confirm_is_a_fault_and_parks_at_once() -> None:
    for verdict in (REFUSED, PARK):
        events = (*TRIED_A, LEFT, Decided(COMMIT), answer("a", Phase.CONFIRM, verdict, reason="never tried"))
        assert play(TccMachine(), *events)[-1] == "finish parked: a: never tried"


def known(*records: GlobalRecord, decision: GlobalDecision = GlobalDecision.NONE) -> GlobalTransaction:
    return GlobalTransaction("g", "bank", GlobalKind.TCC, decision=decision, records=list(records))


REGISTERED = GlobalRecord("registered", "a", "in A"), GlobalRecord("registered", "b", "in B")


def test_recovery_goes_on_with_what_has_no_record() -> None:
    done = GlobalRecord("confirmed", "a")
    assert play(TccMachine.resumed(known(*REGISTERED, done, decision=COMMIT))) == ["confirm b in B"]
    assert play(TccMachine.resumed(known(*REGISTERED))) == ["decide abort a b"]
    assert play(TccMachine.resumed(known(*REGISTERED, decision=ABORT))) == ["cancel b in B"]
    by_hand = GlobalRecord("resolved-done", "b")
    assert play(TccMachine.resumed(known(*REGISTERED, by_hand, decision=ABORT))) == ["cancel a in A"]


@given(st.data(), st.integers(0, 4))
def test_branches_are_registered_decided_and_ended_in_this_order(data: st.DataObject, count: int) -> None:
    played = Played(TccMachine(timeout_s=30), data)
    events: list[MachineEvent] = [BranchRegistered(f"b{number}") for number in range(count)]
    played.run([*events, BlockLeft(data.draw(st.booleans()))])
    lines = played.lines
    for number in range(count):
        assert lines.index(f"keep registered b{number}") < lines.index(f"call try b{number}")
    ends = [place for place, line in enumerate(lines) if line.startswith(("call confirm", "call cancel"))]
    decided = [place for place, line in enumerate(lines) if line.startswith("decided")]
    assert not ends or (decided and decided[0] < ends[0])
    assert not {"call confirm b0", "call cancel b0"} <= set(lines)
    assert played.finish is not None
    if played.finish.outcome in ("committed", "aborted"):
        last = "confirm" if played.finish.outcome == "committed" else "cancel"
        assert {line for line in lines if line.startswith(f"done {last}")} == {
            f"done {last} b{number}" for number in range(count)
        }
