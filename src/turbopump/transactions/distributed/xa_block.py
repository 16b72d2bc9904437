"""A block whose work in several databases, and whose messages, commit together or not at all."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.message import Message
from turbopump.client.produce.ledger import KeyOf, Writer
from turbopump.protocol.global_transactions import GlobalKind
from turbopump.runtime.clock import Clock
from turbopump.transactions.distributed.blocks import GlobalBlock, reason_of
from turbopump.transactions.distributed.driven import DrivenTransaction
from turbopump.transactions.distributed.driver import CallParticipant
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchAnswered,
    BranchVerdict,
    CallBranch,
    Machine,
    Phase,
)
from turbopump.transactions.distributed.transaction_journal import TransactionJournal
from turbopump.transactions.errors import Aborted

log = logging.getLogger(__name__)


class BranchResource(Protocol):
    """Interface of a database that takes part, such as an XaResource or a SqliteLastResource."""

    async def begin(self, xid: Xid) -> Any:
        """Opens a connection, and begins a branch on it."""
        ...

    async def commit(self, xid: Xid) -> None:
        """Commits a prepared branch, whoever prepared it; returns when it is committed."""
        ...

    async def roll_back(self, xid: Xid) -> None:
        """Rolls a branch back, prepared or not; returns when it is gone."""
        ...

    async def prepared(self) -> Sequence[Any]:
        """Returns the prepared branches of Turbopump that the database lists."""
        ...

    async def close(self) -> None: ...


class XaHost(Protocol):
    """What a block needs of its coordinator."""

    clock: Clock

    async def ready(self) -> None: ...

    def writer(self, gid: str) -> Writer: ...

    def drive(
        self, machine: Machine, journal: TransactionJournal, call: CallParticipant
    ) -> DrivenTransaction: ...

    def left_behind(self, work: Coroutine[Any, Any, None]) -> None: ...


class XaTransaction(GlobalBlock):
    """One XA transaction: connections by resource, and messages. Made by `coordinator.xa()`.

        async with bank.xa(timeout=10) as t:
            await t["icbc"].execute("UPDATE accounts SET cents = cents - 1000000 WHERE id = 'A'")
            await t["ccb"].execute("UPDATE accounts SET cents = cents + 1000000 WHERE id = 'B'")
            await t.send(Message("Transferred", b"A to B"))

    Leaving the block well commits all of it, an exception rolls all of it back. Raises Aborted when it could
    not be committed, and InDoubt when that is not known yet. Other readers may see one branch committed a
    moment before the other: the commit is atomic, not isolated.
    """

    forbids_nesting: ClassVar[bool] = True

    def __init__(
        self,
        host: XaHost,
        journal: TransactionJournal,
        resources: Mapping[str, BranchResource],
        machine: Callable[[Sequence[str], bool], Machine],
        kind: GlobalKind,
        timeout_s: float,
    ) -> None:
        self.gid = journal.gid
        self._host = host
        self._journal = journal
        self._resources = resources
        self._machine = machine
        self._kind = kind
        self._timeout_s = timeout_s
        self._latest_s = host.clock.monotonic() + timeout_s
        self._branches: dict[str, Any] = {}
        self._writer: Writer | None = None
        self._has_ended = False

    def __getitem__(self, name: str) -> Any:
        """The connection of a resource, of the kind that its `connect` makes; the block commits it."""
        if name not in self._branches:
            known = ", ".join(self._resources)
            if name in self._resources:
                raise NotRunning(f"transaction {self.gid} has not begun, or has ended: use its block")
            raise InvalidArgument(f"a resource of this transaction must be one of {known}, got {name!r}")
        return self._branches[name].connection

    async def send(self, *messages: Message, by: KeyOf | None = None) -> None:
        """Stores messages that consumers see if and only if the transaction commits, also delayed ones.

        `by`: messages of one key go to one queue, in order. A delay counts from the commit on.
        """
        if self._has_ended or not self._branches:
            raise NotRunning(f"transaction {self.gid} has not begun, or has ended: use its block")
        if self._writer is None:
            # Opened first: its deadline ends the transaction, and so its messages, if this process dies.
            await self._journal.open(self.gid, self._kind, "")
            self._writer = self._host.writer(self.gid)
        await self._writer.send(messages, by)

    async def _begin(self) -> None:
        await self._host.ready()
        beginning = {
            name: asyncio.ensure_future(resource.begin(Xid(self.gid, name)))
            for name, resource in self._resources.items()
        }
        try:
            await asyncio.wait(beginning.values())
        except BaseException:  # cancelled: a connection that is opened in a thread comes all the same
            self._host.left_behind(self._abandon_begun(beginning))
            raise
        failures = [error for one in beginning.values() if (error := one.exception()) is not None]
        if failures:
            await self._abandon_begun(beginning)
            raise failures[0]
        self._branches = {name: one.result() for name, one in beginning.items()}

    async def _abandon_begun(self, beginning: Mapping[str, "asyncio.Future[Any]"]) -> None:
        await asyncio.wait(beginning.values())
        self._branches = {name: one.result() for name, one in beginning.items() if one.exception() is None}
        await self._abandon()

    async def _end(self, error: BaseException | None) -> None:
        self._has_ended = True
        journal = self._journal
        if self._kind is GlobalKind.THREE_PHASE and journal.known is None:
            await journal.open(self.gid, self._kind, "")
        is_open = journal.known is not None
        driven = self._host.drive(self._machine(tuple(self._branches), is_open), journal, self._called)
        try:
            self._check_time(error)
            if error is None and self._writer is not None:
                journal.brokers = self._writer.written.brokers
        except Exception as spoiled:  # a `send` failed, and the user went on; or it took too long
            driven.post(BlockLeft(False, reason_of(spoiled)))
            await self._wait(driven)
            raise
        driven.post(BlockLeft(error is None, "" if error is None else reason_of(error)))
        outcome = await self._wait(driven)
        if error is None:
            driven.raise_unless_committed(outcome)

    def _check_time(self, error: BaseException | None) -> None:
        """Raises Aborted when the block has taken too long: nobody need vote then."""
        if error is None and self._host.clock.monotonic() > self._latest_s:
            raise Aborted(f"not decided in {self._timeout_s:g} s, its deadline", self.gid)

    async def _wait(self, driven: DrivenTransaction) -> Any:
        try:
            outcome = await driven.outcome()
        except BaseException:
            # Cancelled, or the driver failed: an abort, or what was decided, goes on in the background.
            self._journal.is_interrupted = True
            self._host.left_behind(self._finish_and_abandon(driven))
            raise
        if driven.finish is not None:
            await self._abandon()
        else:
            self._host.left_behind(self._finish_and_abandon(driven))
        return outcome

    async def _finish_and_abandon(self, driven: DrivenTransaction) -> None:
        try:
            await driven.ended()
        finally:
            await self._abandon()

    async def _abandon(self) -> None:
        """Closes connections that may still hold a branch: they never go back to a pool."""
        branches, self._branches = self._branches, {}
        for name, branch in branches.items():
            try:
                await branch.abandon()
            except Exception:
                log.warning("Cannot close the connection of %s in %s", name, self.gid, exc_info=True)

    async def _called(self, call: CallBranch) -> BranchAnswered:
        branch = self._branches[call.branch]
        verdict = BranchVerdict.DONE
        match call.phase:
            case Phase.PREPARE | Phase.CAN_COMMIT:
                if (await branch.prepare()).name == "READ_ONLY":
                    verdict = BranchVerdict.READ_ONLY
            case Phase.COMMIT | Phase.DO_COMMIT:
                await branch.commit()
            case Phase.ROLL_BACK | Phase.DO_ABORT:
                await branch.roll_back()
            case Phase.COMMIT_ONE_PHASE:
                await branch.commit_one_phase()
            case Phase.PRE_COMMIT:
                pass  # a database has no third state: it stays prepared, and the journal has the PreCommit
            case _:
                raise AssertionError(f"{call.phase} is not a phase of XA")
        return BranchAnswered(call.branch, call.phase, verdict)
