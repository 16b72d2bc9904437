"""The clients (TM) of the world: processes of one group that open transactions, and finish those of others.

They use the real machines, the real driver and the real `BrokerJournal` over a network that delays and loses
requests and answers. A process can be killed, or stopped and continued: then it does what it was about to do,
with leases and views that are out of date.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tests.simulation.globals.coordinator import unreachable
from tests.simulation.globals.databases import Database

from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalTransaction
from turbopump.protocol.headers.base import Header
from turbopump.transactions.distributed import gids
from turbopump.transactions.distributed.driver import Drive
from turbopump.transactions.distributed.journal import BrokerJournal
from turbopump.transactions.distributed.machine import (
    BlockLeft,
    BranchAnswered,
    BranchRegistered,
    BranchVerdict,
    CallBranch,
    Finish,
    GlobalOutcome,
    Machine,
    Phase,
)
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.distributed.saga import SagaGraph, SagaMachine, SagaStep
from turbopump.transactions.distributed.tcc import TccMachine
from turbopump.transactions.distributed.xa import XaMachine
from turbopump.transactions.errors import Declined, InDoubt, Later

if TYPE_CHECKING:
    from tests.simulation.globals.world import GlobalsWorld

log = logging.getLogger(__name__)

GROUP = "bank"
CLAIM_S, SWEEP_S = 5.0, 20.0
SWEEP_AGE_S = 15.0
TIMEOUT_S = 10.0
"""Of XA and TCC, from the beginning to the decision."""
CALL_TIMEOUT_S = 8.0
QUICK = Retry(attempts=None, first=0.5, longest=20.0)
CONFIRM = Retry(attempts=6, first=0.5, longest=20.0)

T = TypeVar("T")


@dataclass(slots=True)
class Plan:
    """A transaction of the world: what each of its branches does to the money."""

    gid: str
    kind: GlobalKind
    cents: dict[str, int]
    """By branch."""
    homes: dict[str, str]
    """The database of each branch."""
    last: str = ""
    is_open: bool = False
    graph: SagaGraph | None = None
    refuses: frozenset[str] = frozenset()
    """Steps that are always refused."""
    timeout_s: float = 0.0
    deadline_s: float = 0.0
    retry: Retry = QUICK


@dataclass
class Process:
    """A process of the operating system: it can be stopped, continued and killed."""

    name: str
    running: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    is_alive: bool = True
    is_over: bool = False
    """The world has ended: what still waits shall end too."""
    failures: list[BaseException] = field(default_factory=list)
    """What no task may raise."""

    def __post_init__(self) -> None:
        self.running.set()

    def start(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    async def passes(self) -> None:
        """Waits while the process is stopped; for ever, when it has died."""
        await self.running.wait()
        if self.is_over:
            raise asyncio.CancelledError
        if not self.is_alive:
            await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """From now on it does nothing that others could see."""
        self.is_alive = False
        self.running.set()


class ProcessClock:
    """The clock of a process: who is stopped wakes up when it continues."""

    def __init__(self, process: Process, clock: Any) -> None:
        self._process = process
        self._clock = clock

    def now_ms(self) -> int:
        now_ms: int = self._clock.now_ms()
        return now_ms

    def monotonic(self) -> float:
        now: float = self._clock.monotonic()
        return now

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._process.passes()


class SimulatedJournal(BrokerJournal):
    """The journal of brokers, whose requests go through the network of the world."""

    def __init__(self, world: "GlobalsWorld", process: Process, clock: ProcessClock) -> None:
        self.group = GROUP
        self.owner = process.name
        self.admin = cast(Any, SimpleNamespace(clock=clock))
        self._world = world
        self._process = process

    async def _ask_once(self, code: RequestCode, header: Header, body: bytes = b"") -> bytes:
        await self._process.passes()
        try:
            return await self._world.network.carry(
                lambda: self._world.tc.ask(code, header, body), unreachable, self._process
            )
        finally:
            await self._process.passes()

    def noted(self, known: GlobalTransaction) -> GlobalTransaction:
        self._world.note_decision(known.gid, known.decision)
        return known

    async def open(self, *arguments: Any, **more: Any) -> GlobalTransaction:
        return self.noted(await super().open(*arguments, **more))

    async def decide(self, *arguments: Any, **more: Any) -> GlobalTransaction:
        return self.noted(await super().decide(*arguments, **more))

    async def read(self, gid: str) -> GlobalTransaction | None:
        known = await super().read(gid)
        return None if known is None else self.noted(known)

    async def claim(self, count: int) -> list[GlobalTransaction]:
        return [self.noted(one) for one in await super().claim(count)]


class Network:
    """Carries requests and answers between the processes of the world: late, or not at all."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.loss = 0.0
        self.doubles = 0.0
        self.cut: set[str] = set()
        """Processes that cannot reach the TC."""
        self.deaf: set[str] = set()
        """Processes that reach the TC, and get no answer."""
        self.under_way: set[asyncio.Task[Any]] = set()

    async def carry(
        self,
        ask: Callable[[], Awaitable[T]],
        lost: Callable[[], Exception],
        process: Process | None = None,
        may_double: bool = False,
    ) -> T:
        """Delivers a request, and its answer. What is under way arrives, also when the sender is dead."""
        if process is not None and process.name in self.cut:
            await asyncio.sleep(1.0)
            raise lost()
        if self._chance.random() < self.loss:
            await asyncio.sleep(self._chance.choice((0.5, 2.0)))
            raise lost()
        delivery = asyncio.ensure_future(self._deliver(ask, self._delay()))
        self._keep(delivery)
        if may_double and self._chance.random() < self.doubles:
            late = self._chance.choice((0.001, 0.05, 1.0, 20.0, 60.0))
            self._keep(asyncio.ensure_future(self._deliver(ask, late)))
        answer = await asyncio.shield(delivery)
        is_deaf = process is not None and process.name in self.deaf
        if is_deaf or self._chance.random() < self.loss:
            await asyncio.sleep(self._chance.choice((0.5, 2.0)))
            raise lost()
        return answer

    def _keep(self, task: "asyncio.Future[Any]") -> None:
        self.under_way.add(cast(Any, task))
        task.add_done_callback(self._arrived)

    def _arrived(self, task: "asyncio.Future[Any]") -> None:
        self.under_way.discard(cast(Any, task))
        if not task.cancelled():
            task.exception()  # it belongs to the sender, who may be dead

    async def _deliver(self, ask: Callable[[], Awaitable[T]], seconds: float) -> T:
        await asyncio.sleep(seconds)
        return await ask()

    def _delay(self) -> float:
        slow = self._chance.random() < 0.05
        return self._chance.uniform(0.5, 15.0) if slow else self._chance.uniform(0.0005, 0.02)


class Client:
    """One process of the group."""

    def __init__(self, world: "GlobalsWorld", name: str) -> None:
        self.world = world
        self.process = Process(name)
        self.clock = ProcessClock(self.process, world.clock)
        self.journal = SimulatedJournal(world, self.process, self.clock)
        self.at_phase: tuple[Phase, Callable[[], None]] | None = None
        """A fault that happens when the next call of this phase is done, before its answer is seen."""
        self.process.start(self._recover())

    # transactions of its own

    def begin(self, plan: Plan) -> None:
        works = {GlobalKind.XA: self._xa, GlobalKind.TCC: self._tcc, GlobalKind.SAGA: self._saga}
        self.process.start(self._caught(works[plan.kind](plan)))

    async def _caught(self, work: Awaitable[None]) -> None:
        try:
            await work
        except (OSError, Refused, InDoubt) as error:
            log.info("%s: %s", self.process.name, error)

    async def _xa(self, plan: Plan) -> None:
        now_ms = self.clock.now_ms()
        deadline_ms = now_ms + int(1000 * TIMEOUT_S)
        known = None
        if plan.is_open:
            known = await self.journal.open(plan.gid, GlobalKind.XA, "", 0 if plan.last else deadline_ms)
        reason = ""
        try:
            for branch, cents in plan.cents.items():
                await self._ask_database(
                    branch, lambda one, c=cents: one.begin(plan.gid, self.process.name, c)
                )
        except OSError as error:
            reason = str(error)
        branches = [branch for branch in plan.cents if branch != plan.last]
        machine = XaMachine(
            branches, last=plan.last, is_open=plan.is_open, timeout_s=TIMEOUT_S, retry=plan.retry
        )
        try:
            finish = await self._drive(
                plan, machine, known, [BlockLeft(not reason, reason)], 0 if known else deadline_ms
            )
        finally:
            if self.process.is_alive:
                self._abandon(plan)
        self.world.tell(plan, finish)

    def _abandon(self, plan: Plan) -> None:
        for branch in plan.cents:
            self.world.databases[branch].abandon(plan.gid, self.process.name)

    async def _tcc(self, plan: Plan) -> None:
        deadline_ms = self.clock.now_ms() + int(1000 * TIMEOUT_S)
        known = await self.journal.open(plan.gid, GlobalKind.TCC, "", deadline_ms)
        machine = TccMachine(timeout_s=TIMEOUT_S, retry=CONFIRM)
        leaves_well = self.world.chance.random() < 0.85
        events = [BranchRegistered(branch) for branch in plan.cents]
        left = BlockLeft(leaves_well, "" if leaves_well else "the block fails")
        self.world.tell(plan, await self._drive(plan, machine, known, [*events, left]))

    async def _saga(self, plan: Plan) -> None:
        assert plan.graph is not None
        deadline_ms = self.clock.now_ms() + int(1000 * plan.deadline_s) if plan.deadline_s else 0
        known = await self.journal.open(plan.gid, GlobalKind.SAGA, "plan", deadline_ms)
        machine = SagaMachine(plan.graph, timeout_s=plan.timeout_s)
        self.world.tell(plan, await self._drive(plan, machine, known, []))

    async def _drive(
        self,
        plan: Plan,
        machine: Machine,
        known: GlobalTransaction | None,
        events: list[Any],
        deadline_ms: int = 0,
    ) -> Finish:
        drive = Drive(
            plan.gid,
            self.world.made(machine),
            self.world.journal_for(self.journal),
            lambda call: self._call(plan, call),
            self.clock,
            known=known,
            deadline_ms=deadline_ms,
            call_timeout_s=CALL_TIMEOUT_S,
        )
        for event in events:
            drive.post(event)
        finish = await drive.run()
        self.world.note_decision(plan.gid, drive.decision)
        return finish

    # participants

    async def _call(self, plan: Plan, call: CallBranch) -> BranchAnswered:
        await self.process.passes()
        try:
            work = self._work(plan, call)
            is_message = plan.kind is not GlobalKind.XA
            data = await self._ask_database(plan.homes[call.branch], work, is_message)
            verdict = BranchVerdict.READ_ONLY if data is False else BranchVerdict.DONE
            return BranchAnswered(call.branch, call.phase, verdict)
        finally:
            self._reached(call.phase)
            await self.process.passes()

    def _reached(self, phase: Phase) -> None:
        if self.at_phase is not None and self.at_phase[0] is phase and self.process.is_alive:
            fault, self.at_phase = self.at_phase[1], None
            fault()

    async def _ask_database(self, name: str, work: Callable[[Database], T], is_message: bool = False) -> T:
        database = self.world.databases[name]

        async def ask() -> T:
            if not database.is_up:
                raise OSError(f"{name} is away")
            return work(database)

        return await self.world.network.carry(ask, lambda: OSError("lost"), None, is_message)

    def _work(self, plan: Plan, call: CallBranch) -> Callable[[Database], Any]:
        gid, branch, me, world = plan.gid, call.branch, self.process.name, self.world
        cents = plan.cents[branch]
        if plan.kind is GlobalKind.XA:
            return self._work_of_xa(plan, call)
        if call.phase is Phase.DO and branch in plan.refuses:
            return _refuse
        if call.phase is Phase.DO and world.chance.random() < 0.1:
            return _fail
        works: dict[Phase, Callable[[Database], Any]] = {
            Phase.TRY: lambda one: one.try_(gid, branch, cents),
            Phase.CONFIRM: lambda one: one.confirm(gid, branch),
            Phase.CANCEL: lambda one: one.cancel(gid, branch),
            Phase.DO: lambda one: one.do(gid, branch, cents),
            Phase.UNDO: lambda one: one.undo(gid, branch, cents),
        }
        log.debug("%s calls %s %s of %s", me, call.phase, branch, gid)
        return works[call.phase]

    def _work_of_xa(self, plan: Plan, call: CallBranch) -> Callable[[Database], Any]:
        gid, me, now_ms = plan.gid, self.process.name, self.world.clock.now_ms()
        is_last = call.branch == plan.last
        works: dict[Phase, Callable[[Database], Any]] = {
            Phase.PREPARE: lambda one: one.prepare(gid, now_ms),
            Phase.COMMIT: lambda one: one.commit(gid, me),
            Phase.ROLL_BACK: lambda one: (one.roll_back_as_last if is_last else one.roll_back)(gid, me),
            Phase.COMMIT_ONE_PHASE: lambda one: (one.commit_as_last if is_last else one.commit_one_phase)(
                gid
            ),
        }
        return works[call.phase]

    # recovery

    async def _recover(self) -> None:
        next_sweep = self.clock.monotonic() + self.world.chance.uniform(0, SWEEP_S)
        while True:
            await self.clock.sleep(CLAIM_S)
            try:
                for known in await self.journal.claim(16):
                    self.process.start(self._caught(self._resume(known)))
                if self.clock.monotonic() >= next_sweep:
                    next_sweep = self.clock.monotonic() + SWEEP_S
                    await self._sweep()
            except (OSError, Refused, InDoubt) as error:
                log.info("%s recovers: %s", self.process.name, error)

    async def _resume(self, known: GlobalTransaction) -> None:
        """Top-down: goes on with a transaction that was claimed."""
        plan = self.world.plans[known.gid]
        machine: Machine
        if known.kind is GlobalKind.XA:
            resources = [branch for branch in plan.cents if branch != plan.last]
            machine = XaMachine.resumed(known, resources, last=plan.last, retry=QUICK)
        elif known.kind is GlobalKind.TCC:
            machine = TccMachine.resumed(known, retry=CONFIRM)
        else:
            assert plan.graph is not None
            machine = SagaMachine.resumed(known, plan.graph)
        log.info("%s goes on with %s: %s %s", self.process.name, plan.gid, known.state, known.decision)
        self.world.tell(plan, await self._drive(plan, machine, known, []))

    async def _sweep(self) -> None:
        """Bottom-up: asks for a decision about each branch that databases have prepared."""
        for name, database in self.world.databases.items():
            if not database.is_up:
                continue
            old_ms = self.world.clock.now_ms() - int(1000 * SWEEP_AGE_S)
            for gid in [gid for gid, one in database.prepared.items() if one.since_ms <= old_ms]:
                assert gids.is_of_group(gid, GROUP)
                await self._end_prepared(gid, name)

    async def _end_prepared(self, gid: str, name: str) -> None:
        decision = await self.world.swept(self, gid)
        me = self.process.name
        await self.process.passes()
        try:
            await self._ask_database(
                name,
                lambda one: (
                    one.commit(gid, me) if decision is GlobalDecision.COMMIT else one.roll_back(gid, me)
                ),
            )
        except Later:
            log.info("%s: %s is held by its client", gid, name)

    async def ask_for_abort(self, gid: str) -> GlobalDecision:
        """Asks the last resource, then the TC, to abort what nobody has decided; returns what counts."""
        decision = GlobalDecision.ABORT
        last = self.world.plans[gid].last
        if gids.may_last_resource_decide(gid) and last:
            try:
                me = self.process.name
                await self._ask_database(last, lambda one: one.roll_back_as_last(gid, me))
            except Declined:
                decision = GlobalDecision.COMMIT
            if decision is GlobalDecision.COMMIT and not self.world.plans[gid].is_open:
                return decision
        deadline_ms = self.clock.now_ms() + 60_000
        known = await self.journal.decide(gid, GlobalKind.XA, decision, (), (), deadline_ms)
        return known.decision


def _refuse(_: Database) -> None:
    raise Declined("the business says no")


def _fail(_: Database) -> None:
    raise RuntimeError("a fault")


def told_of(finish: Finish) -> GlobalDecision:
    """Returns the decision that an outcome stands for; none for those that leave it open."""
    outcomes = {
        GlobalOutcome.COMMITTED: GlobalDecision.COMMIT,
        GlobalOutcome.ABORTED: GlobalDecision.ABORT,
    }
    return outcomes.get(finish.outcome, GlobalDecision.NONE)


def graph_of(steps: list[SagaStep]) -> SagaGraph:
    return SagaGraph(tuple(steps))
