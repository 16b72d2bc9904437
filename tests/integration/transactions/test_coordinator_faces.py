"""The blocking and the async coordinator, with one test for both: an embedded cluster, SQLite, real time."""

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.both_faces import BlockingBank
from tests.unit.transactions.memory_bank import MemoryDatabase, two_banks

from turbopump import aio
from turbopump.client.errors import InsideEventLoop, InvalidArgument
from turbopump.testing import AsyncCluster, Cluster
from turbopump.transactions import (
    Aborted,
    Coordinator,
    Declined,
    GlobalOutcome,
    Retry,
    Saga,
    SqliteLastResource,
    Tcc,
    fence,
)
from turbopump.transactions.aio import Coordinator as AsyncCoordinator

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Transfer:
    id: str
    cents: int


class SqliteBank:
    """Accounts in a file of SQLite, with what is reserved of them."""

    def __init__(self, path: Path, **cents: int) -> None:
        self.path = path
        with contextlib.closing(self.connect()) as connection, connection:
            connection.execute("CREATE TABLE accounts (id TEXT, cents INTEGER, frozen INTEGER)")
            connection.executemany("INSERT INTO accounts VALUES (?, ?, 0)", list(cents.items()))

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=20)

    def rows(self, sql: str = "SELECT id, cents, frozen FROM accounts") -> list[tuple[Any, ...]]:
        with contextlib.closing(self.connect()) as connection:
            return connection.execute(sql).fetchall()


def freezing(name: str, bank: SqliteBank, account: str, sign: int) -> Tcc[Transfer]:
    """A participant that takes from an account (-1), or gives to it (+1)."""
    made = Tcc[Transfer](name, connect=bank.connect)

    @made.try_
    def freeze(connection: sqlite3.Connection, order: Transfer) -> str:
        taken = order.cents if sign < 0 else 0
        done = connection.execute(
            "UPDATE accounts SET cents = cents - ?, frozen = frozen + ? WHERE id = ? AND cents >= ?",
            (taken, order.cents, account, taken),
        )
        if done.rowcount != 1:
            raise Declined("too little money")
        return f"frozen {order.cents}"

    @made.confirm
    def move(connection: sqlite3.Connection, order: Transfer, tried: str) -> None:
        given = order.cents if sign > 0 else 0
        connection.execute(
            "UPDATE accounts SET cents = cents + ?, frozen = frozen - ? WHERE id = ?",
            (given, order.cents, account),
        )

    @made.cancel
    def release(connection: sqlite3.Connection, order: Transfer) -> None:
        taken = order.cents if sign < 0 else 0
        connection.execute(
            "UPDATE accounts SET cents = cents + ?, frozen = frozen - ? WHERE id = ?",
            (taken, order.cents, account),
        )

    return made


def transfer_saga(icbc: SqliteBank, ccb: SqliteBank) -> Saga[Transfer]:
    def add(connection: sqlite3.Connection, account: str, cents: int) -> None:
        done = connection.execute(
            "UPDATE accounts SET cents = cents + ? WHERE id = ? AND cents + ? >= 0", (cents, account, cents)
        )
        if done.rowcount != 1:
            raise Declined(f"{account} cannot take part")

    def take(connection: sqlite3.Connection, order: Transfer) -> int:
        add(connection, "A", -order.cents)
        return order.cents

    def give_back(connection: sqlite3.Connection, order: Transfer, taken: int) -> None:
        add(connection, "A", taken)

    def give(connection: sqlite3.Connection, order: Transfer) -> None:
        add(connection, "B" if order.id != "no such account" else "?", order.cents)

    def take_back(connection: sqlite3.Connection, order: Transfer) -> None:
        add(connection, "B", -order.cents)

    saga = Saga[Transfer]("transfer")
    saga.step("debit", do=take, undo=give_back, connect=icbc.connect)
    saga.step("credit", do=give, undo=take_back, connect=ccb.connect, retry=Retry(attempts=3, first=0.1))
    return saga


@pytest.fixture
def icbc(tmp_path: Path) -> SqliteBank:
    return SqliteBank(tmp_path / "icbc.db", A=100)


@pytest.fixture
def ccb(tmp_path: Path) -> SqliteBank:
    return SqliteBank(tmp_path / "ccb.db", B=0)


Scenario = Callable[[AsyncCluster, Any], Awaitable[None]]


@pytest.fixture(params=["async", "blocking"])
def with_bank(request: pytest.FixtureRequest) -> Callable[..., None]:
    face = AsyncCoordinator if request.param == "async" else BlockingBank

    def run(scenario: Scenario, **more: Any) -> None:
        async def main() -> None:
            async with (
                AsyncCluster(1) as cluster,
                face("bank", name_servers=cluster.name_servers, **more) as bank,
            ):
                await scenario(cluster, bank)

        asyncio.run(main())

    return run


async def move(t: Any, cents: int = 10) -> None:
    await t["icbc"].add("A", -cents)
    await t["ccb"].add("B", cents)


def test_a_block_commits_or_rolls_back(with_bank: Callable[..., None]) -> None:
    banks = two_banks()

    async def scenario(cluster: AsyncCluster, bank: Any) -> None:
        await cluster.create_topic("Transferred", queues=1)
        async with bank.xa() as t:
            await move(t)
            await t.send(aio.Message("Transferred", b"10"))
        with pytest.raises(ValueError, match="no"):  # noqa: PT012
            async with bank.xa() as t:
                await move(t)
                raise ValueError("no")
        with pytest.raises(Aborted, match="too little money"):
            async with bank.xa() as t:
                await move(t, 1000)
        assert [one.body for one in await cluster.messages("Transferred")] == [b"10"]
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 90}, {"B": 10})

    with_bank(scenario, resources=banks)


def test_a_block_inside_of_another_one_is_refused(with_bank: Callable[..., None]) -> None:
    banks = two_banks()

    async def scenario(cluster: AsyncCluster, bank: Any) -> None:
        async with bank.xa() as t:
            with pytest.raises(InvalidArgument, match="must not begin inside"):
                async with bank.xa():
                    raise AssertionError("it must not begin")
            await move(t)
        async with bank.xa() as t:
            await move(t)
        assert banks["icbc"].cents == {"A": 80}

    with_bank(scenario, resources=banks)


def test_participants_in_databases_are_confirmed_or_cancelled(
    with_bank: Callable[..., None], icbc: SqliteBank, ccb: SqliteBank
) -> None:
    debit, credit = freezing("debit", icbc, "A", -1), freezing("credit", ccb, "B", 1)

    async def scenario(cluster: AsyncCluster, bank: Any) -> None:
        async with bank.tcc() as t:
            assert await t.call(debit, Transfer("1", 10)) == "frozen 10"
            await t.call(credit, Transfer("1", 10))
        assert (icbc.rows(), ccb.rows()) == ([("A", 90, 0)], [("B", 10, 0)])
        with pytest.raises(Declined, match="too little money"):  # noqa: PT012
            async with bank.tcc() as t:
                await t.call(credit, Transfer("2", 1000))
                await t.call(debit, Transfer("2", 1000))
        assert await bank.outcome(t.gid) is GlobalOutcome.ABORTED
        assert (icbc.rows(), ccb.rows()) == ([("A", 90, 0)], [("B", 10, 0)])

    with_bank(scenario, participants=[debit, credit])


def test_rows_of_the_fence_are_deleted_when_no_call_can_need_them(
    with_bank: Callable[..., None], icbc: SqliteBank, ccb: SqliteBank
) -> None:
    debit = freezing("debit", icbc, "A", -1)
    old, gids = datetime.now(UTC) - timedelta(days=8), "SELECT DISTINCT gid FROM turbopump_fence"
    with contextlib.closing(icbc.connect()) as connection:
        fence.create_table(connection)
        row = ("gone", "debit", "try", "try", int(old.timestamp() * 1000))
        with connection:
            connection.execute("INSERT INTO turbopump_fence VALUES (?, ?, ?, ?, '', ?)", row)

    async def scenario(cluster: AsyncCluster, bank: Any) -> None:
        await cluster.wait_until(lambda: icbc.rows(gids) == [])
        async with bank.tcc() as t:
            await t.call(debit, Transfer("1", 10))
        assert icbc.rows(gids) == [(t.gid,)]

    with_bank(scenario, participants=[debit])


def test_a_saga_in_databases_is_done_or_compensated(
    with_bank: Callable[..., None], icbc: SqliteBank, ccb: SqliteBank
) -> None:
    saga = transfer_saga(icbc, ccb)

    async def scenario(cluster: AsyncCluster, bank: Any) -> None:
        outcome = await bank.run(saga, Transfer("1", 10), gid="order-1")
        assert outcome.results == {"debit": 10, "credit": None}
        assert await bank.run(saga, Transfer("1", 10), gid="order-1") == outcome
        assert (icbc.rows(), ccb.rows()) == ([("A", 90, 0)], [("B", 10, 0)])
        with pytest.raises(Aborted, match="cannot take part"):
            await bank.run(saga, Transfer("no such account", 10))
        await cluster.wait_until(lambda: icbc.rows() == [("A", 90, 0)])
        assert ccb.rows() == [("B", 10, 0)]

    with_bank(scenario)


def test_sqlite_as_the_last_resource_decides_also_about_messages(
    with_bank: Callable[..., None], tmp_path: Path
) -> None:
    till = SqliteBank(tmp_path / "till.db", T=0)
    icbc = MemoryDatabase("icbc", {"A": 100})

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(till.path, timeout=20, check_same_thread=False)

    async def scenario(cluster: AsyncCluster, bank: Any) -> None:
        await cluster.create_topic("Transferred", queues=1)
        for cents in (10, 1000):
            with contextlib.suppress(Aborted):
                async with bank.xa() as t:
                    await t["icbc"].add("A", -cents)
                    t["till"].execute("UPDATE accounts SET cents = cents + ?", (cents,))
                    await t.send(aio.Message("Transferred", b"%d" % cents))
        assert (icbc.cents, till.rows()) == ({"A": 90}, [("T", 10, 0)])
        assert till.rows("SELECT decision FROM turbopump_decisions") == [("commit",)]
        assert [one.body for one in await cluster.messages("Transferred")] == [b"10"]
        assert await bank.outcome(t.gid) is GlobalOutcome.ABORTED

    with_bank(scenario, resources={"icbc": icbc, "till": SqliteLastResource("till", connect)})


def test_a_second_sqlite_database_is_refused(tmp_path: Path) -> None:
    two = {
        name: SqliteLastResource(name, lambda: sqlite3.connect(tmp_path / "till.db"))
        for name in ("till", "safe")
    }
    with pytest.raises(InvalidArgument, match=r"at most one resource may be SQLite, .* got till, safe"):
        Coordinator("bank", resources=two)


def test_figures_and_one_round_of_recovery(with_bank: Callable[..., None]) -> None:
    banks = two_banks()

    async def scenario(cluster: AsyncCluster, bank: Any) -> None:
        async with bank.xa() as t:
            await move(t)
        assert await bank.recover_once(older_than=0) == 0
        figures = bank.figures()
        found = await figures if isinstance(bank, BlockingBank) else figures
        assert {(kind.value, outcome.value): n for (kind, outcome), n in found.ended.items()} == {
            ("xa", "committed"): 1
        }

    with_bank(scenario, resources=banks)


# what only the blocking one has


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_ctrl_c_in_a_block_rolls_back(cluster: Cluster) -> None:
    banks = two_banks()
    with Coordinator("bank", name_servers=cluster.name_servers, resources=banks) as bank:
        with pytest.raises(KeyboardInterrupt), bank.xa() as t:  # noqa: PT012
            asyncio.run(move(t))
            raise KeyboardInterrupt
        assert banks["icbc"].cents == {"A": 100}
        assert "roll back" in banks["icbc"].calls


def test_ctrl_c_while_the_votes_come_aborts(cluster: Cluster) -> None:
    banks = two_banks()
    reached = threading.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.sleep(0.5)

    banks["ccb"].hold["prepare"] = _Held(hold)
    with Coordinator("bank", name_servers=cluster.name_servers, resources=banks) as bank:
        with pytest.raises(KeyboardInterrupt), bank.xa() as t:  # noqa: PT012
            asyncio.run(move(t))
            _interrupt_when(reached)
        cluster.wait_until(lambda: bank.figures().active == 0)
        assert (banks["icbc"].cents, banks["icbc"].prepared_changes) == ({"A": 100}, {})
        assert bank.outcome(t.gid) is GlobalOutcome.ABORTED


def test_ctrl_c_after_the_decision_leaves_it_committed(cluster: Cluster) -> None:
    banks = two_banks()
    reached = threading.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.sleep(0.5)

    banks["ccb"].hold["commit"] = _Held(hold)
    with Coordinator("bank", name_servers=cluster.name_servers, resources=banks) as bank:
        with pytest.raises(KeyboardInterrupt), bank.xa() as t:  # noqa: PT012
            asyncio.run(move(t))
            _interrupt_when(reached)
        cluster.wait_until(lambda: bank.figures().active == 0)
        assert (banks["icbc"].cents, banks["ccb"].cents) == ({"A": 90}, {"B": 10})


def test_two_threads_have_blocks_of_their_own(cluster: Cluster) -> None:
    banks = two_banks()
    bank = Coordinator("bank", name_servers=cluster.name_servers, resources=banks)
    both = threading.Barrier(2)

    def work() -> None:
        with bank.xa() as t:
            both.wait(10)
            asyncio.run(move(t))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert banks["icbc"].cents == {"A": 80}
    bank.close()


def test_a_blocking_call_in_an_event_loop_is_refused(cluster: Cluster) -> None:
    bank = Coordinator("bank", name_servers=cluster.name_servers, resources=two_banks())

    async def main() -> None:
        with pytest.raises(InsideEventLoop, match=r"turbopump\.aio"), bank.xa():
            raise AssertionError("it must not begin")

    asyncio.run(main())
    bank.close()


PROGRAM = """
import sys
from turbopump.transactions import Coordinator, Tcc
from tests.unit.transactions.memory_bank import MemoryDatabase


class Telling(MemoryDatabase):
    async def prepared(self):
        print("sweeping", flush=True)
        return []


bank = Coordinator("bank", name_servers=sys.argv[1], resources={"icbc": Telling("icbc")})
with bank.xa("icbc"):
    pass
print("done", flush=True)
if "recover" in sys.argv:
    bank.recover()
    print("closed")
"""


def test_a_program_that_never_closes_its_coordinator_ends_without_complaint(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.name_servers],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_recovery_process_works_until_a_signal(cluster: Cluster) -> None:
    command = [sys.executable, "-c", PROGRAM, cluster.name_servers, "recover"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["done\n", "sweeping\n"]
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "closed\n"
        assert process.wait(30) == 0


class _Held:
    """In place of an event: what a method waits for, on whatever loop it runs."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        self.wait = wait


def _interrupt_when(reached: threading.Event) -> None:
    """Sends this process Ctrl-C when the event is set."""

    def wait() -> None:
        reached.wait(10)
        time.sleep(0.1)  # a signal just before the thread begins to wait is seen when the wait ends
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()
