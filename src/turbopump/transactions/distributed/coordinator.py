"""The transaction manager (TM) of a program: opens global transactions and drives them to their end.

In: blocks and sagas of the user, and what processes of the group have left behind. Out: outcomes. What is
done next is decided by pure machines; what counts is decided by a broker, the coordinator of the group (TC).
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal, Self, Unpack, get_args

from turbopump.client import rules
from turbopump.client.errors import InvalidArgument, NotRunning
from turbopump.client.options import ClientOptions
from turbopump.client.produce.ledger import Writer
from turbopump.client.produce.producer import Producer
from turbopump.client.world import World
from turbopump.protocol.global_transactions import (
    MAX_DEADLINE_MS,
    GlobalDecision,
    GlobalKind,
    GlobalState,
    GlobalTransaction,
)
from turbopump.runtime.tasks import SharedTask, Tasks
from turbopump.transactions.distributed.branch_callers import BranchCallers
from turbopump.transactions.distributed.commands import RemoteParticipants
from turbopump.transactions.distributed.driven import DrivenTransaction
from turbopump.transactions.distributed.driver import CallParticipant
from turbopump.transactions.distributed.figures import CoordinatorFigures, TransactionCounts
from turbopump.transactions.distributed.gids import new_gid
from turbopump.transactions.distributed.journal import BrokerJournal, Journal
from turbopump.transactions.distributed.machine import BranchAnswered, CallBranch, GlobalOutcome, Machine
from turbopump.transactions.distributed.participants import (
    Connect,
    Saga,
    T,
    Tcc,
    checked_participant,
    checked_seconds,
)
from turbopump.transactions.distributed.recovery import PREPARED_AGE_S, GroupRecovery
from turbopump.transactions.distributed.resources import SqliteLastResource, XaResource
from turbopump.transactions.distributed.saga_runs import SagaOutcome, SagaRuns
from turbopump.transactions.distributed.tcc import TccMachine
from turbopump.transactions.distributed.tcc_block import TccTransaction
from turbopump.transactions.distributed.three_phase import ThreePhaseMachine
from turbopump.transactions.distributed.transaction_journal import TransactionJournal
from turbopump.transactions.distributed.xa import XaMachine
from turbopump.transactions.distributed.xa_block import BranchResource, XaTransaction

log = logging.getLogger(__name__)


XA_TIMEOUT_S = 30.0
MAX_XA_TIMEOUT_S = 600.0
"""Locks are held until then."""
TCC_TIMEOUT_S = 30.0
MAX_TIMEOUT_S = MAX_DEADLINE_MS / 1000
"""The book takes no later deadline."""
CLOSE_S = 5.0
"""How long `close` waits for transactions under way; another process goes on with the rest."""
MAX_THREADS = 64
"""For functions and connections that block."""

CommitProtocol = Literal["2pc", "3pc"]


class Coordinator:
    """Opens and finishes global transactions, as a process of a group that shares databases and participants.

        bank = Coordinator("bank", name_servers="127.0.0.1:9876",
                           resources={"icbc": icbc_connect, "ccb": ccb_connect})

        async with bank:
            async with bank.xa(timeout=10) as t:
                await t["icbc"].execute("UPDATE accounts SET cents = cents - 1000000 WHERE id = 'A'")
                await t["ccb"].execute("UPDATE accounts SET cents = cents + 1000000 WHERE id = 'B'")

    `group`: all processes of a group have the same resources and participants, and finish each other's
    transactions. `resources`: functions that open a connection, blocking or async, or an XaResource or
    SqliteLastResource for their options. `participants`: what TCC and SAGA use, so that this process can go
    on with those that others have begun. Every other keyword is a setting of a client; see docs/settings.md.

    `async with` finishes what was left behind, in the background: transactions without an owner are
    claimed at the start and every 5 seconds, and every minute the databases are searched for prepared
    branches. Without it the coordinator connects at its first use, and finishes only its own transactions.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | Sequence[str] | None = None,
        resources: Mapping[str, Connect | BranchResource] | None = None,
        participants: Iterable[Tcc[Any] | Saga[Any]] = (),
        journal: Journal | None = None,
        cluster: str = "",
        world: World | None = None,
        **settings: Unpack[ClientOptions],
    ) -> None:
        rules.check_group(group)
        self.group = group
        self._world = world or World()
        self.clock = self._world.clock
        self._name_servers, self._settings = name_servers, settings
        self.journal: Journal = journal or BrokerJournal(
            group, name_servers, cluster=cluster, world=self._world, **settings
        )
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="turbopump-branch")
        self.resources = _resources(resources or {}, self._threads)
        self.last_resource = _last_resource(self.resources)
        self.callers = BranchCallers(RemoteParticipants(self._started_producer), self._threads)
        for one in participants:
            self.callers.register(one)
        self.counts = TransactionCounts()
        self._driven: dict[str, DrivenTransaction] = {}
        self._tasks = Tasks(log)
        self._background = Tasks(log)
        self.sagas = SagaRuns(self)
        self._recovery = GroupRecovery(self)
        self._producer: Producer | None = None
        self._starting = SharedTask(self._start, repeats_failed=True)
        self._producing = SharedTask(self._start_producer, repeats_failed=True)
        self._closing = SharedTask(self._close)
        self._is_closed = False

    # Start and close

    async def start(self) -> None:
        """Connects, and finishes what others have left behind, in the background until `close`.

        Raises LedgerNotSupported at brokers that keep no global transactions.
        """
        await self.ready()
        self._recovery.start(self._background)

    async def close(self) -> None:
        """Waits up to 5 seconds for transactions under way, then leaves the rest to another process."""
        self._is_closed = True
        await self._closing.wait()

    async def _close(self) -> None:
        await self._starting.wait_ended()
        await self._background.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._tasks.wait()
        except TimeoutError:
            log.warning("%d transactions are left to another process of the group", len(self._driven))
        await self._tasks.close()
        for one in self.resources.values():
            await one.close()
        if self._producer is not None:
            await self._producer.close()
        if isinstance(self.journal, BrokerJournal):
            await self.journal.close()
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Transactions

    def xa(
        self, *resources: str, timeout: float = XA_TIMEOUT_S, protocol: CommitProtocol = "2pc"
    ) -> XaTransaction:
        """Returns a block whose work in several databases commits together or not at all.

        `resources`: those that it needs, all by default; each is a connection of its own. `timeout`: seconds
        from the beginning of the block to the decision, after which only an abort is possible.

        `protocol="3pc"` adds a round, PreCommit. It is for learning, and for networks you trust: in a network
        that is cut in two, participants of three-phase commit can decide differently, which two-phase commit
        never does. Use "2pc" for money.
        """
        chosen = {name: self._resource(name) for name in dict.fromkeys(resources or self.resources)}
        if not chosen:
            raise InvalidArgument("a coordinator must have resources= for xa(), got none")
        if protocol not in get_args(CommitProtocol):
            raise InvalidArgument(f'protocol must be "2pc" or "3pc", got {protocol!r}')
        seconds = _timeout(timeout, MAX_XA_TIMEOUT_S)
        last = self.last_resource if self.last_resource in chosen else ""
        if last and protocol == "3pc":
            raise InvalidArgument(f"{last} cannot prepare: three-phase commit needs resources that can")
        kind = GlobalKind.THREE_PHASE if protocol == "3pc" else GlobalKind.XA
        gid = new_gid(self.group, self._world.chance, last_resource=bool(self.last_resource))

        def machine(branches: Sequence[str], is_open: bool) -> Machine:
            if kind is GlobalKind.THREE_PHASE:
                return ThreePhaseMachine(branches, timeout_s=seconds)
            preparing = [name for name in branches if name != last]
            return XaMachine(preparing, last=last, is_open=is_open, timeout_s=seconds)

        # The commit of the last resource decides: the broker must not abort by itself after that. A client
        # that claims such a transaction asks the last resource first.
        journal = self.journal_of(gid, timeout_s=0.0 if last else seconds)
        return XaTransaction(self, journal, chosen, machine, kind, seconds)

    def tcc(self, *, timeout: float = TCC_TIMEOUT_S) -> TccTransaction:
        """Returns a block whose calls are tried at once, and confirmed or cancelled together at its end.

        `timeout`: seconds from the beginning of the block to the decision; all is cancelled after that.
        """
        seconds = _timeout(timeout, MAX_TIMEOUT_S)
        gid = new_gid(self.group, self._world.chance)
        return TccTransaction(self, self.journal_of(gid, timeout_s=seconds), TccMachine(timeout_s=seconds))

    async def run(
        self,
        saga: Saga[T],
        input: T,
        *,
        gid: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - in seconds, as `send` has it
    ) -> SagaOutcome:
        """Runs a saga to its end, and returns the results of its steps.

        The same `gid` twice is one saga: the second call waits for the first one, in whatever process it
        runs, and gets its outcome. It must be new in the cluster, also among other groups, and is made by
        the coordinator if None. Raises Aborted when the saga was compensated, Parked when an operator is
        needed, and InDoubt after `timeout` seconds: the saga goes on then, and `outcome` says later how it
        ended.
        """
        await self.ready()
        self.callers.register(saga)
        return await self.sagas.run(saga, input, gid or new_gid(self.group, self._world.chance), timeout)

    async def outcome(self, gid: str) -> GlobalOutcome | None:
        """Returns how a transaction has ended, or will: after InDoubt. None: it is not decided, or not known.

        One that is not known a day after its begin was aborted, or its end is forgotten.
        """
        await self.ready()
        known = await self.journal.read(gid)
        if known is None:
            return None
        if known.state is GlobalState.PARKED:
            return GlobalOutcome.PARKED
        return _OUTCOMES.get(known.decision)

    # Recovery

    async def recover(self) -> None:
        """Finishes what others have left behind, until cancelled: the whole work of a recovery process."""
        await self.ready()
        await self._recovery.run()

    async def recover_once(self, *, older_than: float = PREPARED_AGE_S) -> int:
        """Claims and sweeps once, waits for that, and returns how many transactions it has worked on.

        `older_than`: seconds that a branch must have been prepared. It saves work, and decides nothing.
        """
        await self.ready()
        return await self._recovery.once(older_than)

    def figures(self) -> CoordinatorFigures:
        """Returns what it has counted: outcomes, repeated calls, prepared branches."""
        return self.counts.now(len(self._driven))

    # For blocks, sagas and recovery

    async def ready(self) -> None:
        """Connects to the journal, once. Raises NotRunning after `close`."""
        if self._is_closed:
            raise NotRunning("this coordinator is closed: make a new one")
        await self._starting.wait()

    def writer(self, gid: str) -> Writer:
        if not isinstance(self.journal, BrokerJournal):
            raise InvalidArgument("messages need the journal of brokers, which is the default")
        return self.journal.writer(gid)

    def register(self, participant: Tcc[Any] | Saga[Any]) -> None:
        self.callers.register(participant)

    def drive(
        self, machine: Machine, journal: TransactionJournal, call: CallParticipant
    ) -> DrivenTransaction:
        """Begins to drive a transaction in a task of this coordinator."""
        driven = DrivenTransaction(machine, journal, call, self.clock, self.counts)
        self._driven[driven.gid] = driven
        driven.start(self._tasks)
        self._tasks.start(self._note_end(machine, driven), name=f"end of {driven.gid}")
        return driven

    def left_behind(self, work: Coroutine[Any, Any, None]) -> None:
        """Goes on with work whose caller has gone, or need not wait."""
        self._tasks.start(work)

    async def call_tcc(self, gid: str, call: CallBranch, raised: dict[str, Exception]) -> BranchAnswered:
        return await self.callers.call_tcc(gid, call, raised)

    async def _note_end(self, machine: Machine, driven: DrivenTransaction) -> None:
        await driven.ended()
        self._driven.pop(driven.gid, None)
        if driven.finish is not None:
            self.counts.ended[machine.kind, driven.finish.outcome] += 1
        if isinstance(machine, ThreePhaseMachine):
            self.counts.split += len(machine.splits)

    def journal_of(
        self, gid: str, known: GlobalTransaction | None = None, timeout_s: float = 0.0
    ) -> TransactionJournal:
        """Returns the journal for one transaction; `timeout_s`: from now to its decision."""
        return TransactionJournal(
            self.journal,
            gid,
            self.clock,
            deadline_ms=self.clock.now_ms() + int(timeout_s * 1000) if timeout_s else 0,
            messages=self.journal if isinstance(self.journal, BrokerJournal) else None,
            known=known,
        )

    def is_driven(self, gid: str) -> bool:
        return gid in self._driven

    def _resource(self, name: str) -> Any:
        if name not in self.resources:
            known = ", ".join(self.resources) or "none"
            raise InvalidArgument(f"a resource must be one of {known}, got {name!r}")
        return self.resources[name]

    async def _start(self) -> None:
        if isinstance(self.journal, BrokerJournal):
            await self.journal.start()

    async def _started_producer(self) -> Producer:
        await self._producing.wait()
        assert self._producer is not None
        return self._producer

    async def _start_producer(self) -> None:
        producer = Producer(
            f"{self.group}-commands", name_servers=self._name_servers, world=self._world, **self._settings
        )
        await producer.start()
        self._producer = producer


_OUTCOMES = {
    GlobalDecision.COMMIT: GlobalOutcome.COMMITTED,
    GlobalDecision.ABORT: GlobalOutcome.ABORTED,
}


def _resources(given: Mapping[str, Any], threads: ThreadPoolExecutor) -> dict[str, Any]:
    made = {}
    for name, one in given.items():
        checked_participant(name)
        made[name] = one if hasattr(one, "roll_back") else XaResource(name, one, threads=threads)
    return made


def _last_resource(resources: Mapping[str, Any]) -> str:
    """Returns the name of the one resource that cannot prepare; empty: there is none."""
    last = [name for name, one in resources.items() if isinstance(one, SqliteLastResource)]
    if len(last) > 1:
        raise InvalidArgument(
            f"at most one resource may be SQLite, which cannot prepare, got {', '.join(last)}: "
            "use TCC or SAGA for the others"
        )
    return last[0] if last else ""


def _timeout(seconds: float, longest: float) -> float:
    if checked_seconds("timeout", seconds) > longest:
        raise InvalidArgument(f"timeout must be at most {longest:.0f} seconds, got {seconds}")
    return float(seconds)
