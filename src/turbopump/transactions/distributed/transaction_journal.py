"""The journal as the driver of one transaction sees it: settles messages before the end, lets a caller go.

In: what a machine wants kept. Out: the same in the journal of the group. A commit that is asked for after the
caller was interrupted becomes an abort here: the one place that every decision passes.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from turbopump.client.produce.ledger import Ended
from turbopump.protocol.errors import Refused
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalRecord,
    GlobalState,
    GlobalTransaction,
)
from turbopump.runtime.clock import Clock
from turbopump.transactions.distributed.journal import Journal

log = logging.getLogger(__name__)

SETTLE_TRIES, SETTLE_PAUSE_S = 3, 1.0


class Unsettled(ConnectionError):
    """Brokers have not settled the messages of a decided transaction: it is claimed later, and goes on."""


class GlobalMessages(Protocol):
    """What settles the messages of a transaction: the brokers, by `BrokerJournal`."""

    async def settle(self, gid: str) -> Ended: ...


class TransactionJournal:
    """A Journal for one transaction that this process works on."""

    def __init__(
        self,
        journal: Journal,
        gid: str,
        clock: Clock,
        *,
        deadline_ms: int = 0,
        messages: GlobalMessages | None = None,
        known: GlobalTransaction | None = None,
    ) -> None:
        self.gid = gid
        self.deadline_ms = deadline_ms
        """The latest moment of a commit decision; 0: there is no limit."""
        self.brokers: Sequence[str] = known.brokers if known is not None else ()
        """Brokers that have messages of it."""
        self.known = known
        """The transaction as it was opened or claimed; None: nothing of it is in the journal yet."""
        self.is_asked = False
        """Whether a decision was asked for: from then on the caller cannot take it back."""
        self.is_interrupted = False
        """Whether the caller has gone: then a commit that is not yet asked for becomes an abort."""
        self.decided_by = ""
        self.owner = journal.owner
        self._journal = journal
        self._clock = clock
        self._messages = messages

    async def open(self, gid: str, kind: GlobalKind, plan: str, deadline_ms: int = 0) -> GlobalTransaction:
        self.known = await self._journal.open(gid, kind, plan, deadline_ms or self.deadline_ms)
        return self.known

    async def append(
        self,
        known: GlobalTransaction,
        records: Sequence[GlobalRecord],
        state: str = "",
        outcome: str = "",
        next_try_ms: int = 0,
        error: str = "",
    ) -> None:
        if state == GlobalState.ENDED and self.brokers and self._messages is not None:
            await self._settle(self._messages)
        await self._journal.append(known, records, state, outcome, next_try_ms, error)

    async def decide(
        self,
        gid: str,
        kind: GlobalKind,
        decision: GlobalDecision,
        branches: Sequence[str] = (),
        brokers: Sequence[str] = (),
        deadline_ms: int = 0,
    ) -> GlobalTransaction:
        if self.is_interrupted and not self.is_asked:
            decision = GlobalDecision.ABORT
        self.is_asked = True
        found = await self._journal.decide(gid, kind, decision, branches, brokers, deadline_ms)
        self.decided_by = found.decided_by
        return found

    async def claim(self, count: int) -> list[GlobalTransaction]:
        return await self._journal.claim(count)

    async def read(self, gid: str) -> GlobalTransaction | None:
        return await self._journal.read(gid)

    async def _settle(self, messages: GlobalMessages) -> None:
        """Has all brokers carry out the decision for the messages. Raises Unsettled while one is away.

        A transaction that is forgotten counts as aborted for its messages: it must not end before.
        """
        behind: tuple[str, ...] = ()
        for attempt in range(SETTLE_TRIES):
            if attempt:
                await self._clock.sleep(SETTLE_PAUSE_S)
            try:
                behind = (await messages.settle(self.gid)).behind
            except (OSError, Refused) as error:
                behind = (str(error),)
            if not behind:
                return
        raise Unsettled(f"messages of transaction {self.gid} are not settled at {', '.join(behind)}")
