"""The world: clients of one group, databases and a coordinator, with faults; and the judge at the end.

XA: a transaction takes effect in all its databases or in none, once, as its decision says
TCC: every branch tried and confirmed once, or each Try cancelled once; no Try after its Cancel
SAGA: all steps once, each after those before it; or all that took effect undone once, in reverse
one decision per gid in every answer ever given, and what callers were told agrees with it
no money is made or lost
when faults have stopped, everything ends within BOUND_S: nothing prepared, frozen, open or parked
"""

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta

from tests.simulation.globals.clients import GROUP, Client, Network, Plan, told_of
from tests.simulation.globals.coordinator import SimulatedCoordinator
from tests.simulation.globals.coordinators import CoordinatorClient
from tests.simulation.globals.databases import Database, Effect, Journalled

from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import Refused
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalState, GlobalTransaction
from turbopump.protocol.headers.global_transactions import GlobalResolveRequest
from turbopump.testing.loop import VirtualClock, VirtualLoop
from turbopump.transactions.distributed import gids
from turbopump.transactions.distributed.journal import Journal
from turbopump.transactions.distributed.machine import Finish, Machine, Phase
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.distributed.saga import SagaGraph, SagaStep

log = logging.getLogger(__name__)

DATABASES = ("icbc", "ccb", "boc")
LAST = "till"
FAULTS_S = 60.0
BOUND_S = 400.0
"""Two leases, the longest pause of a retry, and the longest delay of a message, with slack."""
LOOK_S = 5.0
PHASES = (
    Phase.PREPARE,
    Phase.PREPARE,
    Phase.COMMIT,
    Phase.TRY,
    Phase.CONFIRM,
    Phase.CANCEL,
    Phase.DO,
    Phase.UNDO,
)
DAY_S = timedelta(days=1).total_seconds()


class GlobalsWorld:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.surprises: list[object] = []
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.noted = Journalled()
        self.databases = {
            name: Database(name, self.noted, detaches=self.chance.random() < 0.5, is_last=name == LAST)
            for name in (*DATABASES, LAST)
        }
        self.network = Network(self.chance)
        self.tc = SimulatedCoordinator(self.chance, self.clock)
        self.clients: list[Client | CoordinatorClient] = []
        self._kind = CoordinatorClient if seed % 2 else Client
        self.plans: dict[str, Plan] = {}
        self.decisions: dict[str, GlobalDecision] = {}
        """From all answers."""
        self.told: dict[str, set[GlobalDecision]] = defaultdict(set)
        self.counts: Counter[str] = Counter()
        self._processes = 0
        self._total = self._money()

    # life

    async def live(self) -> None:
        try:
            await self._live()
        finally:
            await self._end_all_tasks()

    async def _live(self) -> None:
        for _ in range(2):
            self.start_client()
        self.network.loss = self.chance.choice((0.0, 0.02, 0.1, 0.3))
        self.network.doubles = self.chance.choice((0.0, 0.1, 0.4))
        works = [self._open_transactions(), self._faults(), self._operate()]
        tasks = [asyncio.create_task(work) for work in works]
        await asyncio.sleep(FAULTS_S)
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        await self._become_quiet()
        await self._wait_for_ends()
        self.judge()
        await self._forget()

    async def _open_transactions(self) -> None:
        for _ in range(self.chance.randint(8, 30)):
            await asyncio.sleep(self.chance.uniform(0, 4.0))
            alive = [one for one in self.clients if one.process.is_alive]
            if alive:
                plan = self._any_plan()
                self.plans[plan.gid] = plan
                self.chance.choice(alive).begin(plan)

    # plans

    def _any_plan(self) -> Plan:
        kind = self.chance.choice((GlobalKind.XA, GlobalKind.TCC, GlobalKind.SAGA))
        last = LAST if kind is GlobalKind.XA and self.chance.random() < 0.2 else ""
        gid = gids.new_gid(GROUP, self.chance, bool(last))
        if kind is GlobalKind.SAGA:
            return self._any_saga(gid)
        names = self.chance.sample(DATABASES, k=self.chance.choice((1, 2, 2, 2, 3)))
        if last:
            names.append(last)
        cents = self._transfer(len(names), self.chance.random() < 0.05)
        if kind is GlobalKind.XA and len(names) > 2 and self.chance.random() < 0.2:
            cents[0], cents[1] = 0, cents[0] + cents[1]  # a branch that only reads
        is_open = kind is GlobalKind.XA and self.chance.random() < 0.3
        if kind is GlobalKind.XA:
            homes = {name: name for name in names}
            return Plan(gid, kind, dict(zip(names, cents, strict=True)), homes, last, is_open)
        branches = [f"b{number}" for number in range(len(names))]
        homes = dict(zip(branches, names, strict=True))
        return Plan(gid, kind, dict(zip(branches, cents, strict=True)), homes)

    def _transfer(self, count: int, too_much: bool) -> list[int]:
        """Returns what each branch takes or gives: together nothing."""
        amount = 10_000_000 if too_much else self.chance.randint(1, 500)
        parts = [self.chance.randint(1, 500) for _ in range(count - 2)]
        return [-amount - sum(parts), *parts, amount][-count:] if count > 1 else [0]

    def _any_saga(self, gid: str) -> Plan:
        count = self.chance.randint(1, 5)
        names = [f"s{number}" for number in range(count)]
        pivot = self.chance.choice(names) if self.chance.random() < 0.4 else ""
        steps: list[SagaStep] = []
        for name in names:
            before = [step.name for step in steps]
            after = tuple(self.chance.sample(before, k=min(len(before), self.chance.choice((0, 1, 1, 2)))))
            graph = SagaGraph((*steps, SagaStep(name, after, has_undo=False))) if steps else None
            is_behind = graph is not None and graph.is_behind_pivot(name)
            retry = Retry(attempts=None if is_behind else 3, first=0.5, longest=20.0)
            undo_retry = Retry(attempts=4, first=0.5, longest=20.0)
            has_undo = name != pivot and not is_behind
            steps.append(SagaStep(name, after, has_undo, name == pivot, retry, undo_retry))
        graph = SagaGraph(tuple(steps))
        cents = self._transfer(count, False)
        refusable = [step.name for step in steps if not graph.is_behind_pivot(step.name)]
        refuses = frozenset(self.chance.sample(refusable, k=1)) if self.chance.random() < 0.4 else frozenset()
        homes = {name: self.chance.choice(DATABASES) for name in names}
        plan = Plan(
            gid, GlobalKind.SAGA, dict(zip(names, cents, strict=True)), homes, graph=graph, refuses=refuses
        )
        plan.timeout_s = self.chance.choice((0.0, 0.0, 10.0))
        if not pivot:
            plan.deadline_s = self.chance.choice((0.0, 3.0, 20.0))
        return plan

    # faults

    def start_client(self) -> None:
        self._processes += 1
        self.clients.append(self._kind(self, f"tm{self._processes}"))

    async def _faults(self) -> None:
        if self.chance.random() < 0.1:
            return  # a calm world
        faults: list[Callable[[], None]] = [
            self._kill_client,
            self._kill_client,
            self._stop_client,
            self._stop_client,
            self._crash_database,
            self._kill_tc,
            self._cut_client,
            self._cut_client,
            self._strike_at_a_phase,
            self._strike_at_a_phase,
            self._strike_at_a_phase,
            self.tc.rewrite,
        ]
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / 2.5))
            self.chance.choice(faults)()
            if self.chance.random() < 0.01:
                self._let_a_day_pass()

    def _strike_at_a_phase(self) -> None:
        """Has a client die, or stop, right after a participant has done a phase."""
        client = self.chance.choice(self.clients)
        fault = self.chance.choice((self._kill, self._stop))
        phase = self.chance.choice(PHASES)
        client.at_phase = phase, lambda: fault(client)

    def _kill_client(self) -> None:
        self._kill(self.chance.choice(self.clients))

    def _kill(self, client: Client | CoordinatorClient) -> None:
        log.info("%s is killed", client.process.name)
        self._bury(client)
        self._later(self.chance.uniform(0.1, 10.0), self.start_client)

    def _bury(self, client: Client | CoordinatorClient) -> None:
        if not client.process.is_alive:
            return
        client.process.kill()
        for database in self.databases.values():
            database.disconnect(client.process.name)

    def _stop_client(self) -> None:
        self._stop(self.chance.choice(self.clients))

    def _stop(self, client: Client | CoordinatorClient) -> None:
        log.info("%s is stopped", client.process.name)
        client.process.running.clear()
        self._later(self.chance.choice((0.5, 8.0, 35.0, 50.0)), client.process.running.set)

    def _crash_database(self) -> None:
        database = self.chance.choice(list(self.databases.values()))
        log.info("%s crashes", database.name)
        database.crash()
        self._later(self.chance.choice((0.1, 3.0, 30.0)), lambda: setattr(database, "is_up", True))

    def _kill_tc(self) -> None:
        self.tc.kill()
        self._later(self.chance.choice((0.1, 3.0, 20.0)), self.tc.start)

    def _cut_client(self) -> None:
        name = self.chance.choice(self.clients).process.name
        cut = self.chance.choice((self.network.cut, self.network.deaf))
        log.info("%s is cut off from the TC%s", name, " one way" if cut is self.network.deaf else "")
        cut.add(name)
        self._later(self.chance.choice((1.0, 12.0, 40.0)), lambda: cut.discard(name))

    def _let_a_day_pass(self) -> None:
        log.info("a day passes")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.jump(DAY_S)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, do)

    # the operator

    async def _operate(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(5.0, 15.0))
            for known in list(self.tc.book.transactions.values()):
                if known.state is GlobalState.PARKED:
                    await self._repair(known)
                elif known.state is GlobalState.OPEN and not self.plans[known.gid].last and self._rarely():
                    await self._resolve(known.gid, "abort")

    def _rarely(self) -> bool:
        return self.chance.random() < 0.05

    async def _repair(self, known: GlobalTransaction) -> None:
        """Does by hand what the pivot of an aborted saga needs, and has the rest tried again."""
        self.counts["parked"] += 1
        plan = self.plans[known.gid]
        pivot = plan.graph.pivot if plan.graph else ""
        if pivot and known.decision is GlobalDecision.ABORT:
            database = self.databases[plan.homes[pivot]]
            if not database.is_up:
                return
            database.undo(known.gid, pivot, plan.cents[pivot])
            await self._resolve(known.gid, "done", pivot)
        else:
            await self._resolve(known.gid, "retry")

    async def _resolve(self, gid: str, action: str, branch: str = "") -> None:
        header = GlobalResolveRequest(
            gid=gid, group=GROUP, action=action, who="ops", because="test", branch=branch
        )
        try:
            await self.tc.ask(RequestCode.GLOBAL_RESOLVE, header, b"")
            self.counts[f"resolved {action}"] += 1
        except (OSError, Refused) as error:
            log.info("the operator fails: %s", error)

    # the end

    async def _become_quiet(self) -> None:
        log.info("faults stop")
        self.network.loss = self.network.doubles = 0.0
        self.network.cut.clear()
        self.network.deaf.clear()
        self.tc.start()
        for database in self.databases.values():
            database.is_up = True
        for client in self.clients:
            client.at_phase = None
            client.process.running.set()
        self.start_client()

    async def _wait_for_ends(self) -> None:
        operator = asyncio.create_task(self._operate_until_the_end())
        loop = asyncio.get_running_loop()
        until = loop.time() + BOUND_S
        while (left := self._left()) and loop.time() < until:
            await asyncio.sleep(LOOK_S)
            for client in self.clients:
                for failure in client.process.failures:
                    raise failure
        operator.cancel()
        assert not left, f"unended after {BOUND_S:.0f} s: {left[:4]}"
        await asyncio.sleep(61.0)  # messages that are still under way
        assert not self._left(), f"something has begun again: {self._left()[:4]}"

    async def _operate_until_the_end(self) -> None:
        while True:
            await asyncio.sleep(10.0)
            for known in list(self.tc.book.transactions.values()):
                if known.state is GlobalState.PARKED:
                    await self._repair(known)

    def _left(self) -> list[str]:
        found = [
            f"{gid} is prepared in {name}" for name, one in self.databases.items() for gid in one.prepared
        ]
        found += [f"{key} is frozen in {name}" for name, one in self.databases.items() for key in one.frozen]
        found += [
            f"{one.gid} is {one.state}: {one.error}"
            for one in self.tc.book.transactions.values()
            if one.state is not GlobalState.ENDED
        ]
        return found

    async def _forget(self) -> None:
        """A day after their end nothing is known of transactions any more."""
        for client in self.clients:
            self._bury(client)
        self._let_a_day_pass()
        await asyncio.sleep(5.0)
        assert not self.tc.book.transactions, "the book does not forget"
        assert not self.surprises, f"an unforeseen exception: {self.surprises[0]!r}"

    async def _end_all_tasks(self) -> None:
        """Cancels what dead processes wait for, in some rounds: blocks that are cancelled go on."""
        for client in self.clients:
            client.process.is_over = True
            client.process.running.set()
        for _ in range(20):
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            if not tasks:
                return
            for task in sorted(tasks, key=lambda one: one.get_name()):
                task.cancel()
            await asyncio.wait(tasks, timeout=100.0)

    # what is observed

    def note_decision(self, gid: str, decision: GlobalDecision) -> None:
        if decision is GlobalDecision.NONE:
            return
        first = self.decisions.setdefault(gid, decision)
        assert first is decision, f"two decisions of {gid}: {first}, then {decision}"

    def tell(self, plan: Plan, finish: Finish) -> None:
        """Notes what a caller was told."""
        self.told_words(plan, finish.outcome, told_of(finish))

    def told_words(self, plan: Plan, words: str, decision: GlobalDecision) -> None:
        self.counts[f"{plan.kind} {words}"] += 1
        if decision is not GlobalDecision.NONE:
            self.told[plan.gid].add(decision)

    # what planted bugs change

    def made(self, machine: Machine) -> Machine:
        return machine

    def journal_for(self, journal: Journal) -> Journal:
        return journal

    async def swept(self, client: Client, gid: str) -> GlobalDecision:
        return await client.ask_for_abort(gid)

    # the judge

    def judge(self) -> None:
        effects: dict[str, list[Effect]] = defaultdict(list)
        for effect in self.noted.effects:
            effects[effect.gid].append(effect)
        judges = {
            GlobalKind.XA: self._judge_xa,
            GlobalKind.TCC: self._judge_tcc,
            GlobalKind.SAGA: self._judge_saga,
        }
        for gid, plan in self.plans.items():
            judges[plan.kind](plan, effects[gid])
        assert self._money() == self._total, f"money: {self._total} became {self._money()}"

    def _money(self) -> int:
        return sum(one.cents for one in self.databases.values())

    def _judge_xa(self, plan: Plan, effects: Sequence[Effect]) -> None:
        found = Counter(one.branch for one in effects)
        wanted = Counter(branch for branch, cents in plan.cents.items() if cents or branch in found)
        is_committed = bool(found)
        assert not found or found == wanted, f"{plan.gid} took effect in {dict(found)} of {list(wanted)}"
        if any(plan.cents.values()):
            self._judge_words(plan, is_committed)

    def _judge_words(self, plan: Plan, is_committed: bool) -> None:
        """Compares what happened with all answers."""
        decision = GlobalDecision.COMMIT if is_committed else GlobalDecision.ABORT
        answers = {self.decisions[plan.gid]} if plan.gid in self.decisions else set()
        wrong = (self.told[plan.gid] | answers) - {decision}
        assert not wrong, (
            f"{plan.gid}: {decision} happened, but callers were told {self.told[plan.gid]}, {answers}"
        )

    def _judge_tcc(self, plan: Plan, effects: Sequence[Effect]) -> None:
        found = Counter((one.branch, one.what) for one in effects)
        twice = [key for key, count in found.items() if count > 1]
        assert not twice, f"{plan.gid}: {twice[0]} took effect twice"
        names = set(plan.cents)
        by_what = {what: {b for b, w in found if w == what} for what in ("try", "confirm", "cancel")}
        if by_what["confirm"]:
            assert by_what["confirm"] == by_what["try"] == names, (
                f"{plan.gid} is confirmed in part: {by_what}"
            )
        assert by_what["confirm"] | by_what["cancel"] == by_what["try"], (
            f"{plan.gid} is left tried: {by_what}"
        )
        assert not by_what["confirm"] & by_what["cancel"], f"{plan.gid}: {by_what}"
        if plan.gid in self.decisions or by_what["confirm"]:
            self._judge_words(plan, bool(by_what["confirm"]))
        order = {(one.branch, one.what): one.number for one in effects}
        for name in by_what["cancel"]:
            assert order[name, "cancel"] > order[name, "try"], (
                f"{plan.gid}: {name} was tried after its Cancel"
            )

    def _judge_saga(self, plan: Plan, effects: Sequence[Effect]) -> None:
        assert plan.graph is not None
        found = Counter((one.branch, one.what) for one in effects)
        twice = [key for key, count in found.items() if count > 1]
        assert not twice, f"{plan.gid}: {twice[0]} took effect twice"
        done = {branch for branch, what in found if what == "do"}
        undone = {branch for branch, what in found if what == "undo"}
        order = {(one.branch, one.what): one.number for one in effects}
        for name in done:
            for before in plan.graph.before(name):
                assert order[before, "do"] < order[name, "do"], (
                    f"{plan.gid}: {name} began before {before} ended"
                )
                if {name, before} <= undone:
                    is_reverse = order[name, "undo"] < order[before, "undo"]
                    assert is_reverse, f"{plan.gid}: {before} was undone before {name}"
        if undone or not done:
            assert done == undone, f"{plan.gid}: {done - undone} are not undone"
            is_committed = False
        else:
            assert len(done) == len(plan.graph.steps), f"{plan.gid}: only {done} are done"
            is_committed = True
        if plan.gid in self.decisions or is_committed:
            self._judge_words(plan, is_committed)
