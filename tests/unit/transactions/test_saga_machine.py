"""SAGA as a state machine: transcripts of what the TM does, and what holds whatever answers come."""

import pytest
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

from turbopump.client.errors import InvalidArgument
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalRecord, GlobalTransaction
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchRegistered,
    Decided,
    DecisionUnknown,
    Due,
    Machine,
    MachineEvent,
    Phase,
)
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.distributed.saga import MAX_STEPS, SagaGraph, SagaMachine, SagaStep, sequence
from turbopump.transactions.distributed.tcc import TccMachine

ABC = sequence([SagaStep("a"), SagaStep("b"), SagaStep("c")])
DIAMOND = SagaGraph((SagaStep("a"), SagaStep("b", ("a",)), SagaStep("c", ("a",)), SagaStep("d", ("b", "c"))))
PIVOT = SagaGraph(
    (
        SagaStep("a"),
        SagaStep("pivot", ("a",), has_undo=False, is_pivot=True),
        SagaStep("b", ("pivot",), has_undo=False, retry=Retry(attempts=2)),
    )
)


def done(name: str, result: str = "") -> MachineEvent:
    return answer(name, Phase.DO, data=result)


def undone(name: str) -> MachineEvent:
    return answer(name, Phase.UNDO)


def refused(name: str, reason: str = "no") -> MachineEvent:
    return answer(name, Phase.DO, REFUSED, reason=reason)


def known(
    *records: tuple[str, str, str], decision: GlobalDecision = GlobalDecision.NONE
) -> GlobalTransaction:
    found = [GlobalRecord(*one) for one in records]
    return GlobalTransaction("g", "bank", GlobalKind.SAGA, decision=decision, records=found)


def test_each_result_is_kept_before_the_next_step_and_the_last_one_with_the_end() -> None:
    assert transcript(SagaMachine(ABC), done("a", "1"), done("b"), done("c"), Decided(COMMIT)) == [
        "do a",
        "keep done a",
        "do b",
        "keep done b",
        "do c",
        "decide commit a b c",
        "keep done c, ended, committed",
        "finish committed",
    ]


def test_a_refused_step_compensates_in_reverse_with_the_results() -> None:
    lines = transcript(SagaMachine(ABC), done("a", "1"), done("b", "2"), refused("c"), Decided(ABORT))
    assert lines[5:] == ["keep refused c", "decide abort a b c", "undo c"]
    machine = SagaMachine(ABC)
    play(machine, done("a", "1"), done("b", "2"), refused("c"), Decided(ABORT))
    assert words(machine.step(undone("c"))) == ["keep undone c", "undo b 2"]
    assert words(machine.step(undone("b"))) == ["keep undone b", "undo a 1"]
    assert words(machine.step(undone("a"))) == [
        "keep undone a",
        "keep ended, aborted",
        "finish aborted: c: no",
    ]


def test_steps_that_do_not_depend_on_each_other_run_at_once() -> None:
    machine = SagaMachine(DIAMOND)
    assert play(machine, done("a")) == ["keep done a", "do b", "do c"]
    assert words(machine.step(done("c"))) == ["keep done c"]
    assert words(machine.step(done("b"))) == ["keep done b", "do d"]


def test_a_failure_waits_for_what_runs_and_goes_back_in_reverse_of_the_graph() -> None:
    machine = SagaMachine(DIAMOND)
    play(machine, done("a"))
    assert words(machine.step(refused("b"))) == ["keep refused b"]
    assert words(machine.step(done("c", "3"))) == ["keep done c", "decide abort a b c"]
    assert words(machine.step(Decided(ABORT))) == ["undo c 3", "undo b"]
    assert words(machine.step(undone("b"))) == ["keep undone b"]
    assert words(machine.step(undone("c"))) == ["keep undone c", "undo a"]


def test_a_step_is_tried_again_by_its_policy_and_then_given_up() -> None:
    graph = sequence([SagaStep("a"), SagaStep("b", retry=Retry(attempts=3, first=0.5))])
    machine = SagaMachine(graph)
    failed = answer("b", Phase.DO, FAILED, reason="away")
    assert play(machine, done("a"), failed) == ["keep because b: away", "wait 0.5 s of b"]
    assert words(machine.step(Due("b"))) == ["do b"]
    assert words(machine.step(failed)) == ["keep because b: away", "wait 1 s of b"]
    machine.step(Due("b"))
    assert words(machine.step(failed)) == ["keep failed b, because b: away", "decide abort a b"]
    assert words(machine.step(Decided(ABORT))) == ["undo b"]


def test_an_answer_that_comes_later_does_not_count_as_a_failure() -> None:
    machine = SagaMachine(sequence([SagaStep("a", retry=Retry(attempts=1))]))
    later = answer("a", Phase.DO, LATER, after_s=3.0)
    assert play(machine, later) == ["wait 3 s of a"]
    for _ in range(9):
        machine.step(Due("a"))
        assert words(machine.step(later)) == ["wait 3 s of a"]


def test_after_the_pivot_there_is_no_way_back() -> None:
    machine = SagaMachine(PIVOT)
    assert play(machine, done("a")) == ["keep done a", "keep begun pivot", "do pivot"]
    assert words(machine.step(done("pivot"))) == ["keep done pivot", "decide commit a pivot"]
    assert words(machine.step(Decided(COMMIT))) == ["do b"]
    failed = answer("b", Phase.DO, FAILED, reason="away")
    machine.step(failed)
    machine.step(Due("b"))
    assert words(machine.step(failed)) == [
        "keep parked b, because b: away",
        "keep parked, because b: away",
        "finish parked: b: away",
    ]


def test_a_refused_pivot_compensates_what_came_before() -> None:
    machine = SagaMachine(PIVOT)
    assert play(machine, done("a", "1"), refused("pivot"), Decided(ABORT)) == ["undo a 1"]
    assert words(machine.step(undone("a")))[-1] == "finish aborted: pivot: no"


def test_an_abort_by_others_while_the_pivot_may_be_done_asks_an_operator() -> None:
    records = [("done", "a", ""), ("begun", "pivot", "")]
    lines = play(SagaMachine.resumed(known(*records, decision=ABORT), PIVOT))
    assert lines[-1] == "finish parked: pivot: the pivot may be done, and has no undo"
    by_hand = ("resolved-done", "pivot", "")
    assert play(SagaMachine.resumed(known(*records, by_hand, decision=ABORT), PIVOT)) == ["undo a"]


def test_the_pivot_waits_for_every_step_that_does_not_come_after_it() -> None:
    graph = SagaGraph((SagaStep("pivot", has_undo=False, is_pivot=True), SagaStep("beside")))
    machine = SagaMachine(graph)
    assert words(machine.begin()) == ["do beside"]
    assert words(machine.step(done("beside"))) == ["keep done beside", "keep begun pivot", "do pivot"]


def test_behind_a_refused_pivot_the_steps_beside_it_are_compensated_too() -> None:
    graph = SagaGraph((SagaStep("pivot", has_undo=False, is_pivot=True), SagaStep("beside")))
    assert play(SagaMachine(graph), done("beside"), refused("pivot"), Decided(ABORT)) == ["undo beside"]


def test_the_deadline_turns_before_the_pivot_and_only_shows_after_it() -> None:
    machine = SagaMachine(PIVOT, timeout_s=5)
    assert play(machine, Due("deadline")) == []
    assert words(machine.step(done("a"))) == ["keep done a", "decide abort a"]
    machine = SagaMachine(PIVOT, timeout_s=5)
    assert play(machine, done("a"), Due("deadline")) == ["keep because deadline: not done in 5 s"]


def test_a_compensation_that_fails_for_good_parks_and_others_go_on_where_the_graph_allows() -> None:
    machine = SagaMachine(DIAMOND)
    play(machine, done("a"), done("b"), done("c"), refused("d"), Decided(ABORT), undone("d"))
    assert words(machine.step(answer("b", Phase.UNDO, PARK, reason="broken"))) == [
        "keep parked b, because b: broken"
    ]
    assert words(machine.step(undone("c"))) == [
        "keep undone c, because b: broken",
        "keep parked, because b: broken",
        "finish parked: b: broken",
    ]


def test_an_operator_s_word_lets_the_rest_go_on() -> None:
    records = [("done", "a", "1"), ("done", "b", ""), ("refused", "c", "no"), ("undone", "c", "")]
    parked = [*records, ("parked", "b", "broken"), ("resolved-done", "b", "ops: by hand")]
    assert play(SagaMachine.resumed(known(*parked, decision=ABORT), ABC)) == ["undo a 1"]
    again = [*records, ("parked", "b", "broken"), ("resolved-retry", "", "ops: repaired")]
    assert play(SagaMachine.resumed(known(*again, decision=ABORT), ABC)) == ["undo b"]


def test_a_step_without_undo_is_passed_over() -> None:
    graph = sequence([SagaStep("a"), SagaStep("b", has_undo=False), SagaStep("c")])
    machine = SagaMachine(graph)
    play(machine, done("a"), done("b"), refused("c"), Decided(ABORT))
    assert words(machine.step(undone("c"))) == ["keep undone c", "undo a"]


def test_who_is_not_told_the_decision_calls_nobody() -> None:
    assert play(SagaMachine(sequence([SagaStep("a")])), done("a"), DecisionUnknown("away")) == [
        "finish in doubt: away"
    ]


def test_a_saga_that_was_aborted_meanwhile_keeps_its_last_result_before_it_goes_back() -> None:
    machine = SagaMachine(sequence([SagaStep("a")]))
    assert play(machine, done("a", "1"), Decided(ABORT, "deadline")) == ["keep done a", "undo a 1"]


FORWARD = [("done", "a", "1"), ("done", "b", "2")]
BACK = [*FORWARD, ("refused", "c", "c: no")]


@pytest.mark.parametrize(
    ("records", "decision", "goes_on"),
    [
        ([], "", ["do a"]),
        (FORWARD[:1], "", ["do b"]),
        (FORWARD, "", ["do c"]),
        (FORWARD, "commit", ["do c"]),
        ([*FORWARD, ("done", "c", "3")], "", ["decide commit a b c"]),
        ([*FORWARD, ("done", "c", "3")], "commit", ["keep ended, committed", "finish committed"]),
        (BACK, "", ["decide abort a b c"]),
        (BACK, "abort", ["undo c"]),
        ([*BACK, ("undone", "c", "")], "abort", ["undo b 2"]),
        ([*BACK, ("undone", "c", ""), ("undone", "b", "")], "abort", ["undo a 1"]),
        (
            [*BACK, ("undone", "c", ""), ("undone", "b", ""), ("undone", "a", "")],
            "abort",
            ["keep ended, aborted", "finish aborted: c: no"],
        ),
        (FORWARD[:1], "abort", ["undo b"]),  # it may have begun: its compensation is empty, or is not
    ],
)
def test_another_process_goes_on_after_the_last_record(
    records: list[tuple[str, str, str]], decision: str, goes_on: list[str]
) -> None:
    found = known(*records, decision=GlobalDecision(decision))
    assert play(SagaMachine.resumed(found, ABC)) == goes_on


@pytest.mark.parametrize(
    ("steps", "words_of_error"),
    [
        ([], "must have 1 to 64 steps, got 0"),
        ([SagaStep(f"s{number}") for number in range(MAX_STEPS + 1)], "must have 1 to 64 steps, got 65"),
        ([SagaStep("a"), SagaStep("a")], "declared twice"),
        ([SagaStep("a", after=("b",)), SagaStep("b")], "declared before it, got b"),
        ([SagaStep("a", is_pivot=True), SagaStep("b", ("a",), is_pivot=True)], "at most one pivot, got a, b"),
        ([SagaStep("a", is_pivot=True), SagaStep("b", ("a",))], "declare it without undo"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(steps: list[SagaStep], words_of_error: str) -> None:
    with pytest.raises(InvalidArgument, match=words_of_error):
        SagaGraph(tuple(steps))


def calls_of(machine: Machine, *before: MachineEvent) -> int:
    """Counts the calls of a run in which everything is done."""

    class AllDone:
        def draw(self, strategy: object) -> object:
            return 0

    played = Played(machine, AllDone())
    played._answer = lambda call: answer(call.branch, call.phase)  # type: ignore[method-assign]
    played._decide = lambda action: played._do(machine.step(Decided(action.decision)))  # type: ignore[method-assign]
    played.run(list(before))
    return sum(line.startswith("call") for line in played.lines)


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_a_saga_makes_n_calls_and_tcc_makes_2n(count: int) -> None:
    names = [f"b{number}" for number in range(count)]
    assert calls_of(SagaMachine(sequence([SagaStep(name) for name in names]))) == count
    registered = [BranchRegistered(name) for name in names]
    assert calls_of(TccMachine(), *registered, BlockLeft(True)) == 2 * count


@st.composite
def graphs(draw: st.DrawFn) -> SagaGraph:
    steps: list[SagaStep] = []
    count = draw(st.integers(1, 5))
    pivot = draw(st.integers(-1, count - 1))
    for number in range(count):
        before = [step.name for step in steps]
        after = tuple(draw(st.lists(st.sampled_from(before), unique=True, max_size=2))) if before else ()
        is_pivot = number == pivot
        probe = SagaGraph((*steps, SagaStep(f"s{number}", after, has_undo=False)))
        has_undo = not is_pivot and not probe.is_behind_pivot(f"s{number}")
        steps.append(SagaStep(f"s{number}", after, has_undo, is_pivot, Retry(attempts=3)))
    return SagaGraph(tuple(steps))


@given(st.data(), graphs())
def test_steps_and_compensations_follow_the_graph(data: st.DataObject, graph: SagaGraph) -> None:
    played = Played(SagaMachine(graph), data)
    played.run([])
    lines, undo_ends = played.lines, {}
    for step in graph.steps:
        for before in graph.before(step.name):
            for place in (n for n, line in enumerate(lines) if line == f"call do {step.name}"):
                assert f"done do {before}" in lines[:place]
                assert f"keep done {before}" in lines[:place]
            for place in (n for n, line in enumerate(lines) if line == f"call undo {before}"):
                called = f"call do {step.name}" in lines
                has_undo = graph.by_name[step.name].has_undo
                assert not called or not has_undo or f"keep undone {step.name}" in lines[:place]
        undo_ends[step.name] = lines.count(f"done undo {step.name}")
    first_undo = next((n for n, line in enumerate(lines) if line.startswith("call undo")), len(lines))
    assert first_undo == len(lines) or "decided abort" in lines[:first_undo]
    assert max(undo_ends.values()) <= 1
    assert played.finish is not None
    if played.finish.outcome == "committed":
        assert {f"done do {step.name}" for step in graph.steps} <= set(lines)
        assert first_undo == len(lines)
