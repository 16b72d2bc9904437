"""The books of decisions, without disk and network."""

from typing import cast

import msgspec
import pytest
from tests.unit.store.kit import HandClock

from turbopump.broker.transactions.change_log import ChangeLog
from turbopump.broker.transactions.halves import NEVER_MS, CheckRules, CheckStep, HalfDecision, step
from turbopump.broker.transactions.ledger import ledger as books
from turbopump.broker.transactions.ledger.expiry import BookExpiry
from turbopump.broker.transactions.ledger.ledger import (
    MAX_ENTRY_BYTES,
    MAX_PAST_RUNS,
    MAX_SETTLED,
    LedgerBooks,
    entry_of,
    owed,
    read_change,
    verdict,
)
from turbopump.broker.transactions.ledger.settlement import Settlement
from turbopump.broker.transactions.ledger.stamps import LedgerStamp, StampedHalves, stamp_of
from turbopump.protocol import properties
from turbopump.protocol.errors import (
    BrokenBody,
    Fenced,
    IllegalOperation,
    InvalidParameter,
    QueryNotFound,
    SystemBusy,
)
from turbopump.protocol.ledger import LedgerEntry

HOME = "broker-a"


def opened(*runs: str) -> LedgerBooks:
    ledger = LedgerBooks(HOME)
    for run in runs or ("r1",):
        open_(ledger, run)
    return ledger


def open_(ledger: LedgerBooks, run: str) -> None:
    change = ledger.open("id", run, HOME)
    if change is not None:
        ledger.apply(change)


def decide(
    ledger: LedgerBooks, batch: int, *tokens: str, run: str = "r1", brokers: tuple[str, ...] = ()
) -> LedgerEntry:
    change = ledger.decide("id", batch, run, LedgerEntry(tokens, brokers))
    if change is not None:
        ledger.apply(change)
    entry = entry_of(ledger.books["id"], batch)
    assert entry is not None
    return entry


def judged(ledger: LedgerBooks, batch: int, token: str, run: str = "r1") -> HalfDecision | None:
    return verdict(ledger.books.get("id"), LedgerStamp("id", batch, run, token, HOME))


def test_the_first_decision_about_a_batch_counts() -> None:
    ledger = opened()
    assert decide(ledger, 0, "b", "a", "b").tokens == ("a", "b")
    assert decide(ledger, 0, "c").tokens == ("a", "b")


def test_winners_are_committed_losers_rolled_back_and_the_rest_waits() -> None:
    ledger = opened()
    assert judged(ledger, 0, "a") is None
    decide(ledger, 0, "a")
    assert judged(ledger, 0, "a") is HalfDecision.COMMIT
    assert judged(ledger, 0, "b") is HalfDecision.ROLLBACK
    assert judged(ledger, 1, "c") is None


def test_a_later_decision_ends_earlier_batches() -> None:
    ledger = opened()
    decide(ledger, 5, "a")
    assert judged(ledger, 4, "x") is HalfDecision.ROLLBACK
    assert decide(ledger, 4, "x").tokens == ()


def test_a_new_run_fences_off_those_before_it() -> None:
    ledger = opened("r1", "r2")
    assert judged(ledger, 0, "a", run="r1") is HalfDecision.ROLLBACK
    assert judged(ledger, 0, "a", run="r2") is None
    with pytest.raises(Fenced):
        decide(ledger, 0, "a", run="r1")
    with pytest.raises(Fenced):
        ledger.open("id", "r1", HOME)
    assert ledger.open("id", "r2", HOME) is None


def test_a_fenced_run_is_told_what_was_decided() -> None:
    ledger = opened()
    decide(ledger, 0, "a")
    open_(ledger, "r2")
    assert decide(ledger, 0, "b", run="r1").tokens == ("a",)


def test_what_a_fenced_run_decided_still_counts() -> None:
    ledger = opened()
    decide(ledger, 0, "a")
    open_(ledger, "r2")
    assert judged(ledger, 0, "a", run="r1") is HalfDecision.COMMIT


def test_a_run_that_is_not_known_waits_until_its_batch_is_decided() -> None:
    ledger = opened()
    assert judged(ledger, 0, "a", run="never seen") is None
    decide(ledger, 0, "b")
    assert judged(ledger, 0, "a", run="never seen") is HalfDecision.ROLLBACK


def test_an_id_that_is_not_known_waits() -> None:
    assert judged(LedgerBooks(HOME), 0, "a") is None


def test_a_broker_that_is_not_home_notes_where_home_is() -> None:
    ledger = LedgerBooks("broker-b")
    open_(ledger, "r1")
    assert ledger.open("id", "r2", HOME) is None
    assert ledger.books["id"].home == HOME
    with pytest.raises(IllegalOperation, match="the home of id is broker broker-a"):
        ledger.decide("id", 0, "r1", LedgerEntry(("a",)))
    with pytest.raises(IllegalOperation, match="the home of id is broker broker-a"):
        ledger.open("id", "r2", "broker-b")


def test_winners_are_kept_until_their_batch_is_settled_everywhere() -> None:
    ledger = opened()
    for batch in range(3 * MAX_SETTLED):
        decide(ledger, batch, f"t{batch}", brokers=(HOME, "broker-b"))
    book = ledger.books["id"]
    assert len(book.decided) == 3 * MAX_SETTLED
    assert owed(book) == [HOME, "broker-b"]
    ledger.settled("id", 2 * MAX_SETTLED - 1)
    assert sorted(book.decided) == list(range(MAX_SETTLED, 3 * MAX_SETTLED))
    ledger.settled("id", 10**9)
    assert book.settled == 3 * MAX_SETTLED - 1
    assert owed(book) == []
    assert judged(ledger, 0, "t0") is HalfDecision.ROLLBACK  # nobody: all that had won was committed long ago


def test_a_decision_is_refused_while_too_many_are_not_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "MAX_UNSETTLED", 2)
    ledger = opened()
    decide(ledger, 0, "a", brokers=("broker-b",))
    decide(ledger, 1, "b", brokers=("broker-b",))
    with pytest.raises(IllegalOperation, match="not settled yet at broker-b"):
        decide(ledger, 2, "c")
    ledger.settled("id", 0)
    decide(ledger, 2, "c")


def test_what_is_remembered_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(*(f"r{number}" for number in range(MAX_PAST_RUNS + 10)))
    assert len(ledger.books["id"].past) == MAX_PAST_RUNS
    last = ledger.books["id"].run
    with pytest.raises(InvalidParameter):
        ledger.decide(
            "id", 0, last, LedgerEntry(tuple(f"{n:0255}" for n in range(MAX_ENTRY_BYTES // 255 + 1)))
        )
    monkeypatch.setattr(books, "MAX_BOOKS", 1)
    with pytest.raises(SystemBusy):
        ledger.open("another", "r", HOME)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\x01b", "a\nb"])
def test_names_are_short_printable_text(name: str) -> None:
    with pytest.raises(InvalidParameter):
        LedgerBooks(HOME).open(name, "r", HOME)
    with pytest.raises(InvalidParameter):
        decide(opened(), 0, name)


def test_a_book_comes_back_from_its_changes_and_from_its_snapshot() -> None:
    ledger = opened("r0", "r1")
    decide(ledger, 0, "a", brokers=(HOME,))
    ledger.settled("id", 0)
    decide(ledger, 3, "b", brokers=(HOME, "broker-b"))
    again = LedgerBooks(HOME)
    for change in ledger.snapshot("id"):
        again.apply(read_change(msgspec.json.encode(change)))
    assert again.books == ledger.books
    again.apply(ledger.snapshot("id")[0])  # a crash between: half a snapshot over all that was there
    assert again.books == ledger.books


def test_a_record_that_cannot_be_read_is_broken() -> None:
    for body in (b"", b"[]", b'{"type":"else"}', b'{"type":"opened","id":1}', b"\xff"):
        with pytest.raises(BrokenBody):
            read_change(body)


# stamps


def test_a_stamp_comes_back_from_the_properties() -> None:
    stamp = LedgerStamp("my id", 7, "r", "t", HOME)
    packed = properties.pack({"TAGS": "A"} | stamp.pairs()).encode()
    assert stamp_of(packed) == stamp
    assert stamp_of(b"TAGS\x01A\x02") is None
    assert stamp_of(packed.replace(b"BATCH\x017", b"BATCH\x01x")) is None
    assert stamp_of(packed.replace(b"TXN_RUN", b"TXN_FUN")) is None


def test_open_half_messages_are_found_by_batch_and_forgotten_when_they_end() -> None:
    stamps = StampedHalves()
    for root, (batch, token) in enumerate([(0, "a"), (1, "b"), (1, "b"), (2, "c"), (1, "d")]):
        stamps.add(LedgerStamp("id", batch, "r", token, HOME), [root])
    stamps.add(LedgerStamp("id", 1, "r", "b", HOME), [1])  # seen again
    assert (stamps.ids(), stamps.count("id"), stamps.batches("id", 1)) == (["id"], 5, [0, 1])
    assert [list(one.roots) for one in stamps.of("id", 1)] == [[1, 2], [4]]
    for batch in stamps.batches("id"):
        for written in stamps.of("id", batch):
            for root in list(written.roots):
                stamps.discard(written, [root])
                stamps.discard(written, [root])
    assert (stamps.ids(), stamps.count("id"), stamps.batches("id")) == ([], 0, [])


def test_what_a_ledger_decides_about_never_expires_and_nobody_is_asked() -> None:
    rules = CheckRules(timeout_ms=1, max_checks=1, lifetime_ms=1)
    assert step(99, 0, NEVER_MS, False, 10**15, rules) is CheckStep.WAIT
    assert step(99, 0, NEVER_MS, True, 10**15, rules) is CheckStep.MOVE


# --- expiry ----------------------------------------------------------------------------------------------


def used(at_ms: int) -> LedgerBooks:
    ledger = LedgerBooks(HOME)
    ledger.apply(books.BookOpened("id", "r1", HOME), at_ms)
    ledger.apply(books.BookDecided("id", 4, LedgerEntry(("a",)), 4), at_ms)
    return ledger


def test_a_book_that_was_not_used_is_idle_once_it_is_settled() -> None:
    ledger = used(1000)
    assert ledger.idle(1000) == []
    assert ledger.idle(1001) == ["id"]
    decide(ledger, 5, "b", brokers=("broker-b",))  # owed
    assert ledger.idle(9000) == []
    ledger.apply(books.BookOpened("noted", "", "broker-b"), 0)
    assert ledger.idle(9000) == []


def test_an_expired_book_keeps_its_last_batch_and_goes_on_with_a_new_run() -> None:
    ledger = used(1000)
    ledger.apply(ledger.expire("id", 5000), 5000)
    assert ledger.idle(9000) == []
    assert judged(ledger, 5, "x") is HalfDecision.ROLLBACK
    with pytest.raises(Fenced, match="expired: open a new run"):
        ledger.decide("id", 5, "r1", LedgerEntry(()))
    again = LedgerBooks(HOME)
    for change in ledger.snapshot("id"):  # written once more, since its file goes
        again.apply(read_change(msgspec.json.encode(change)), 7000)
    assert again.books == ledger.books
    assert again.books["id"].used_ms == 1000
    open_(again, "r2")
    assert entry_of(again.books["id"], 4) == books.NO_WINNERS, "batch 4 is not written again"
    assert judged(again, 5, "x", "r2") is None
    assert decide(again, 5, "x", run="r2").tokens == ("x",)


class RefusingLog:
    """A ledger log that applies the first `most` changes and refuses the others."""

    def __init__(self, ledger: LedgerBooks, most: int) -> None:
        self._ledger = ledger
        self._left = most

    def write(self, change: books.Change) -> None:
        if not self._left:
            raise SystemBusy("the disk is full")
        self._left -= 1
        self._ledger.apply(change, 9_000_000)


class NothingOpen:
    """A settlement without open half messages."""

    def count(self, id: str) -> int:
        return 0


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_a_round_of_expiry_counts_the_books_that_were_expired_before_a_refusal(most: int) -> None:
    ledger = LedgerBooks(HOME)
    for id in ("a", "b", "c"):
        ledger.apply(books.BookOpened(id, "r1", HOME), 1000)
    written = cast(ChangeLog[books.Change], RefusingLog(ledger, most))
    expiry = BookExpiry(ledger, written, cast(Settlement, NothingOpen()), lambda: 1, HandClock(9_000_000))
    assert expiry.round() == most
    assert sum(1 for book in ledger.books.values() if book.expired_ms) == most
    assert len(ledger.idle(9_000_000)) == 3 - most


def test_expired_books_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "MAX_BOOKS", 1)
    ledger = used(1000)
    with pytest.raises(SystemBusy, match="turbopump transactions forget"):
        ledger.open("other", "r", HOME)
    ledger.apply(ledger.expire("id", 5000))
    assert ledger.open("other", "r", HOME) is not None
    monkeypatch.setattr(books, "MAX_IDS", 1)
    with pytest.raises(SystemBusy, match="1 with expired ones"):
        ledger.open("other", "r", HOME)


def test_a_book_is_forgotten_unless_brokers_owe_something() -> None:
    ledger = used(1000)
    ledger.apply(ledger.forget("id"))
    assert ledger.books == {}
    with pytest.raises(QueryNotFound):
        ledger.forget("id")
    ledger = opened()
    decide(ledger, 0, "b", brokers=("broker-b",))
    with pytest.raises(IllegalOperation, match="not settled yet at broker-b"):
        ledger.forget("id")
