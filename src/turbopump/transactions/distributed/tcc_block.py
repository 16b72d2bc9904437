"""A block whose calls are tried at once, and confirmed or cancelled together at its end."""

import asyncio
from collections import Counter
from typing import Any, Protocol

from turbopump.client.errors import NotRunning
from turbopump.protocol.global_transactions import GlobalKind
from turbopump.transactions.distributed.blocks import GlobalBlock, reason_of
from turbopump.transactions.distributed.driven import DrivenTransaction
from turbopump.transactions.distributed.driver import CallParticipant
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchAnswered,
    BranchRegistered,
    BranchVerdict,
    CallBranch,
    Machine,
    Phase,
)
from turbopump.transactions.distributed.participants import T, Tcc, decoded, encoded
from turbopump.transactions.distributed.registrations import TccRegistration
from turbopump.transactions.distributed.tcc import TccMachine
from turbopump.transactions.distributed.transaction_journal import TransactionJournal
from turbopump.transactions.errors import Aborted, Declined


class TccHost(Protocol):
    """What a block needs of its coordinator."""

    async def ready(self) -> None: ...

    def register(self, participant: Tcc[Any]) -> None: ...

    async def call_tcc(self, gid: str, call: CallBranch, raised: dict[str, Exception]) -> BranchAnswered: ...

    def drive(
        self, machine: Machine, journal: TransactionJournal, call: CallParticipant
    ) -> DrivenTransaction: ...


class TccTransaction(GlobalBlock):
    """One TCC transaction: `call` tries a participant. Made by `coordinator.tcc()`.

        async with bank.tcc() as t:
            await t.call(debit, order)
            await t.call(credit, order)

    Leaving the block well confirms all of them, an exception cancels all of them, also those whose Try was
    not answered. Raises Aborted when the decision was an abort, and InDoubt when it is not known yet.
    """

    def __init__(self, host: TccHost, journal: TransactionJournal, machine: TccMachine) -> None:
        self.gid = journal.gid
        self._machine = machine
        self._host = host
        self._journal = journal
        self._driven: DrivenTransaction | None = None
        self._opening = asyncio.Lock()
        self._names: Counter[str] = Counter()
        self._tries: dict[str, asyncio.Future[BranchAnswered]] = {}
        self._raised: dict[str, Exception] = {}
        self._is_in_block = False

    async def call(self, participant: Tcc[T], input: T) -> Any:
        """Tries a participant, and returns what its Try returned. Raises Declined, or what the Try raised.

        An exception should leave the block: what was tried is cancelled then. Caught, the block may go on
        only to its end: a transaction with a Try that failed is not confirmed.
        """
        if not self._is_in_block:
            raise NotRunning(f"transaction {self.gid} has not begun, or has ended: use its block")
        self._host.register(participant)
        registration = TccRegistration(participant.name, encoded(input))
        driven = await self._opened()
        self._check_taken()
        self._names[participant.name] += 1
        number = self._names[participant.name]
        branch = participant.name if number == 1 else f"{participant.name}-{number}"
        answer = self._tries[branch] = asyncio.get_running_loop().create_future()
        driven.post(BranchRegistered(branch, registration.text()))
        ending = asyncio.ensure_future(driven.outcome())
        try:
            await asyncio.wait((answer, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
        if not answer.done():
            raise Aborted(self._machine.reason or "it has ended", self.gid)
        return self._result(answer.result())

    async def _begin(self) -> None:
        await self._host.ready()
        self._is_in_block = True

    async def _end(self, error: BaseException | None) -> None:
        self._is_in_block = False
        driven = self._driven
        if driven is None:
            return
        driven.post(BlockLeft(error is None, "" if error is None else reason_of(error)))
        try:
            outcome = await driven.outcome()
        except BaseException:
            self._journal.is_interrupted = True
            raise
        if error is None:
            driven.raise_unless_committed(outcome)

    async def _opened(self) -> DrivenTransaction:
        """Opens the transaction at its first call: a block without any call costs nothing."""
        async with self._opening:
            if self._driven is None:
                await self._journal.open(self.gid, GlobalKind.TCC, "")
                self._driven = self._host.drive(self._machine, self._journal, self._called)
        return self._driven

    def _check_taken(self) -> None:
        """Raises Aborted when a Try has failed, or the time is over: then nothing more is tried."""
        if self._machine.reason:
            raise Aborted(self._machine.reason, self.gid)

    async def _called(self, call: CallBranch) -> BranchAnswered:
        answer = await self._host.call_tcc(self.gid, call, self._raised)
        waiting = self._tries.get(call.branch)
        is_final = call.phase is Phase.TRY and answer.verdict is not BranchVerdict.LATER
        if is_final and waiting is not None and not waiting.done():
            waiting.set_result(answer)
        return answer

    def _result(self, answer: BranchAnswered) -> Any:
        if answer.verdict is BranchVerdict.DONE:
            return decoded(answer.data, None)
        if (raised := self._raised.get(answer.branch)) is not None:
            raise raised
        if answer.verdict is BranchVerdict.REFUSED:
            raise Declined(answer.reason)
        raise Aborted(f"the Try of {answer.branch} is {answer.verdict.value}: {answer.reason}", self.gid)
