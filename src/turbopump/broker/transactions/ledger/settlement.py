"""Commits or rolls back half messages of a ledger as their batch was decided, also when no writer asks.

In: the stamped half messages that are open, and the books. Out: messages committed and rolled back, many in
one append. It happens when a writer asks (9705), after each decision and each new run, at a start, and with
every round of checks. A half message whose batch is not decided, or whose book cannot be read now, waits for
as long as it takes.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from turbopump.broker.storage import Storage
from turbopump.broker.transactions.halves import HalfDecision, OpenHalf
from turbopump.broker.transactions.ledger.ledger import verdict
from turbopump.broker.transactions.ledger.stamps import WrittenHalf
from turbopump.broker.transactions.transactions import OpenTransactions
from turbopump.protocol.errors import MessageIllegal, Refused, SystemFailure
from turbopump.protocol.ledger import Book
from turbopump.protocol.record import Record
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

GRACE_S = 0.2  # after a decision: the writer that decided usually asks at once itself
HALVES_PER_TURN = 128  # and in one append: about 4 ms, 7 when they are delayed
TOGETHER = 1024  # in one compiled append
BATCHES_PER_CALL = 8  # to a home
TROUBLE_INTERVAL_S, MAX_TROUBLE_LINES = 60.0, 5

Ended = tuple[Record, OpenHalf, HalfDecision]


class Books(Protocol):
    """Interface to read books of the ledger, kept here or by other brokers."""

    async def book(self, id: str, home: str, batches: Sequence[int]) -> Book | None:
        """Returns the book of an id from its home broker; None: it cannot be read now."""


@dataclass(slots=True)
class SettlementCounts:
    """The numbers of half messages that were committed and rolled back."""

    committed: int = 0
    rolled_back: int = 0

    @property
    def total(self) -> int:
        return self.committed + self.rolled_back


class Settlement:
    """Commits or rolls back open half messages of a ledger whose batch is decided."""

    def __init__(
        self,
        transactions: OpenTransactions,
        store: Storage,
        books: Books,
        interval_s: Callable[[], float],
        clock: Clock,
    ) -> None:
        self._transactions = transactions
        self._stamps = transactions.stamps
        self._store = store
        self._books = books
        self._interval_s = interval_s
        self._clock = clock
        self._asked: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._trouble = RateLimitedLog(log, TROUBLE_INTERVAL_S, logging.ERROR, MAX_TROUBLE_LINES)

    def soon(self, id: str) -> None:
        """Makes `run` settle the id soon, because its book has changed."""
        self._asked[id] = None
        self._wake.set()

    async def run(self) -> None:
        """Settles all ids at each interval, and ids named by `soon` after `GRACE_S`, until cancelled."""
        while True:
            due = self._clock.monotonic() + self._interval_s()
            await self._settle_each(self._stamps.ids())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - self._clock.monotonic())):
                    await self._settle_asked()

    async def _settle_asked(self) -> None:
        while True:
            await self._wake.wait()
            await self._clock.sleep(GRACE_S)
            self._wake.clear()
            asked = list(self._asked)
            self._asked.clear()
            await self._settle_each(asked)

    async def _settle_each(self, ids: list[str]) -> None:
        for id in ids:
            await self._settle_quietly(id)

    async def _settle_quietly(self, id: str) -> None:
        try:
            await self.settle(id)
        except Refused as refused:
            self._log(f"Cannot end half messages of {id}; retrying: {refused.remark}")
        except Exception as error:  # a defect: other ids must not wait behind it
            self._log(f"Cannot end half messages of {id}; retrying", error)

    async def settle(self, id: str, last: int | None = None, limit: int = sys.maxsize) -> SettlementCounts:
        """Ends the decided half messages of an id up to batch `last`, about `limit` at most; returns counts.

        Raises Refused when nothing can be written.
        """
        counts = SettlementCounts()
        batches = self._stamps.batches(id, last)
        for begin in range(0, len(batches), BATCHES_PER_CALL):
            some = batches[begin : begin + BATCHES_PER_CALL]
            written = [one for batch in some for one in self._stamps.of(id, batch)]
            for home in sorted({one.stamp.home for one in written}):
                book = await self._books.book(id, home, some)
                for one in written:
                    decision = verdict(book, one.stamp) if one.stamp.home == home else None
                    if decision is not None and counts.total < limit:
                        await self._end(one, decision, counts, limit)
        return counts

    def count(self, id: str) -> int:
        """Returns the number of open half messages of an id on this broker."""
        return self._stamps.count(id)

    def left(self, id: str, last: int) -> int:
        """Returns the number of open half messages of an id on this broker, of batches up to `last`."""
        batches = self._stamps.batches(id, last)
        return sum(len(one.roots) for batch in batches for one in self._stamps.of(id, batch))

    async def _end(
        self, written: WrittenHalf, decision: HalfDecision, counts: SettlementCounts, limit: int
    ) -> None:
        """Ends half messages of one attempt, in the order in which they were sent, until `limit`.

        In this order also if some were rewritten since.
        """
        left = iter(sorted(written.roots))
        while counts.total < limit and (roots := list(islice(left, TOGETHER))):
            await self._warm(roots)
            halves = self._open(written, roots)
            if decision is HalfDecision.COMMIT and self._transactions.commit_together(halves):
                self._count(written, decision, halves, counts)
            else:
                await self._end_in_turns(written, decision, roots, counts)
            await asyncio.sleep(0)

    async def _end_in_turns(
        self, written: WrittenHalf, decision: HalfDecision, roots: list[int], counts: SettlementCounts
    ) -> None:
        for begin in range(0, len(roots), HALVES_PER_TURN):
            halves = self._open(written, roots[begin : begin + HALVES_PER_TURN])
            done = self._settle(self._read(halves, decision))
            self._count(written, decision, [half for _, half, _ in done], counts)
            await asyncio.sleep(0)

    def _count(
        self,
        written: WrittenHalf,
        decision: HalfDecision,
        ended: Sequence[OpenHalf],
        counts: SettlementCounts,
    ) -> None:
        self._stamps.discard(written, [half.root for half in ended])
        if decision is HalfDecision.COMMIT:
            counts.committed += len(ended)
        else:
            counts.rolled_back += len(ended)

    def _open(self, written: WrittenHalf, roots: list[int]) -> list[OpenHalf]:
        """Returns the open half messages with these roots, in order; discards other roots from the stamps."""
        found = [self._transactions.halves.find(root) for root in roots]
        ended = [root for root, half in zip(roots, found, strict=True) if half is None]
        self._stamps.discard(written, ended)
        return [half for half in found if half is not None]

    def _read(self, halves: list[OpenHalf], decision: HalfDecision) -> list[Ended]:
        found: list[Ended] = []
        for half in halves:
            record = self._store.log.look_up(half.at)
            if record is not None:  # else it is not committed yet, or a round of checks logs it
                found.append((record, half, decision))
        return found

    def _settle(self, ended: list[Ended]) -> list[Ended]:
        """Ends half messages; returns those that ended. One that cannot be stored is logged and left open."""
        try:
            if ended:
                self._transactions.settle_all(ended)
            return ended
        except (MessageIllegal, SystemFailure) as refused:
            if len(ended) == 1:
                self._log(f"Cannot end the half message {ended[0][1].offset}: {refused.remark}")
                return []
        return [done for one in ended for done in self._settle([one])]

    async def _warm(self, roots: list[int]) -> None:
        """Reads the records of half messages into memory in a thread, so that the loop is not blocked."""
        halves, young = (
            filter(None, map(self._transactions.halves.find, roots)),
            self._store.reader.in_memory_from,
        )
        entries = (self._transactions.half_queue.entry(half.offset) for half in halves if half.at < young)
        await self._store.reader.bring(entry[:2] for entry in entries if entry is not None)

    def _log(self, words: str, error: BaseException | None = None) -> None:
        self._trouble.log(self._clock.monotonic(), "%s", words, exc_info=error)
