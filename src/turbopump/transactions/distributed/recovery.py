"""Finishes what processes of the group have left behind: from the book down, and from the databases up.

Top-down: transactions without an owner are claimed at the broker and driven to their end. Bottom-up:
prepared branches that a database lists are ended as the book says, by asking it for an abort and doing what
the answer says. The write decides, never the age of a branch: a slow owner that comes later finds the abort,
and one that was first makes this process commit.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

from turbopump.client.produce.ledger import LedgerNotSupported
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalState,
    GlobalTransaction,
)
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks, call_concurrently
from turbopump.transactions.distributed.branch_callers import BranchCallers, Raised
from turbopump.transactions.distributed.driven import DrivenTransaction
from turbopump.transactions.distributed.driver import CallParticipant, answer_of_error
from turbopump.transactions.distributed.figures import TransactionCounts
from turbopump.transactions.distributed.gids import Xid, is_of_group, may_last_resource_decide
from turbopump.transactions.distributed.journal import BrokerJournal, Journal
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Machine,
    Phase,
    RecordEvent,
)
from turbopump.transactions.distributed.registrations import SagaOpening, TccRegistration
from turbopump.transactions.distributed.saga_runs import SagaRuns
from turbopump.transactions.distributed.tcc import TccMachine
from turbopump.transactions.distributed.three_phase import ThreePhaseMachine
from turbopump.transactions.distributed.transaction_journal import TransactionJournal
from turbopump.transactions.distributed.xa import XaMachine
from turbopump.transactions.errors import Declined, InDoubt

log = logging.getLogger(__name__)

CLAIM_INTERVAL_S = 5.0
SWEEP_INTERVAL_S = 60.0
CLEAN_INTERVAL_S = 3600.0
CLAIMED_AT_ONCE = 64
MAX_RECOVERING = 256
"""Transactions of others that one process works on at once."""
MAX_SWEPT_AT_ONCE = 32
PREPARED_AGE_S = 30.0
"""A branch that has been prepared for less belongs to a transaction that is about to be decided."""
THREE_PHASE_TIMEOUT_S = 10.0
"""For the votes and the PreCommits of a transaction by 3PC that goes on."""
NO_WORKER_PAUSE_S = 30.0
"""Before a transaction that this process cannot go on with is claimed again, by one that perhaps can."""


class RecoveryHost(Protocol):
    """What recovery needs of its coordinator."""

    group: str
    clock: Clock
    journal: Journal
    resources: dict[str, Any]
    last_resource: str
    callers: BranchCallers
    counts: TransactionCounts
    sagas: SagaRuns

    def journal_of(self, gid: str, known: GlobalTransaction | None = None) -> TransactionJournal: ...

    def drive(
        self, machine: Machine, journal: TransactionJournal, call: CallParticipant
    ) -> DrivenTransaction: ...

    def is_driven(self, gid: str) -> bool: ...


@dataclass
class GroupRecovery:
    """Claims and sweeps, for one coordinator."""

    host: RecoveryHost
    claim_interval_s: float = CLAIM_INTERVAL_S
    sweep_interval_s: float = SWEEP_INTERVAL_S
    prepared_age_s: float = PREPARED_AGE_S
    _driven: dict[str, DrivenTransaction] = field(default_factory=dict)
    _seen: dict[tuple[str, Xid], float] = field(default_factory=dict)
    """When a prepared branch was first seen, for databases that do not say how old it is."""

    def __post_init__(self) -> None:
        self._trouble = RateLimitedLog(log, 60.0, logging.WARNING, 10)

    async def run(self) -> None:
        """Claims every 5 s, sweeps every minute and cleans every hour, beginning now, until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._repeat(self.claim, self.claim_interval_s))
            both.create_task(self._repeat(self.forget, CLEAN_INTERVAL_S))
            both.create_task(self._repeat(lambda: self.sweep(self.prepared_age_s), self.sweep_interval_s))

    def start(self, tasks: Tasks) -> None:
        """Runs in a task of `tasks`; does nothing when it runs already."""
        if not len(tasks):
            tasks.start(self.run(), name=f"recovery of {self.host.group}")

    async def once(self, older_than_s: float = PREPARED_AGE_S) -> int:
        """Claims and sweeps once, waits until what it found has ended or is paused; returns how many."""
        count = 0
        while claimed := await self.claim():
            count += claimed
            await asyncio.gather(*(one.outcome() for one in self._driven.values()), return_exceptions=True)
        return count + await self.sweep(older_than_s)

    async def _repeat(self, work: Any, pause_s: float) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # whatever it is, the next round may find less of it
                if not isinstance(error, OSError | Refused | InDoubt | LedgerNotSupported):
                    log.exception("Recovery of group %s failed; retrying", self.host.group)
                self._trouble.log(
                    self.host.clock.monotonic(),
                    "Cannot look for transactions of group %s that were left behind; retrying: %s",
                    self.host.group,
                    error,
                )
            await self.host.clock.sleep(pause_s)

    async def forget(self) -> int:
        """Deletes rows of fences that no call can need any more, but those of transactions that go on."""
        journal = self.host.journal
        if not isinstance(journal, BrokerJournal):
            return 0
        still_open = [one.gid async for one in journal.page() if one.state is not GlobalState.ENDED]
        return await self.host.callers.forget(still_open)

    # top-down

    async def claim(self) -> int:
        """Takes over transactions without an owner, drives them in the background, returns how many."""
        count = 0
        while (free := MAX_RECOVERING - len(self._driven)) > 0:
            claimed = await self.host.journal.claim(min(free, CLAIMED_AT_ONCE))
            count += len(claimed)
            for known in claimed:
                await self._resume(known)
            if not claimed:
                break
        return count

    async def _resume(self, known: GlobalTransaction) -> None:
        try:
            driven = self._driven_of(known)
        except (_NoWorker, BrokenBody) as error:
            self.host.counts.no_worker += 1
            try:
                await self._leave(known, str(error))
            except (OSError, Refused) as failure:
                log.warning("Transaction %s cannot be left to another process: %s", known.gid, failure)
            return
        log.info("Going on with transaction %s of group %s (%s)", known.gid, known.group, known.kind)
        self._driven[known.gid] = driven
        driven.on_ended(lambda: self._driven.pop(known.gid, None))

    async def _leave(self, known: GlobalTransaction, reason: str) -> None:
        """Leaves a transaction to a process that can go on with it, and has the reason shown."""
        log.warning("Transaction %s is left to another process of the group: %s", known.gid, reason)
        next_try_ms = self.host.clock.now_ms() + int(NO_WORKER_PAUSE_S * 1000)
        await self.host.journal.append(known, [], next_try_ms=next_try_ms, error=f"no worker: {reason}"[:500])

    def _driven_of(self, known: GlobalTransaction) -> DrivenTransaction:
        """Begins to drive a claimed transaction. Raises _NoWorker when this process cannot."""
        match known.kind:
            case GlobalKind.XA | GlobalKind.THREE_PHASE:
                return self._drive_xa(known)
            case GlobalKind.TCC:
                return self._drive_tcc(known)
            case GlobalKind.SAGA:
                return self._drive_saga(known)

    def _drive_xa(self, known: GlobalTransaction) -> DrivenTransaction:
        if unknown := set(known.branches) - set(self.host.resources):
            raise _NoWorker(f"resource {', '.join(sorted(unknown))} is not known here")
        preparing = [name for name in self.host.resources if name != self.host.last_resource]
        machine: Machine
        if known.kind is GlobalKind.THREE_PHASE:
            machine = ThreePhaseMachine.resumed(known, preparing, timeout_s=THREE_PHASE_TIMEOUT_S)
        else:
            last = self.host.last_resource if may_last_resource_decide(known.gid) else ""
            machine = XaMachine.resumed(known, preparing, last=last)
        return self.host.drive(
            machine, self.host.journal_of(known.gid, known), lambda call: self._call_resource(known.gid, call)
        )

    async def _call_resource(self, gid: str, call: CallBranch) -> BranchAnswered:
        resource, xid = self.host.resources[call.branch], Xid(gid, call.branch)
        match call.phase:
            case Phase.COMMIT | Phase.DO_COMMIT:
                await resource.commit(xid)
            case Phase.ROLL_BACK | Phase.DO_ABORT:
                await resource.roll_back(xid)
            case Phase.CAN_COMMIT:
                if xid not in [one.xid for one in await resource.prepared()]:
                    raise Declined(f"{call.branch} has no prepared branch of {gid}")
            case Phase.PRE_COMMIT:
                pass
            case _:
                raise AssertionError(f"{call.phase} cannot come in recovery")
        return BranchAnswered(call.branch, call.phase, BranchVerdict.DONE)

    def _drive_tcc(self, known: GlobalTransaction) -> DrivenTransaction:
        for one in known.records:
            if one.event == RecordEvent.REGISTERED:
                name = TccRegistration.read(one.data).participant
                if self.host.callers.tcc(name) is None:
                    raise _NoWorker(f"participant {name} is not known here: give participants=")
        raised: Raised = {}

        async def call(call: CallBranch) -> BranchAnswered:
            return await self.host.callers.call_tcc(known.gid, call, raised)

        return self.host.drive(TccMachine.resumed(known), self.host.journal_of(known.gid, known), call)

    def _drive_saga(self, known: GlobalTransaction) -> DrivenTransaction:
        opening = SagaOpening.read(known.plan)
        saga = self.host.callers.saga(opening.saga, opening.version)
        if saga is None:
            raise _NoWorker(
                f"saga {opening.saga} in version {opening.version} is not known here: give participants="
            )
        return self.host.sagas.resume(saga, opening, known, self.host.journal_of(known.gid, known))

    # bottom-up

    async def sweep(self, older_than_s: float = PREPARED_AGE_S) -> int:
        """Ends prepared branches of the group as the book says; returns of how many transactions."""
        found: dict[str, list[Xid]] = {}
        for name in self.host.resources:
            if name != self.host.last_resource:
                for xid in await self._prepared(name, older_than_s):
                    found.setdefault(xid.gid, []).append(xid)
        ended = await call_concurrently(lambda item: self._end(*item), found.items(), MAX_SWEPT_AT_ONCE)
        return sum(ended)

    async def _prepared(self, name: str, older_than_s: float) -> list[Xid]:
        """Returns the branches that a resource lists, of this group and old enough."""
        counts, clock = self.host.counts, self.host.clock
        try:
            listed = await self.host.resources[name].prepared()
        except Exception as error:
            counts.unreachable[name] += 1
            self._trouble.log(clock.monotonic(), "Cannot list prepared branches of %s: %s", name, error)
            return []
        counts.unreachable[name] = 0
        ours = [one for one in listed if is_of_group(one.xid.gid, self.host.group) and one.xid.branch == name]
        now_s = clock.monotonic()
        seen = {(name, one.xid): self._seen.get((name, one.xid), now_s) for one in ours}
        self._seen = {key: at for key, at in self._seen.items() if key[0] != name} | seen
        ages = {one.xid: self._age_s(one, seen[name, one.xid], now_s) for one in ours}
        counts.prepared[name] = len(ours)
        counts.oldest_prepared_s[name] = max(ages.values(), default=0.0)
        return [
            xid for xid, age_s in ages.items() if age_s >= older_than_s and not self.host.is_driven(xid.gid)
        ]

    def _age_s(self, one: Any, seen_s: float, now_s: float) -> float:
        if one.since_ms is None:
            return now_s - seen_s
        since_ms: int = one.since_ms
        return max(0.0, (self.host.clock.now_ms() - since_ms) / 1000)

    async def _end(self, gid: str, xids: list[Xid]) -> bool:
        """Ends branches of one transaction; False: it is not known yet what must be done."""
        try:
            decision = await self._decision(gid)
        except (OSError, Refused, InDoubt) as error:
            log.warning("Prepared branches of %s must wait: %s", gid, error)
            return False
        log.warning(
            "Transaction %s has prepared branches in %s: %s", gid, ", ".join(x.branch for x in xids), decision
        )
        phase = Phase.COMMIT if decision is GlobalDecision.COMMIT else Phase.ROLL_BACK
        for xid in xids:
            call = CallBranch(xid.branch, phase)
            try:
                await self._call_resource(gid, call)
            except Exception as error:
                answer = answer_of_error(call, error)
                self.host.counts.failed(answer.branch, answer)
                log.warning("Branch %s of %s is not ended yet: %s", xid.branch, gid, answer.reason)
        return True

    async def _decision(self, gid: str) -> GlobalDecision:
        """Asks for an abort, and returns what counts."""
        if may_last_resource_decide(gid) and self.host.last_resource:
            last = self.host.resources[self.host.last_resource]
            try:
                await last.roll_back(Xid(gid, self.host.last_resource))
            except Declined:
                return GlobalDecision.COMMIT
        known = await self.host.journal.decide(gid, await self._kind(gid), GlobalDecision.ABORT)
        return known.decision

    async def _kind(self, gid: str) -> GlobalKind:
        """Returns the kind by which the book knows a transaction; XA for one that it does not know."""
        known = await self.host.journal.read(gid)
        return GlobalKind.XA if known is None else known.kind


class _NoWorker(Exception):
    """Raised for a transaction that this process does not know how to continue."""
