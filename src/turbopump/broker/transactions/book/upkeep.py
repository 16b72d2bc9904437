"""Aborts global transactions that were not decided in time, and forgets those that ended long ago.

In: the time, and a notice of each transaction that will be due. Out: changes of the book, and the messages of
what was aborted are rolled back. A book in which nothing will be due costs nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.book.changes import GlobalChange
from turbopump.broker.transactions.change_log import ChangeLog
from turbopump.protocol.errors import Refused
from turbopump.protocol.global_transactions import ledger_id
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

ROUND_S = 1.0  # between two rounds
CHANGES_PER_TURN = 256  # about 10 ms of the event loop
PAUSE_S = 0.05  # between two turns of a round: 5,000 transactions in a second are more than a broker ends
TROUBLE_INTERVAL_S, MAX_TROUBLE_LINES = 60.0, 5


class GlobalUpkeep:
    """Ends transactions in the book of global transactions at their deadlines."""

    def __init__(
        self,
        book: GlobalBook,
        written: ChangeLog[GlobalChange],
        settle: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._book = book
        self._written = written
        self._settle = settle
        self._clock = clock
        self._due_ms: int | None = None
        self._earlier = asyncio.Event()
        self._trouble = RateLimitedLog(log, TROUBLE_INTERVAL_S, logging.ERROR, MAX_TROUBLE_LINES)

    def notice(self, due_ms: int) -> None:
        """Makes `run` look at the book at this time, if it would not do so before."""
        if self._due_ms is None or due_ms < self._due_ms:
            self._earlier.set()

    async def run(self) -> None:
        """Runs a round whenever something is due, until cancelled."""
        while True:
            await self._wait()
            try:
                while self.turn():
                    await self._clock.sleep(PAUSE_S)
            except Refused as refused:
                words = "Cannot end global transactions; retrying in the next round: %s"
                self._trouble.log(self._clock.monotonic(), words, refused.remark)
            await self._clock.sleep(ROUND_S)

    async def _wait(self) -> None:
        """Waits until the first thing in the book is due."""
        while True:
            self._earlier.clear()
            self._due_ms = self._book.next_due()
            left_s = None if self._due_ms is None else (self._due_ms - self._clock.now_ms()) / 1000
            if left_s is not None and left_s <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._earlier.wait()

    def turn(self) -> bool:
        """Aborts some of what is past its deadline, and forgets some of what is kept no longer.

        Returns whether there may be more. Raises Refused.
        """
        now_ms = self._clock.now_ms()
        overdue = self._book.overdue(now_ms, CHANGES_PER_TURN)
        for gid in overdue:
            self._written.write(self._book.abort_overdue(gid, now_ms))
            transaction = self._book.transactions[gid]
            log.warning(
                "Global transaction %s of group %s was not decided in time and is aborted",
                gid,
                transaction.group,
            )
            self._settle(ledger_id(transaction.group, gid))
        forgotten = self._book.forgettable(now_ms, CHANGES_PER_TURN)
        if forgotten:
            self._written.write(*forgotten)
        return CHANGES_PER_TURN in (len(overdue), len(forgotten))
