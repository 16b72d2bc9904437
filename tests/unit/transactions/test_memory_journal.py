"""The journal in memory does what the broker's book does: the same requests to both, in any order."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.book.changes import GlobalClaimed
from turbopump.protocol.errors import Refused
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalRecord, GlobalTransaction
from turbopump.transactions.distributed.journal import LEASE_S
from turbopump.transactions.distributed.memory_journal import MemoryBook, MemoryJournal

LEASE_MS = int(1000 * LEASE_S)
START_MS = 1_000_000
XA = GlobalKind.XA
OWNERS = "tm1", "tm2"


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.ms += int(1000 * seconds)


REQUESTS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1, 5_000, LEASE_MS])),
    st.tuples(
        st.just("open"), st.sampled_from(OWNERS), st.sampled_from(["p", "q"]), st.sampled_from([0, 10_000])
    ),
    st.tuples(
        st.just("append"),
        st.integers(0, 3),
        st.integers(0, 2),
        st.lists(st.sampled_from(["x", "y"]), max_size=2),
        st.sampled_from(["", "", "ended", "parked"]),
        st.sampled_from([0, 40_000]),
    ),
    st.tuples(
        st.just("decide"),
        st.sampled_from(OWNERS),
        st.sampled_from([GlobalDecision.COMMIT, GlobalDecision.ABORT]),
        st.sampled_from([0, 10_000]),
    ),
    st.tuples(st.just("claim"), st.sampled_from(OWNERS)),
    st.tuples(st.just("resolve"), st.sampled_from(["retry", "commit", "abort", "done"])),
)


class Both:
    """The book of the broker and the one in memory, asked alike."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.real = GlobalBook()
        self.book = MemoryBook(self.clock)
        self.journals = {owner: MemoryJournal(self.book, "bank", owner) for owner in OWNERS}

    def ask(self, request: tuple[Any, ...]) -> None:
        kind, *arguments = request
        if kind == "wait":
            self.clock.ms += arguments[0]
        for gid in self.real.overdue(self.clock.ms, 9):
            self.real.apply(self.real.abort_overdue(gid, self.clock.ms), 0)
        self.book.now_ms()
        if kind != "wait":
            assert getattr(self, kind)(*arguments) is None
        self.compare()

    def compare(self) -> None:
        assert self.real.transactions == self.book.transactions

    def same(self, real: Any, memory: Any) -> None:
        """Asks both; either both answer or both refuse in the same way."""
        outcomes = []
        for ask in (real, memory):
            try:
                ask()
                outcomes.append(None)
            except Refused as refused:
                outcomes.append(type(refused))
        assert outcomes[0] is outcomes[1], outcomes

    def apply(self, change: Any) -> None:
        if change is not None:
            self.real.apply(change, self.clock.ms)

    def open(self, owner: str, plan: str, deadline: int) -> None:
        until = self.clock.ms + deadline if deadline else 0
        now = self.clock.ms
        self.same(
            lambda: self.apply(self.real.open("g", "bank", XA, plan, owner, now, LEASE_MS, until)),
            lambda: asyncio.run(self.journals[owner].open("g", XA, plan, until)),
        )

    def append(self, lease: int, length: int, events: list[str], state: str, next_try: int) -> None:
        known = GlobalTransaction("g", "bank", XA, lease=lease, records=[GlobalRecord("x")] * length)
        records = [GlobalRecord(event) for event in events]
        due = self.clock.ms + next_try if next_try else 0
        now = self.clock.ms
        self.same(
            lambda: self.apply(
                self.real.append("g", "bank", lease, length, records, now, LEASE_MS, state, "", due, "why")
            ),
            lambda: asyncio.run(self.journals["tm1"].append(known, records, state, "", due, "why")),
        )

    def decide(self, owner: str, decision: GlobalDecision, deadline: int) -> None:
        until = self.clock.ms + deadline if deadline else 0
        now = self.clock.ms
        self.same(
            lambda: self.apply(
                self.real.decide("g", "bank", XA, decision, owner, now, LEASE_MS, until, ("a",), ("b0",))
            ),
            lambda: asyncio.run(self.journals[owner].decide("g", XA, decision, ("a",), ("b0",), until)),
        )

    def claim(self, owner: str) -> None:
        changes: list[GlobalClaimed] = self.real.claim("bank", owner, self.clock.ms, LEASE_MS)
        for change in changes:
            self.real.apply(change, self.clock.ms)
        assert len(asyncio.run(self.journals[owner].claim(64))) == len(changes)

    def resolve(self, action: str) -> None:
        now = self.clock.ms
        self.same(
            lambda: self.apply(self.real.resolve("g", "bank", action, "ops", "fixed", now, "a")),
            lambda: self.book.resolve("g", "bank", action, "ops: fixed", "a"),
        )


@given(st.lists(REQUESTS, max_size=12))
def test_the_book_in_memory_follows_the_rules_of_the_broker(requests: list[tuple[Any, ...]]) -> None:
    both = Both()
    for request in requests:
        both.ask(request)


def test_who_does_not_own_a_transaction_gets_no_lease() -> None:
    book = MemoryBook(SetClock())
    mine, other = MemoryJournal(book, "bank", "tm1"), MemoryJournal(book, "bank", "tm2")

    async def scenario() -> None:
        assert (await mine.open("g", XA, "")).lease == 1
        assert (await other.open("g", XA, "")).lease == 0
        assert (await other.decide("g", XA, GlobalDecision.ABORT)).lease == 0
        assert (await mine.decide("g", XA, GlobalDecision.COMMIT)).decision is GlobalDecision.ABORT
        found = await mine.read("g")
        assert found is not None
        assert found.decided_by == "tm2"
        assert await mine.read("unknown") is None

    asyncio.run(scenario())
