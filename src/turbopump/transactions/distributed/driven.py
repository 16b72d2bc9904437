"""One global transaction that this process drives, and what its caller waits for.

In: a machine, what calls its participants, events of the caller. Out: the outcome as soon as the caller may
know it: when all is done, or when it is decided and a participant fails to carry that out. The rest goes on
in the background, with pauses, until it is done or this process ends; then another process of the group
claims it.
"""

import asyncio
from collections.abc import Callable

from turbopump.protocol.global_transactions import GlobalDecision
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks
from turbopump.transactions.distributed.driver import CallParticipant, Drive, answer_of_error
from turbopump.transactions.distributed.figures import TransactionCounts
from turbopump.transactions.distributed.machine import (
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Finish,
    GlobalOutcome,
    Machine,
    MachineEvent,
    Phase,
)
from turbopump.transactions.distributed.transaction_journal import TransactionJournal
from turbopump.transactions.errors import Aborted, InDoubt, Parked

PATIENCE_S = 5.0
"""How long the caller of a decided transaction waits until the participants have carried it out."""
SECOND_PHASES = frozenset(
    {Phase.COMMIT, Phase.ROLL_BACK, Phase.CONFIRM, Phase.CANCEL, Phase.UNDO, Phase.DO_COMMIT, Phase.DO_ABORT}
)


class DrivenTransaction:
    """A machine at work in a task of its own."""

    def __init__(
        self,
        machine: Machine,
        journal: TransactionJournal,
        call: CallParticipant,
        clock: Clock,
        counts: TransactionCounts,
    ) -> None:
        self.gid = journal.gid
        self.finish: Finish | None = None
        self._drive = Drive(
            journal.gid,
            machine,
            journal,
            self._called,
            clock,
            known=journal.known,
            deadline_ms=journal.deadline_ms,
            brokers=lambda: journal.brokers,
        )
        self._journal = journal
        self._participant = call
        self._clock = clock
        self._counts = counts
        self._enough = asyncio.Event()
        self._reason = ""
        """What the first participant said that did not do what it was asked."""
        self._task: asyncio.Task[None] | None = None

    def start(self, tasks: Tasks) -> None:
        """Begins to drive, in a task that `tasks` owns."""
        self._task = tasks.start(self._run(), name=f"transaction {self.gid}")

    def post(self, event: MachineEvent) -> None:
        """Gives the machine an event of the caller."""
        self._drive.post(event)

    def on_ended(self, call: Callable[[], object]) -> None:
        """Calls this when the machine has nothing more to do here."""
        assert self._task is not None
        self._task.add_done_callback(lambda _: call())

    async def outcome(self) -> GlobalOutcome:
        """Waits until the caller may know the outcome, and returns it."""
        late = asyncio.ensure_future(self._decided_long_ago())
        enough = asyncio.ensure_future(self._enough.wait())
        try:
            await asyncio.wait((late, enough), return_when=asyncio.FIRST_COMPLETED)
        finally:
            late.cancel()
            enough.cancel()
        return self.finish.outcome if self.finish is not None else _OUTCOMES[self._drive.decision]

    async def ended(self) -> None:
        """Waits until the machine has nothing more to do here."""
        assert self._task is not None
        await asyncio.wait((self._task,))

    def raise_unless_committed(self, outcome: GlobalOutcome) -> None:
        """Raises Aborted, Parked or InDoubt; returns for COMMITTED."""
        reason = (self.finish.error if self.finish is not None else "") or self._reason
        match outcome:
            case GlobalOutcome.ABORTED:
                raise Aborted(reason or f"decided by {self._journal.decided_by}", self.gid)
            case GlobalOutcome.PARKED:
                raise Parked(self.gid, "", reason)
            case GlobalOutcome.IN_DOUBT:
                raise InDoubt(self.gid)

    async def _run(self) -> None:
        try:
            self.finish = await self._drive.run()
        finally:
            self._enough.set()

    async def _called(self, call: CallBranch) -> BranchAnswered:
        try:
            answer = await self._participant(call)
        except Exception as error:
            answer = answer_of_error(call, error)
        if answer.verdict not in (BranchVerdict.DONE, BranchVerdict.READ_ONLY):
            self._counts.failed(call.branch, answer)
            self._reason = self._reason or answer.reason
            if call.phase in SECOND_PHASES and self._drive.decision is not GlobalDecision.NONE:
                self._enough.set()
        return answer

    async def _decided_long_ago(self) -> None:
        await self._drive.decided.wait()
        await self._clock.sleep(PATIENCE_S)


_OUTCOMES = {
    GlobalDecision.NONE: GlobalOutcome.IN_DOUBT,
    GlobalDecision.COMMIT: GlobalOutcome.COMMITTED,
    GlobalDecision.ABORT: GlobalOutcome.ABORTED,
}
