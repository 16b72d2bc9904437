"""Runs sagas: opens them, drives them, and waits for those that another process drives."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from turbopump.client.errors import InvalidArgument
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalState,
    GlobalTransaction,
)
from turbopump.runtime.clock import Clock
from turbopump.transactions.distributed.branch_callers import BranchCallers, Raised
from turbopump.transactions.distributed.driven import DrivenTransaction
from turbopump.transactions.distributed.driver import CallParticipant
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
    CallBranch,
    GlobalOutcome,
    Machine,
    RecordEvent,
)
from turbopump.transactions.distributed.participants import Saga, checked_seconds, decoded, encoded
from turbopump.transactions.distributed.registrations import SagaOpening
from turbopump.transactions.distributed.saga import SagaMachine
from turbopump.transactions.distributed.transaction_journal import TransactionJournal
from turbopump.transactions.errors import Aborted, InDoubt, Parked

POLL_S = 1.0
"""Between two looks at a saga that another process drives."""


@dataclass(frozen=True, slots=True)
class SagaOutcome:
    """A saga all of whose steps are done."""

    gid: str
    results: Mapping[str, Any]
    """What the steps have returned, by name; None for those that returned nothing."""


class SagaHost(Protocol):
    """What running sagas need of their coordinator."""

    clock: Clock
    callers: BranchCallers

    def journal_of(self, gid: str, known: GlobalTransaction | None = None) -> TransactionJournal: ...

    def drive(
        self, machine: Machine, journal: TransactionJournal, call: CallParticipant
    ) -> DrivenTransaction: ...


class SagaRuns:
    """The sagas that this process drives, by gid."""

    def __init__(self, host: SagaHost) -> None:
        self._host = host
        self._running: dict[str, tuple[DrivenTransaction, SagaMachine]] = {}

    async def run(self, saga: Saga[Any], input: Any, gid: str, timeout_s: float | None) -> SagaOutcome:
        """Runs a saga, or joins the one with this gid, and returns its results. See `Coordinator.run`."""
        if timeout_s is not None:
            checked_seconds("timeout", timeout_s)
        journal = self._host.journal_of(gid)
        opening = SagaOpening(saga.name, saga.version, encoded(input))
        known = await journal.open(gid, GlobalKind.SAGA, opening.text())
        try:
            async with asyncio.timeout(timeout_s):
                if gid not in self._running and self._is_ours(known, journal):
                    self.resume(saga, opening, known, journal)
                while gid not in self._running:
                    if known.state in (GlobalState.ENDED, GlobalState.PARKED):
                        return _told(known)
                    await self._host.clock.sleep(POLL_S)
                    read = await journal.read(gid)
                    if read is None:
                        raise InDoubt(gid)
                    known = read
                return await self._outcome(gid)
        except TimeoutError:
            raise InDoubt(gid) from None

    def resume(
        self, saga: Saga[Any], opening: SagaOpening, known: GlobalTransaction, journal: TransactionJournal
    ) -> DrivenTransaction:
        """Drives a saga from its last record on."""
        if saga.graph is None:
            raise InvalidArgument(f"saga {saga.name} must have steps, got none")
        gid, raised = known.gid, Raised()
        machine = SagaMachine(saga.graph, known=known, timeout_s=self._left_s(saga, known))

        async def call(call: CallBranch) -> BranchAnswered:
            callers = self._host.callers
            return await callers.call_step(gid, saga, opening.input, machine.results, call, raised)

        driven = self._host.drive(machine, journal, call)
        self._running[gid] = driven, machine
        driven.on_ended(lambda: self._running.pop(gid, None))
        return driven

    async def _outcome(self, gid: str) -> SagaOutcome:
        driven, machine = self._running[gid]
        outcome = await driven.outcome()
        if outcome is GlobalOutcome.COMMITTED and driven.finish is None:  # past its pivot, but not done
            await driven.ended()
            outcome = await driven.outcome()
        driven.raise_unless_committed(outcome)
        return SagaOutcome(gid, {name: decoded(text, None) for name, text in machine.results.items()})

    def _is_ours(self, known: GlobalTransaction, journal: TransactionJournal) -> bool:
        is_open = known.state in (GlobalState.OPEN, GlobalState.DECIDED)
        return is_open and known.lease > 0 and known.owner == journal.owner

    def _left_s(self, saga: Saga[Any], known: GlobalTransaction) -> float:
        if saga.timeout is None:
            return 0.0
        passed_s = (self._host.clock.now_ms() - known.opened_ms) / 1000
        return max(0.001, saga.timeout - passed_s)


def _told(known: GlobalTransaction) -> SagaOutcome:
    """Returns the results of a saga that has ended, from its records. Raises Aborted, or Parked."""
    if known.state is GlobalState.PARKED:
        raise Parked(known.gid, "", known.error)
    if known.decision is not GlobalDecision.COMMIT:
        reasons = [one.data for one in known.records if one.event == RecordEvent.REFUSED]
        raise Aborted(reasons[0] if reasons else known.outcome or "it was aborted", known.gid)
    done = {one.branch: one.data for one in known.records if one.event == RecordEvent.DONE}
    return SagaOutcome(known.gid, {name: decoded(text, None) for name, text in done.items()})
