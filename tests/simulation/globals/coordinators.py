"""Clients of the world that are `Coordinator`s: blocks, sagas and recovery as users have them.

Only what is outside of the process is simulated: the journal's way to the broker, the databases, time. A
process that dies does nothing any more, from one moment to the next: whatever it calls never returns.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tests.simulation.globals.clients import (
    GROUP,
    TIMEOUT_S,
    Plan,
    Process,
    ProcessClock,
    SimulatedJournal,
)
from tests.simulation.globals.databases import Database

from turbopump.client.errors import ClientError
from turbopump.client.world import World
from turbopump.protocol.errors import Refused
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind
from turbopump.transactions.distributed.coordinator import Coordinator
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.machine import Phase
from turbopump.transactions.distributed.participants import BranchCall, Saga, Tcc
from turbopump.transactions.distributed.resources import SqliteLastResource
from turbopump.transactions.distributed.resources.values import BranchVote, PreparedBranch
from turbopump.transactions.errors import Aborted, Declined

if TYPE_CHECKING:
    from tests.simulation.globals.world import GlobalsWorld

log = logging.getLogger(__name__)

T = TypeVar("T")


class CoordinatorJournal(SimulatedJournal):
    """The journal of a coordinator; its messages are only counted."""

    async def start(self) -> None:
        """Finds the home of the group: there is one."""

    async def settle(self, gid: str) -> Any:
        return SimpleNamespace(behind=())

    def writer(self, gid: str) -> Any:
        return SimulatedWriter()


class SimulatedWriter:
    """Takes messages; that brokers settle them is the business of other worlds."""

    written = SimpleNamespace(brokers=("broker-a",))

    async def send(self, messages: Sequence[Any], by: Any = None) -> None:
        await asyncio.sleep(0.001)


class SimulatedBranch:
    """The connection of a client to a database, with a branch in it."""

    def __init__(self, client: "CoordinatorClient", xid: Xid) -> None:
        self._client = client
        self._gid, self._name = xid.gid, xid.branch
        self.connection = self

    async def add(self, cents: int) -> None:
        gid, me = self._gid, self._client.process.name

        def work(one: Database) -> None:
            if gid not in one.active:
                raise OSError("the connection was lost")
            one.begin(gid, me, cents)

        await self._client.ask(self._name, work)

    async def prepare(self) -> BranchVote:
        gid, now_ms = self._gid, self._client.world.clock.now_ms()
        wrote = await self._client.ask(self._name, lambda one: one.prepare(gid, now_ms), Phase.PREPARE)
        return BranchVote.YES if wrote else BranchVote.READ_ONLY

    async def commit(self) -> None:
        await self._client.resource(self._name).commit(Xid(self._gid, self._name))

    async def roll_back(self) -> None:
        await self._client.resource(self._name).roll_back(Xid(self._gid, self._name))

    async def commit_one_phase(self) -> None:
        await self._client.resource(self._name).commit_one_phase(Xid(self._gid, self._name))

    async def abandon(self) -> None:
        """Closes the connection: it needs no answer."""
        await self._client.process.passes()
        self._client.world.databases[self._name].abandon(self._gid, self._client.process.name)


class SimulatedResource:
    """A database as a coordinator sees it."""

    def __init__(self, client: "CoordinatorClient", name: str) -> None:
        self._client = client
        self.name = name

    async def begin(self, xid: Xid) -> Any:
        me = self._client.process.name
        await self._client.ask(self.name, lambda one: one.begin(xid.gid, me, 0))
        return SimulatedBranch(self._client, xid)

    async def commit(self, xid: Xid) -> None:
        me = self._client.process.name
        await self._client.ask(self.name, lambda one: one.commit(xid.gid, me), Phase.COMMIT)

    async def roll_back(self, xid: Xid) -> None:
        me = self._client.process.name
        await self._client.ask(self.name, lambda one: one.roll_back(xid.gid, me), Phase.ROLL_BACK)

    async def commit_one_phase(self, xid: Xid) -> None:
        await self._client.ask(self.name, lambda one: one.commit_one_phase(xid.gid))

    async def prepared(self) -> list[PreparedBranch]:
        found = await self._client.ask(self.name, lambda one: dict(one.prepared))
        tells_age = self._client.world.databases[self.name].detaches
        return [
            PreparedBranch(Xid(gid, self.name), branch.since_ms if tells_age else None)
            for gid, branch in found.items()
        ]

    async def close(self) -> None:
        """Has nothing to close."""


class SimulatedLastResource(SqliteLastResource):
    """The database that cannot prepare."""

    def __init__(self, client: "CoordinatorClient", name: str) -> None:
        self._client = client
        self.name = name

    async def begin(self, xid: Xid) -> Any:
        me = self._client.process.name
        await self._client.ask(self.name, lambda one: one.begin(xid.gid, me, 0))
        return SimulatedBranch(self._client, xid)

    async def roll_back(self, xid: Xid) -> None:
        me = self._client.process.name
        await self._client.ask(self.name, lambda one: one.roll_back_as_last(xid.gid, me))

    async def commit_one_phase(self, xid: Xid) -> None:
        await self._client.ask(self.name, lambda one: one.commit_as_last(xid.gid))

    async def close(self) -> None:
        """Has nothing to close."""


class CoordinatorClient:
    """One process of the group, with a coordinator."""

    def __init__(self, world: "GlobalsWorld", name: str) -> None:
        self.world = world
        self.process = Process(name)
        self.clock = ProcessClock(self.process, world.clock)
        self.journal = CoordinatorJournal(world, self.process, self.clock)
        self.at_phase: tuple[Phase, Callable[[], None]] | None = None
        self._resources: dict[str, Any] = {}
        for one in world.databases.values():
            kind = SimulatedLastResource if one.is_last else SimulatedResource
            self._resources[one.name] = kind(self, one.name)
        chance = random.Random(world.chance.getrandbits(64))
        self.bank = Coordinator(
            GROUP,
            journal=self.journal,
            resources=self._resources,
            participants=[self._tcc_of(name) for name in world.databases],
            world=World(clock=self.clock, chance=chance),
        )
        drive = self.bank.drive
        self.bank.drive = lambda machine, *more: drive(world.made(machine), *more)  # type: ignore[method-assign]
        for plan in world.plans.values():
            self.knows(plan)
        self.process.start(self.bank.start())

    def resource(self, name: str) -> Any:
        return self._resources[name]

    # participants

    async def ask(
        self,
        name: str,
        work: Callable[[Database], T],
        phase: Phase | None = None,
        is_message: bool = False,
    ) -> T:
        """Has a database do something, over the network; never returns in a process that has died."""
        database = self.world.databases[name]

        async def at_database() -> T:
            if not database.is_up:
                raise OSError(f"{name} is away")
            return work(database)

        await self.process.passes()
        try:
            return await self.world.network.carry(at_database, lambda: OSError("lost"), None, is_message)
        finally:
            if phase is not None and self.at_phase is not None and self.at_phase[0] is phase:
                fault, self.at_phase = self.at_phase[1], None
                fault()
            await self.process.passes()

    def _tcc_of(self, name: str) -> Tcc[int]:
        tcc = Tcc[int](name)

        async def try_(call: BranchCall, cents: int) -> None:
            self.world.plans[call.gid].cents[call.branch] = cents
            await self.ask(name, lambda one: one.try_(call.gid, call.branch, cents), Phase.TRY, True)

        async def confirm(call: BranchCall, cents: int) -> None:
            await self.ask(name, lambda one: one.confirm(call.gid, call.branch), Phase.CONFIRM, True)

        async def cancel(call: BranchCall, cents: int) -> None:
            await self.ask(name, lambda one: one.cancel(call.gid, call.branch), Phase.CANCEL, True)

        tcc.try_(try_)
        tcc.confirm(confirm)
        tcc.cancel(cancel)
        return tcc

    def knows(self, plan: Plan) -> None:
        """Declares the saga of a plan here, so that this process can go on with it."""
        if plan.kind is GlobalKind.SAGA:
            self.bank.register(self._saga_of(plan))

    def _saga_of(self, plan: Plan) -> Saga[int]:
        assert plan.graph is not None
        saga = Saga[int](_saga_name(plan), timeout=plan.timeout_s or None)
        for step in plan.graph.steps:
            do, undo = self._functions_of(plan, step.name)
            saga.step(
                step.name,
                do=do,
                undo=undo if step.has_undo else None,
                after=step.after,
                retry=step.retry,
                pivot=step.is_pivot,
            )
        return saga

    def _functions_of(self, plan: Plan, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        cents, home = plan.cents[name], plan.homes[name]

        async def do(call: BranchCall, _: int) -> None:
            if name in plan.refuses:
                raise Declined("the business says no")
            if self.world.chance.random() < 0.1:
                raise RuntimeError("a fault")
            await self.ask(home, lambda one: one.do(call.gid, name, cents), Phase.DO, True)

        async def undo(call: BranchCall, _: int) -> None:
            await self.ask(home, lambda one: one.undo(call.gid, name, cents), Phase.UNDO, True)

        return do, undo

    # transactions

    def begin(self, plan: Plan) -> None:
        works = {GlobalKind.XA: self._xa, GlobalKind.TCC: self._tcc, GlobalKind.SAGA: self._saga}
        for client in self.world.clients:
            if isinstance(client, CoordinatorClient):
                client.knows(plan)
        self.process.start(works[plan.kind](plan))

    async def _told(self, plan: Plan, work: Awaitable[Any]) -> None:
        """Notes what the caller gets, unless the process has died."""
        decision, words = GlobalDecision.NONE, "in doubt"
        try:
            await work
            decision, words = GlobalDecision.COMMIT, "committed"
        except Aborted:
            decision, words = GlobalDecision.ABORT, "aborted"
        except (OSError, Refused, ClientError, RuntimeError) as error:
            log.info("%s: %s: %s", self.process.name, plan.gid, error)
        await self.process.passes()
        self.world.told_words(plan, words, decision)

    async def _xa(self, plan: Plan) -> None:
        block = self.bank.xa(*plan.cents, timeout=TIMEOUT_S)
        self._named(plan, block.gid)

        async def work() -> None:
            async with block as t:
                for name, cents in plan.cents.items():
                    await t[name].add(cents)
                if plan.is_open:
                    await t.send(cast(Any, "a message"))

        await self._told(plan, work())

    async def _tcc(self, plan: Plan) -> None:
        block = self.bank.tcc(timeout=TIMEOUT_S)
        self._named(plan, block.gid)
        wanted = [(plan.homes[branch], cents) for branch, cents in plan.cents.items()]
        plan.cents = {}
        fails = self.world.chance.random() < 0.15

        async def work() -> None:
            async with block as t:
                for name, cents in wanted:
                    await t.call(self.bank.callers.tcc(name), cents)
                if fails:
                    raise RuntimeError("the block fails")

        await self._told(plan, work())

    async def _saga(self, plan: Plan) -> None:
        saga = self.bank.callers.saga(_saga_name(plan), 1)
        assert saga is not None
        await self._told(plan, self.bank.run(saga, 1, gid=plan.gid))

    def _named(self, plan: Plan, gid: str) -> None:
        """Gives a plan the gid that the coordinator has made."""
        del self.world.plans[plan.gid]
        plan.gid = gid
        self.world.plans[gid] = plan


def _saga_name(plan: Plan) -> str:
    return f"saga-{plan.gid[-24:]}"
