"""Expires books of the ledger that were not used for transactionalIdRetentionHours.

In: the time, and how long a book is kept (`transactionalIdRetentionHours`). Out: a change for each book that
was last used before, and a line in the log. The number of the last decided batch stays, so a job that comes
back later writes no batch twice. A book with open half messages, here or at other brokers, does not expire.
"""

import logging
from collections.abc import Callable

from turbopump.broker.transactions.change_log import ChangeLog
from turbopump.broker.transactions.ledger.ledger import Change, LedgerBooks
from turbopump.broker.transactions.ledger.settlement import Settlement
from turbopump.protocol.errors import Refused
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

ROUND_S = 3600.0
EXPIRED_PER_ROUND = 1024
HOUR_MS = 3_600_000


class BookExpiry:
    """Expires books of the ledger that were not used for the retention time, in a round every hour."""

    def __init__(
        self,
        ledger: LedgerBooks,
        written: ChangeLog[Change],
        settlement: Settlement,
        retention_hours: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._written = written
        self._settlement = settlement
        self._retention_hours = retention_hours
        self._clock = clock

    async def run(self) -> None:
        """Runs `round` every hour (`ROUND_S`), until cancelled."""
        while True:
            await self._clock.sleep(ROUND_S)
            self.round()

    def round(self) -> int:
        """Expires books not used for the retention time, until the store refuses one. Returns how many."""
        hours, now_ms = self._retention_hours(), self._clock.now_ms()
        if not hours:
            return 0
        idle = self._ledger.idle(now_ms - hours * HOUR_MS)
        found = [id for id in idle if not self._settlement.count(id)][:EXPIRED_PER_ROUND]
        for count, id in enumerate(found):
            try:
                self._written.write(self._ledger.expire(id, now_ms))
            except Refused as refused:
                log.error("Cannot expire books of the ledger; retrying in the next round: %s", refused.remark)
                return count
            highest = self._ledger.books[id].highest
            log.warning(EXPIRED, id, hours, highest, id)
        return len(found)


EXPIRED = (
    "Transactional id %s was not used for %d hours and has expired; batches up to %d stay decided, so a job "
    "that comes back goes on behind them. `turbopump transactions forget %s` removes it"
)
