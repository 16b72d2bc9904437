"""The book of global transactions, without disk and network."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.broker.transactions.book import book as module
from turbopump.broker.transactions.book.book import (
    DEADLINE,
    KEEP_ENDED_MS,
    MAX_APPEND_BYTES,
    MAX_BRANCHES,
    MAX_DEADLINE_MS,
    MAX_PLAN_BYTES,
    GlobalBook,
)
from turbopump.broker.transactions.book.changes import GlobalChange, read_global_change
from turbopump.broker.transactions.book.names import MAX_NAME_BYTES
from turbopump.broker.transactions.halves import HalfDecision
from turbopump.broker.transactions.ledger.ledger import verdict
from turbopump.broker.transactions.ledger.stamps import LedgerStamp
from turbopump.protocol.errors import (
    BrokenBody,
    Fenced,
    IllegalOperation,
    InvalidParameter,
    QueryNotFound,
    SystemBusy,
)
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalRecord,
    GlobalState,
    GlobalTransaction,
)

NOW, LEASE_MS = 1_000_000, 30_000
COMMIT, ABORT = GlobalDecision.COMMIT, GlobalDecision.ABORT
OPEN, DECIDED, PARKED, ENDED = GlobalState
TCC = GlobalKind.TCC


class Bench:
    """A book, its time, and short ways to change it; every change goes through its stored form."""

    def __init__(self) -> None:
        self.book = GlobalBook()
        self.now = NOW
        self.stored: list[GlobalChange] = []

    def apply(self, *changes: GlobalChange | None) -> None:
        for change in changes:
            if change is not None:
                self.stored.append(change)
                self.book.apply(change)

    def open(self, gid: str = "g", **changes: Any) -> GlobalTransaction:
        fields = {"group": "bank", "kind": TCC, "plan": "p", "owner": "tm"} | changes
        self.apply(self.book.open(gid, now_ms=self.now, lease_ms=LEASE_MS, **fields))
        return self.book.transactions[gid]

    def append(self, *events: str, gid: str = "g", **changes: Any) -> GlobalTransaction:
        known = self.book.transactions[gid]
        records = [GlobalRecord(event, "debit") for event in events]
        fields = {"lease": known.lease, "length": len(known.records)} | changes
        self.apply(
            self.book.append(gid, "bank", records=records, now_ms=self.now, lease_ms=LEASE_MS, **fields)
        )
        return self.book.transactions[gid]

    def decide(self, decision: GlobalDecision, gid: str = "g", **changes: Any) -> GlobalTransaction:
        fields = {"group": "bank", "kind": TCC, "by": "tm"} | changes
        self.apply(self.book.decide(gid, decision=decision, now_ms=self.now, lease_ms=LEASE_MS, **fields))
        return self.book.transactions[gid]

    def claim(self, owner: str = "other", **changes: Any) -> list[GlobalTransaction]:
        claimed = self.book.claim("bank", owner, self.now, LEASE_MS, **changes)
        self.apply(*claimed)
        return [self.book.transactions[one.gid] for one in claimed]

    def resolve(self, action: str, **changes: Any) -> GlobalTransaction:
        fields = {"who": "ann", "because": "seen in the bank's books"} | changes
        self.apply(self.book.resolve("g", "bank", action, now_ms=self.now, **fields))
        return self.book.transactions["g"]


def test_the_first_decision_counts() -> None:
    bench = Bench()
    bench.open()
    assert bench.decide(COMMIT, branches=("debit", "credit")).decision is COMMIT
    again = bench.decide(ABORT, by="late")
    assert (again.decision, again.decided_by, again.branches) == (COMMIT, "tm", ("debit", "credit"))


def test_a_commit_of_what_was_not_opened_is_one_write() -> None:
    bench = Bench()
    known = bench.decide(COMMIT, branches=("a", "b"), by="tm", deadline_ms=NOW + 1)
    assert (known.state, known.lease, known.owner) == (DECIDED, 1, "tm")
    assert len(bench.stored) == 1


def test_an_abort_of_what_nobody_opened_leaves_a_mark_for_a_late_commit() -> None:
    bench = Bench()
    assert bench.decide(ABORT, by="sweep").state is ENDED
    assert bench.decide(COMMIT, by="slow").decision is ABORT


def test_a_commit_of_what_was_not_opened_must_have_a_deadline() -> None:
    """Without one it could come after the abort of a sweep has been forgotten."""
    bench = Bench()
    with pytest.raises(InvalidParameter, match="must have a deadline"):
        bench.decide(COMMIT)
    assert bench.book.transactions == {}


def test_an_abort_is_remembered_until_no_late_commit_can_come_however_many_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_ENDED", 0)
    bench = Bench()
    bench.decide(ABORT, gid="swept", by="sweep", deadline_ms=NOW + 1)  # its own deadline says nothing
    for gid in ("one", "two"):
        bench.decide(COMMIT, gid=gid, deadline_ms=NOW + 1)
        bench.append(gid=gid, state="ended")
    assert [one.gid for one in bench.book.forgettable(NOW, 10)] == ["one", "two"]
    assert [one.gid for one in bench.book.forgettable(NOW + MAX_DEADLINE_MS - 1, 10)] == ["one", "two"]
    assert [one.gid for one in bench.book.forgettable(NOW + MAX_DEADLINE_MS, 10)] == ["one", "two", "swept"]
    assert bench.decide(COMMIT, gid="swept", deadline_ms=NOW + MAX_DEADLINE_MS).decision is ABORT


def test_what_was_aborted_is_forgotten_at_its_deadline_when_there_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_ENDED", 0)
    bench = Bench()
    bench.open(deadline_ms=NOW + 5000)
    bench.decide(ABORT)
    bench.append(state="ended")
    assert bench.book.next_due() == NOW + 5000
    assert bench.book.forgettable(NOW + 4999, 10) == []
    assert len(bench.book.forgettable(NOW + 5000, 10)) == 1


def test_a_full_book_takes_aborts_of_what_a_sweep_found_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_OPEN", 1)
    monkeypatch.setattr(module, "MAX_ABORTED", 2)
    bench = Bench()
    bench.open("open")
    with pytest.raises(SystemBusy, match="have not ended"):
        bench.decide(COMMIT, gid="other", deadline_ms=NOW + 1)
    for gid in ("a", "b"):
        assert bench.decide(ABORT, gid=gid).state is ENDED
    with pytest.raises(SystemBusy, match="remembered"):
        bench.decide(ABORT, gid="c")


@pytest.mark.parametrize("is_open", [True, False])
def test_past_its_deadline_a_transaction_is_aborted_whoever_asks(is_open: bool) -> None:
    bench = Bench()
    if is_open:
        bench.open(deadline_ms=NOW + 5000)
    bench.now += 5000
    known = bench.decide(COMMIT, deadline_ms=NOW + 5000)
    assert (known.decision, known.decided_by) == (ABORT, DEADLINE)


def test_nobody_decided_in_time() -> None:
    bench = Bench()
    bench.open(deadline_ms=NOW + 5000)
    bench.open("decided", deadline_ms=NOW + 5000)
    bench.open("without")
    bench.decide(COMMIT, gid="decided")
    assert bench.book.overdue(NOW + 4999, 10) == []
    assert bench.book.overdue(NOW + 5000, 0) == []
    assert bench.book.overdue(NOW + 5000, 10) == ["g"]
    bench.apply(bench.book.abort_overdue("g", NOW + 5000))
    assert bench.book.overdue(NOW + 5000, 10) == []
    assert bench.book.transactions["g"].decision is ABORT


def test_opening_twice_is_opening_once_and_another_plan_is_refused() -> None:
    bench = Bench()
    bench.open()
    bench.open()
    assert len(bench.stored) == 1
    for changes in ({"plan": "other"}, {"kind": GlobalKind.SAGA}, {"group": "other"}):
        with pytest.raises(IllegalOperation):
            bench.open(**changes)


def test_records_are_taken_from_the_present_owner_alone() -> None:
    bench = Bench()
    bench.open()
    bench.append("tried")
    assert bench.claim() == []  # it is worked on
    bench.now += LEASE_MS
    (known,) = bench.claim()
    assert (known.lease, known.owner) == (2, "other")
    with pytest.raises(Fenced, match="other has lease 2"):
        bench.append("late", lease=1)
    assert [one.event for one in bench.append("confirmed").records] == ["tried", "confirmed"]


def test_the_same_append_twice_adds_once_and_another_one_is_refused() -> None:
    bench = Bench()
    bench.open()
    bench.append("tried")
    bench.append("tried", length=0)
    assert len(bench.book.transactions["g"].records) == 1
    with pytest.raises(IllegalOperation, match="read it again"):
        bench.append("other", length=0)
    with pytest.raises(IllegalOperation, match="read it again"):
        bench.append("other", length=2)
    with pytest.raises(InvalidParameter, match="0 or more, got -1"):
        bench.append("tried", length=-1)
    bench.append("confirmed", "closed")
    with pytest.raises(IllegalOperation, match="read it again"):
        bench.append("confirmed", length=1)  # only the first of two


def test_a_transaction_ends_only_after_its_decision_and_only_once() -> None:
    bench = Bench()
    bench.open()
    with pytest.raises(IllegalOperation, match="decided before"):
        bench.append("done", state="ended")
    bench.decide(COMMIT)
    known = bench.append("done", state="ended", outcome="committed")
    assert (known.state, known.outcome, known.ended_ms) == (ENDED, "committed", NOW)
    bench.append("done", length=0, state="ended", outcome="committed")
    assert len(bench.book.transactions["g"].records) == 1
    with pytest.raises(IllegalOperation, match="has ended"):
        bench.append("more")
    with pytest.raises(InvalidParameter, match="parked, ended or empty"):
        bench.append("more", state="gone")


def test_one_that_waits_for_its_next_try_or_for_an_operator_is_not_claimed() -> None:
    bench = Bench()
    bench.open()
    bench.append("failed", next_try_ms=NOW + 60_000, error="the bank is closed")
    bench.now += 59_999
    assert bench.claim() == []
    bench.now += 1
    assert [one.gid for one in bench.claim()] == ["g"]
    assert bench.append("failed", state="parked", error="20 attempts").state is PARKED
    bench.now += LEASE_MS
    assert bench.claim() == []
    assert bench.resolve("retry").state is OPEN
    assert [one.gid for one in bench.claim()] == ["g"]


def test_an_operator_fences_the_owner_and_cannot_contradict_a_decision_by_accident() -> None:
    bench = Bench()
    bench.open()
    bench.decide(COMMIT)
    with pytest.raises(IllegalOperation, match="heuristic"):
        bench.resolve("abort")
    known = bench.resolve("abort", heuristic=True)
    assert (known.decision, known.lease) == (ABORT, 2)
    assert known.records[-1] == GlobalRecord("resolved-abort", "", "ann: seen in the bank's books", NOW)
    with pytest.raises(Fenced):
        bench.append("late", lease=1)
    assert bench.resolve("done", branch="debit").records[-1].branch == "debit"
    with pytest.raises(InvalidParameter, match="retry, commit, abort or done"):
        bench.resolve("forget")
    with pytest.raises(InvalidParameter, match="and why"):
        bench.resolve("retry", because="")


def test_an_operator_does_not_decide_by_accident_what_a_last_resource_may_have_decided() -> None:
    bench = Bench()
    bench.open("tpl.g")
    for action in ("commit", "abort"):
        with pytest.raises(IllegalOperation, match="the last resource of transaction"):
            bench.book.resolve("tpl.g", "bank", action, "ann", "why", NOW)
    for action, heuristic in (("retry", False), ("abort", True)):
        bench.apply(bench.book.resolve("tpl.g", "bank", action, "ann", "why", NOW, heuristic=heuristic))
    assert bench.book.transactions["tpl.g"].decision is ABORT
    with pytest.raises(IllegalOperation, match="the opposite"):
        bench.book.resolve("tpl.g", "bank", "commit", "ann", "why", NOW)


def test_ended_ones_are_kept_for_a_day_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for gid in ("a", "b", "c"):
        bench.decide(COMMIT, gid=gid, deadline_ms=bench.now + 1)
        bench.append(gid=gid, state="ended")
        bench.now += 1000
    assert bench.book.forgettable(NOW + KEEP_ENDED_MS - 1, 10) == []
    assert [one.gid for one in bench.book.forgettable(NOW + KEEP_ENDED_MS + 1000, 10)] == ["a", "b"]
    assert [one.gid for one in bench.book.forgettable(NOW + KEEP_ENDED_MS + 1000, 1)] == ["a"]
    assert bench.book.next_due() == NOW + KEEP_ENDED_MS
    monkeypatch.setattr(module, "MAX_ENDED", 1)
    assert bench.book.next_due() == bench.book.due("c") == NOW
    found = bench.book.forgettable(bench.now, 10)
    assert [one.gid for one in found] == ["a", "b"]
    bench.apply(*found)
    assert list(bench.book.transactions) == ["c"]


def test_messages_follow_the_decision() -> None:
    def judged(gid: str, group: str = "bank") -> HalfDecision | None:
        stamp = LedgerStamp(f"global/{group}/{gid}", 0, "-", gid, "home")
        return verdict(bench.book.view(gid, group, "home"), stamp)

    bench = Bench()
    for gid in ("open", "committed", "aborted"):
        bench.open(gid)
    bench.decide(COMMIT, gid="committed")
    bench.decide(ABORT, gid="aborted")
    assert judged("open") is None
    assert judged("committed") is HalfDecision.COMMIT
    assert judged("aborted") is HalfDecision.ROLLBACK
    assert judged("forgotten") is HalfDecision.ROLLBACK
    assert judged("committed", "other") is HalfDecision.ROLLBACK


@pytest.mark.parametrize(
    "name", ["", "a b", "a,b", "a'b", 'a"b', "a;b", "a/b", "a\\b", "ä", "a\n", "x" * (MAX_NAME_BYTES + 1)]
)
def test_a_name_that_a_database_would_not_take_is_refused(name: str) -> None:
    bench = Bench()
    with pytest.raises(InvalidParameter, match="gid must be"):
        bench.open(name)
    with pytest.raises(InvalidParameter, match="branch must be"):
        bench.decide(COMMIT, branches=(name,))
    bench.open("x" * MAX_NAME_BYTES)


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.open(plan="ä" * (MAX_PLAN_BYTES // 2))
    with pytest.raises(InvalidParameter, match="plan"):
        bench.open("other", plan="ä" * (MAX_PLAN_BYTES // 2) + "x")
    with pytest.raises(InvalidParameter, match="bytes"):
        bench.append("x" * MAX_APPEND_BYTES)
    with pytest.raises(InvalidParameter, match="branches"):
        bench.decide(COMMIT, branches=tuple(f"b{number}" for number in range(MAX_BRANCHES + 1)))
    for deadline_ms in (-1, NOW + MAX_DEADLINE_MS + 1):
        with pytest.raises(InvalidParameter, match="deadline"):
            bench.open("other", deadline_ms=deadline_ms)
    for lease_ms in (0, 600_001):
        with pytest.raises(InvalidParameter, match="lease"):
            bench.book.claim("bank", "x", NOW, lease_ms)
    monkeypatch.setattr(module, "MAX_RECORDS", 1)
    bench.append("one")
    with pytest.raises(IllegalOperation, match="at most 1 record"):
        bench.append("two")
    monkeypatch.setattr(module, "MAX_OPEN", 1)
    with pytest.raises(SystemBusy):
        bench.open("other")
    with pytest.raises(SystemBusy):
        bench.decide(COMMIT, gid="other", deadline_ms=NOW + 1)


def test_plans_and_records_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HISTORY_BYTES", 200)
    bench = Bench()
    bench.open(plan="x" * 50)
    bench.append("tried")
    with pytest.raises(IllegalOperation, match="at most 200 bytes, got"):
        bench.append("tried again")
    bench.decide(COMMIT)
    bench.append(state="ended", outcome="committed")
    monkeypatch.setattr(module, "MAX_BOOK_BYTES", 100)
    with pytest.raises(SystemBusy, match="have 124 bytes"):
        bench.open("other")
    assert bench.book.next_due() == NOW
    bench.apply(*bench.book.forgettable(NOW, 10))
    bench.open("other")


def test_large_ones_are_claimed_in_several_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLAIMED_BYTES", 100)
    bench = Bench()
    for gid in "abc":
        bench.open(gid, plan="x" * 60)
    bench.now += LEASE_MS
    assert [[one.gid for one in bench.claim()] for _ in range(4)] == [["a"], ["b"], ["c"], []]


def test_an_owner_or_a_broker_without_a_usable_name_is_refused() -> None:
    bench = Bench()
    for owner in ("", "x" * 1025):
        with pytest.raises(InvalidParameter, match="owner"):
            bench.open(owner=owner)
        with pytest.raises(InvalidParameter, match="owner"):
            bench.claim(owner)
        with pytest.raises(InvalidParameter, match="owner"):
            bench.decide(ABORT, by=owner)
    with pytest.raises(InvalidParameter, match="name of a broker"):
        bench.decide(ABORT, brokers=("x" * 1025,))
    with pytest.raises(InvalidParameter, match="brokers at most"):
        bench.decide(ABORT, brokers=("b",) * 1025)


def test_one_of_another_group_is_not_shown_or_changed() -> None:
    bench = Bench()
    bench.open()
    with pytest.raises(IllegalOperation, match="belongs to group bank"):
        bench.book.known("g", "other")
    with pytest.raises(QueryNotFound):
        bench.book.known("unknown", "bank")
    with pytest.raises(IllegalOperation):
        bench.decide(ABORT, group="other")


def test_pages_leave_out_plans_and_records() -> None:
    bench = Bench()
    for gid in "cab":
        bench.open(gid)
        bench.append("tried", gid=gid)
    bench.decide(COMMIT, gid="b")
    page = bench.book.page("bank", "tcc", "", 0, "a", 10)
    assert [(one.gid, one.plan, one.records) for one in page] == [("b", "", []), ("c", "", [])]
    assert [one.gid for one in bench.book.page("", "", "decided", 0, "", 10)] == ["b"]
    assert bench.book.page("", "saga", "", 0, "", 10) == []
    assert bench.book.page("", "", "", NOW, "", 10) == []
    assert len(bench.book.page("", "", "", NOW + 1, "", 2)) == 2


def test_a_record_that_is_no_change_is_refused() -> None:
    with pytest.raises(BrokenBody):
        read_global_change(b'{"type":"unknown"}')


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "append", "commit", "abort", "claim", "resolve", "end", "park", "wait"]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=30,
)


def _perform(bench: Bench, step: str, gid: str) -> None:
    """Performs a step if the book allows it."""
    try:
        match step:
            case "open":
                bench.open(gid, deadline_ms=NOW + MAX_DEADLINE_MS)
            case "append":
                bench.append("event", gid=gid)
            case "commit" | "abort":
                bench.decide(GlobalDecision(step), gid=gid, deadline_ms=bench.now + 1)
            case "claim":
                bench.claim()
            case "resolve":
                bench.apply(bench.book.resolve(gid, "bank", "retry", "ann", "why", bench.now))
            case "end":
                bench.append("done", gid=gid, state="ended")
            case "park":
                bench.append("failed", gid=gid, state="parked")
            case _:
                bench.now += LEASE_MS
    except (KeyError, Fenced, IllegalOperation, QueryNotFound):
        pass


@given(steps=STEPS, cut=st.integers(0, 40))
def test_the_stored_changes_make_the_same_book_again_also_without_their_oldest_part(
    steps: list[tuple[str, str]], cut: int
) -> None:
    bench = Bench()
    for step, gid in steps:
        _perform(bench, step, gid)
    rewritten = [change for gid in bench.book.transactions for change in bench.book.snapshot(gid)]
    for stored in (bench.stored, [*bench.stored[cut:], *rewritten]):
        again = GlobalBook()
        for change in stored:
            again.apply(change)
        assert again.transactions == bench.book.transactions
        assert again.open_count == bench.book.open_count
        assert again.overdue(NOW * 10, 10) == bench.book.overdue(NOW * 10, 10)
        assert again.next_due() == bench.book.next_due()
        claims = [book.claim("bank", "x", NOW * 10, LEASE_MS) for book in (again, bench.book)]
        assert claims[0] == claims[1]


@given(steps=STEPS)
def test_a_decision_never_changes_unless_an_operator_says_so(steps: list[tuple[str, str]]) -> None:
    bench = Bench()
    decisions: dict[str, GlobalDecision] = {}
    for step, gid in steps:
        _perform(bench, step, gid)
        for known in bench.book.transactions.values():
            if known.decision is not GlobalDecision.NONE:
                assert decisions.setdefault(known.gid, known.decision) is known.decision
