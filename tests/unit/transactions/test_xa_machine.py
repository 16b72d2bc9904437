"""XA as a state machine: transcripts of what the TM does, and what holds whatever answers come."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.transactions.machine_kit import (
    ABORT,
    COMMIT,
    DONE,
    FAILED,
    LATER,
    PARK,
    READ_ONLY,
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
    CallBranch,
    Decided,
    DecisionUnknown,
    Due,
    Finish,
    Phase,
)
from turbopump.transactions.distributed.xa import XaMachine

PREPARE, COMMIT_IT, ROLL_BACK = Phase.PREPARE, Phase.COMMIT, Phase.ROLL_BACK
ONE_PHASE = Phase.COMMIT_ONE_PHASE
LEFT = BlockLeft(True)
YES_A, YES_B = answer("a", PREPARE), answer("b", PREPARE)


def known(**more: object) -> GlobalTransaction:
    return GlobalTransaction("g", "bank", GlobalKind.XA, **more)  # type: ignore[arg-type]


def test_two_branches_are_prepared_at_once_and_committed_after_the_decision() -> None:
    assert transcript(
        XaMachine(["a", "b"], timeout_s=30),
        LEFT,
        YES_B,
        YES_A,
        Decided(COMMIT),
        answer("a", COMMIT_IT),
        answer("b", COMMIT_IT),
    ) == [
        "wait 30 s of deadline",
        "prepare a",
        "prepare b",
        "decide commit b a",
        "commit b",
        "commit a",
        "keep ended, committed",
        "finish committed",
    ]


def test_one_branch_commits_in_one_phase_without_the_broker() -> None:
    assert transcript(XaMachine(["a"]), LEFT, answer("a", ONE_PHASE)) == [
        "commit one phase a",
        "finish committed",
    ]


def test_one_branch_with_messages_needs_the_decision() -> None:
    assert transcript(XaMachine(["a"], is_open=True), LEFT, YES_A) == ["prepare a", "decide commit a"]


def test_messages_alone_need_the_decision_only() -> None:
    assert transcript(XaMachine([], is_open=True), LEFT, Decided(COMMIT)) == [
        "decide commit",
        "keep ended, committed",
        "finish committed",
    ]


def test_a_commit_in_one_phase_that_fails_leaves_it_in_doubt() -> None:
    assert play(XaMachine(["a"]), LEFT, answer("a", ONE_PHASE, FAILED, reason="gone")) == [
        "finish in doubt: gone"
    ]
    assert play(XaMachine(["a"]), LEFT, answer("a", ONE_PHASE, REFUSED, reason="no")) == [
        "finish aborted: no"
    ]


def test_a_no_rolls_all_back_and_writes_nothing() -> None:
    assert transcript(
        XaMachine(["a", "b"]),
        LEFT,
        answer("a", PREPARE, REFUSED, reason="too little money"),
        YES_B,
        answer("a", ROLL_BACK),
        answer("b", ROLL_BACK),
    ) == [
        "prepare a",
        "prepare b",
        "roll back a",
        "roll back b",
        "finish aborted: too little money",
    ]


def test_a_block_that_fails_rolls_back_what_has_begun() -> None:
    assert play(XaMachine(["a", "b"]), BlockLeft(False, "ValueError")) == ["roll back a", "roll back b"]


def test_an_abort_with_messages_is_written_so_that_brokers_drop_them() -> None:
    assert transcript(
        XaMachine(["a"], is_open=True), BlockLeft(False, "x"), Decided(ABORT), answer("a", ROLL_BACK)
    ) == ["decide abort a", "roll back a", "keep ended, aborted", "finish aborted: x"]


def test_a_vote_after_the_timeout_does_not_count() -> None:
    machine = XaMachine(["a", "b"], timeout_s=30)
    assert play(machine, LEFT, YES_A, Due("deadline")) == []
    assert [type(one) for one in machine.step(YES_B)] == [CallBranch, CallBranch]
    assert machine.reason == "not all branches have voted in 30 s"


def test_a_caller_that_is_cancelled_while_branches_vote_aborts() -> None:
    assert play(XaMachine(["a"], is_open=True), LEFT, BlockLeft(False, "cancelled"), YES_A) == [
        "decide abort a"
    ]


def test_branches_that_only_read_are_rolled_back_and_not_named() -> None:
    assert transcript(
        XaMachine(["a", "b"]),
        LEFT,
        answer("a", PREPARE, READ_ONLY),
        YES_B,
        Decided(COMMIT),
        answer("b", COMMIT_IT),
        answer("a", ROLL_BACK),
    ) == [
        "prepare a",
        "prepare b",
        "decide commit b",
        "commit b",
        "roll back a",
        "keep ended, committed",
        "finish committed",
    ]


def test_if_all_branches_only_read_nothing_is_decided() -> None:
    votes = [answer(name, PREPARE, READ_ONLY) for name in ("a", "b")]
    ends = [answer(name, ROLL_BACK) for name in ("a", "b")]
    assert transcript(XaMachine(["a", "b"]), LEFT, *votes, *ends) == [
        "prepare a",
        "prepare b",
        "roll back a",
        "roll back b",
        "finish committed",
    ]


def test_when_the_answer_is_lost_nothing_is_rolled_back() -> None:
    assert play(XaMachine(["a", "b"]), LEFT, YES_A, YES_B, DecisionUnknown("away")) == [
        "finish in doubt: away"
    ]


def test_the_decision_that_counts_may_be_that_of_another() -> None:
    machine = XaMachine(["a", "b"])
    assert play(machine, LEFT, YES_A, YES_B, Decided(ABORT, "tm2")) == ["roll back a", "roll back b"]
    machine.step(answer("a", ROLL_BACK))
    assert machine.step(answer("b", ROLL_BACK))[-1].error == "decided by tm2"  # type: ignore[union-attr]


def test_a_decided_branch_is_asked_for_ever_and_shown_from_the_first_failure() -> None:
    machine = XaMachine(["a", "b"])
    failed = answer("a", COMMIT_IT, FAILED, reason="gone")
    assert play(machine, LEFT, YES_A, YES_B, Decided(COMMIT), failed) == [
        "keep because a: gone",
        "wait 1 s of a",
    ]
    pauses = []
    for _ in range(12):
        [call] = machine.step(Due("a"))
        assert call == CallBranch("a", COMMIT_IT)
        _, wait = machine.step(failed)
        pauses.append(wait.seconds)  # type: ignore[union-attr]
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]


def test_a_branch_held_by_a_live_connection_is_asked_later_and_that_is_no_failure() -> None:
    machine = XaMachine(["a"], is_open=True)
    play(machine, LEFT, YES_A, Decided(COMMIT))
    later = answer("a", COMMIT_IT, LATER, after_s=0.5, reason="held")
    for _ in range(30):
        assert words(machine.step(later)) == ["keep because a: held", "wait 0.5 s of a"]
        machine.step(Due("a"))


def test_a_branch_that_needs_an_operator_parks_when_the_others_have_ended() -> None:
    assert transcript(
        XaMachine(["a", "b"]),
        LEFT,
        YES_A,
        YES_B,
        Decided(COMMIT),
        answer("a", COMMIT_IT, PARK, reason="1402"),
        answer("b", COMMIT_IT),
    )[-4:] == [
        "commit b",
        "keep parked a, because a: 1402",
        "keep parked, because a: 1402",
        "finish parked: a: 1402",
    ]


def test_an_abort_that_is_not_written_leaves_what_it_cannot_reach_to_the_sweep() -> None:
    machine = XaMachine(["a", "b"])
    play(machine, BlockLeft(False, "x"))
    machine.step(answer("b", ROLL_BACK))
    failed = answer("a", ROLL_BACK, FAILED, reason="gone")
    for _ in range(2):
        machine.step(failed)
        machine.step(Due("a"))
    assert machine.step(failed) == [Finish("aborted", "x; a: gone")]  # type: ignore[arg-type]


# the last resource


def test_the_commit_of_the_last_resource_is_the_decision() -> None:
    assert transcript(
        XaMachine(["a"], last="lite"), LEFT, YES_A, answer("lite", ONE_PHASE), answer("a", COMMIT_IT)
    ) == ["prepare a", "commit one phase lite", "commit a", "finish committed"]


def test_a_last_resource_that_refuses_aborts() -> None:
    assert transcript(
        XaMachine(["a"], last="lite"), LEFT, YES_A, answer("lite", ONE_PHASE, REFUSED, reason="an abort row")
    )[-2:] == ["roll back a", "roll back lite"]


def test_a_last_resource_that_does_not_answer_leaves_all_prepared() -> None:
    assert play(XaMachine(["a"], last="lite"), LEFT, YES_A, answer("lite", ONE_PHASE, FAILED)) == [
        "finish in doubt"
    ]


def test_with_messages_the_broker_follows_the_last_resource() -> None:
    events = [LEFT, YES_A, answer("lite", ONE_PHASE)]
    assert play(XaMachine(["a"], last="lite", is_open=True), *events) == ["decide commit a"]
    assert play(XaMachine(["a"], last="lite", is_open=True), *events, DecisionUnknown()) == ["commit a"]
    assert play(XaMachine(["a"], last="lite", is_open=True), *events, Decided(ABORT)) == [
        "keep parked, because the last resource lite has decided commit, the broker abort",
        "finish parked: the last resource lite has decided commit, the broker abort",
    ]


def test_recovery_asks_the_last_resource_before_the_broker() -> None:
    machine = XaMachine.resumed(known(), ["a"], last="lite")
    assert play(machine, answer("lite", ROLL_BACK, REFUSED)) == ["decide commit a"]
    machine = XaMachine.resumed(known(), ["a"], last="lite")
    assert transcript(machine, answer("lite", ROLL_BACK), Decided(ABORT), answer("a", ROLL_BACK)) == [
        "roll back lite",
        "decide abort a",
        "roll back a",
        "keep ended, aborted",
        "finish aborted: lite has not committed",
    ]
    machine = XaMachine.resumed(known(), ["a"], last="lite")
    assert play(machine, answer("lite", ROLL_BACK, FAILED, reason="locked")) == ["finish in doubt: locked"]


# recovery


def test_recovery_commits_what_is_decided_and_aborts_what_is_not() -> None:
    decided = known(decision=GlobalDecision.COMMIT, branches=("a", "b"))
    assert play(XaMachine.resumed(decided, ["a", "b", "c"])) == ["commit a", "commit b"]
    assert play(XaMachine.resumed(known(), ["a", "b"])) == ["decide abort a b"]
    late = known(decision=GlobalDecision.ABORT, decided_by="deadline")
    assert play(XaMachine.resumed(late, ["a", "b"])) == ["roll back a", "roll back b"]


def test_a_branch_that_an_operator_has_ended_is_not_called() -> None:
    records = [GlobalRecord("parked", "a"), GlobalRecord("resolved-done", "a")]
    decided = known(decision=GlobalDecision.COMMIT, branches=("a", "b"), records=records)
    assert play(XaMachine.resumed(decided, ["a", "b"])) == ["commit b"]


# whatever comes


@given(st.data(), st.integers(1, 4), st.booleans(), st.booleans())
def test_nothing_commits_before_the_decision_and_everything_ends(
    data: st.DataObject, count: int, is_open: bool, has_last: bool
) -> None:
    names = [f"b{number}" for number in range(count)]
    machine = XaMachine(names, last="lite" if has_last else "", is_open=is_open, timeout_s=30)
    played = Played(machine, data)
    played.run([BlockLeft(data.draw(st.booleans()))])
    decided = False
    for line in played.lines:
        decided = decided or line in ("decided commit", "done commit one phase lite")
        assert decided or not line.startswith("call commit b")
        is_undone = decided and line.startswith("call roll back b")
        assert not is_undone or line.rpartition(" ")[2] in played.read_only
    assert played.finish is not None
    assert played.ends.keys() <= {*names, "lite"}
    if played.finish.outcome == "committed":
        written = {name: verdict for name, verdict in played.ends.items() if name not in played.read_only}
        assert set(written.values()) <= {DONE}
