"""SQLite as the last resource of XA: its commit is the decision."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.databases import Database, run_async, sqlite
from tests.integration.transactions.dying import Points, dying_sqlite, in_process

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database import Statement, Steps
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.resources import SqliteLastResource
from turbopump.transactions.errors import Declined

XID = Xid("tpl.00c0ffee.000000000000000000000001", "shop")
KINDS = (
    "sqlite3",
    "sqlite3 in autocommit",
    "aiosqlite",
    "SQLAlchemy",
    "SQLAlchemy session",
    "async SQLAlchemy",
)


@pytest.fixture
def seen(tmp_path: Path) -> Database:
    database = sqlite("sqlite3", tmp_path / "database")
    database.run("CREATE TABLE orders (what TEXT)")
    return database


@pytest.fixture(params=KINDS)
def resource(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteLastResource:
    return SqliteLastResource("shop", _connect(request.param, tmp_path / "database"))


def _connect(kind: str, path: Path) -> Callable[[], Any]:
    import aiosqlite
    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.orm import sessionmaker

    own = {"timeout": 20, "check_same_thread": False}
    if kind == "sqlite3":
        return lambda: sqlite3.connect(path, **own)
    if kind == "sqlite3 in autocommit":
        return lambda: sqlite3.connect(path, isolation_level=None, **own)
    if kind == "aiosqlite":
        return lambda: aiosqlite.connect(path, timeout=20)
    if kind == "async SQLAlchemy":
        return create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool).connect
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args=own)
    return sessionmaker(engine) if kind.endswith("session") else engine.connect


async def order(
    resource: SqliteLastResource, connection: Any, sql: str = "INSERT INTO orders VALUES ('A')"
) -> None:
    def steps(dialect: str) -> Steps[None]:
        yield Statement(sql)

    await resource.run(connection, steps)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work()

    asyncio.run(bounded())


def decisions(seen: Database) -> list[tuple[str, str]]:
    return [tuple(row) for row in seen.run("SELECT gid, decision FROM turbopump_decisions")]  # type: ignore[misc]


def test_the_commit_has_the_decision_in_it(resource: SqliteLastResource, seen: Database) -> None:
    async def work() -> None:
        branch = await resource.begin(XID)
        await order(resource, branch.connection)
        assert seen.count("orders") == 0
        await branch.commit_one_phase()
        await branch.abandon()
        with pytest.raises(Declined, match="has committed transaction"):
            await resource.roll_back(XID)
        await resource.commit(XID)
        assert await resource.prepared() == []
        await resource.close()

    run(work)
    assert (seen.count("orders"), decisions(seen)) == (1, [(XID.gid, "commit")])


def test_an_abort_is_written_and_keeps_a_late_branch_out(
    resource: SqliteLastResource, seen: Database
) -> None:
    async def work() -> None:
        branch = await resource.begin(XID)
        await order(resource, branch.connection)
        await branch.roll_back()
        await resource.roll_back(XID)
        await resource.roll_back(XID)
        with pytest.raises(Declined, match="is decided already: abort"):
            await resource.begin(XID)
        with pytest.raises(Declined, match="has not committed"):
            await resource.commit(XID)

    run(work)
    assert (seen.count("orders"), decisions(seen)) == (0, [(XID.gid, "abort")])


def test_a_branch_that_is_open_keeps_recovery_from_deciding(tmp_path: Path, seen: Database) -> None:
    """It holds SQLite's write lock: recovery is told to ask again, and then finds the decision."""
    resource = SqliteLastResource("shop", _connect("sqlite3", tmp_path / "database"))
    hasty = SqliteLastResource(
        "shop", lambda: sqlite3.connect(tmp_path / "database", timeout=0.05, check_same_thread=False)
    )

    async def work() -> None:
        branch = await resource.begin(XID)
        await order(resource, branch.connection)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await hasty.roll_back(XID)
        await branch.commit_one_phase()
        with pytest.raises(Declined, match="has committed"):
            await hasty.roll_back(XID)

    run(work)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_the_users_code_has_ended_is_no_decision(
    tmp_path: Path, seen: Database, end: str
) -> None:
    resource = SqliteLastResource("shop", _connect("sqlite3", tmp_path / "database"))

    async def work() -> None:
        branch = await resource.begin(XID)
        await order(resource, branch.connection)
        await order(resource, branch.connection, end)
        await order(resource, branch.connection)
        with pytest.raises(Declined, match="was ended inside of the block"):
            await branch.commit_one_phase()
        await resource.roll_back(XID)

    run(work)
    assert decisions(seen) == [(XID.gid, "abort")]


def test_wherever_the_process_dies_the_row_and_the_work_are_both_there_or_neither(
    tmp_path: Path, seen: Database
) -> None:
    outcomes = set()
    die_at, was_killed = 1, True
    while was_killed:
        xid = Xid(f"tpl.00c0ffee.{die_at:024x}", "shop")
        dying = dying_sqlite(tmp_path / "database", one_thread=False)(
            Points(tmp_path / f"steps-{die_at}", die_at)
        )

        async def work(xid: Xid = xid, dying: Database = dying) -> None:
            resource = SqliteLastResource("shop", dying.connect)
            branch = await resource.begin(xid)
            await order(resource, branch.connection, f"INSERT INTO orders VALUES ('{xid.gid}')")
            await branch.commit_one_phase()

        was_killed = in_process(lambda work=work: run(work))  # type: ignore[misc]

        async def recover(xid: Xid = xid) -> bool:
            resource = SqliteLastResource("shop", _connect("sqlite3", tmp_path / "database"))
            try:
                await resource.roll_back(xid)
            except Declined:
                return True
            return False

        is_committed = asyncio.run(recover())
        orders = seen.run("SELECT count(*) FROM orders WHERE what = :gid", gid=xid.gid)[0][0]
        assert orders == int(is_committed), die_at
        outcomes.add(is_committed)
        die_at += 1
    assert outcomes == {True, False}
    assert die_at > 6


def test_a_connection_for_one_thread_is_refused(tmp_path: Path) -> None:
    resource = SqliteLastResource("shop", lambda: sqlite3.connect(tmp_path / "database"))
    with pytest.raises(InvalidArgument, match="check_same_thread=False"):
        asyncio.run(resource.begin(XID))


def test_names_that_no_database_takes_are_refused(tmp_path: Path) -> None:
    for name in ("", "x" * 33, "böse", "a\nb"):
        with pytest.raises(InvalidArgument, match="resource must be 1 to 32 printable ASCII"):
            SqliteLastResource(name, lambda: None)
    resource = SqliteLastResource("shop", _connect("sqlite3", tmp_path / "database"))
    for gid in ("", "x" * 65, "ü"):
        with pytest.raises(InvalidArgument, match="gid must be 1 to 64 printable ASCII"):
            asyncio.run(resource.begin(Xid(gid, "shop")))


def test_async_work_goes_through_the_users_own_connection(tmp_path: Path, seen: Database) -> None:
    resource = SqliteLastResource("shop", _connect("aiosqlite", tmp_path / "database"))

    async def work() -> None:
        branch = await resource.begin(XID)
        await run_async(branch.connection, "INSERT INTO orders VALUES (:what)", what="A")
        await branch.commit_one_phase()

    run(work)
    assert seen.count("orders") == 1
