"""The ways in which PostgreSQL and MariaDB lose money to a careless coordinator, each on a real server.

T1 to T5 first, then the errors of a second phase. The server's own behaviour is shown beside ours, so that a
server that behaves otherwise one day is noticed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database.faults import is_retriable, number_of, state_of
from turbopump.transactions.distributed.resources import BranchVote, XaBranch, XaResource
from turbopump.transactions.distributed.resources.values import mariadb_literal, postgresql_literal
from turbopump.transactions.errors import Declined, Later, Parked

from .branches import Account, account, execute, new_xid, run, take
from .mariadb import MariaDB
from .postgres import Postgres

COM_RESET_CONNECTION = 0x1F  # of the protocol


@pytest.fixture
def icbc(postgres_server: Postgres) -> Account:
    return account(postgres_server, "psycopg")


@pytest.fixture
def ccb(mariadb_server: MariaDB) -> Account:
    return account(mariadb_server, "PyMySQL")


async def prepared(resource: XaResource, work: Any = take) -> XaBranch:
    branch = await resource.begin(new_xid(resource.name))
    await work(branch.connection)
    assert await branch.prepare() is BranchVote.YES
    return branch


async def left(resource: XaResource, branch: XaBranch) -> bool:
    return branch.xid in [one.xid for one in await resource.prepared()]


async def commit_when_free(resource: XaResource, branch: XaBranch) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                return await resource.commit(branch.xid)
            except Later:
                await asyncio.sleep(0.02)


# --- T1 to T5 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["psycopg", "async psycopg", "asyncpg", "SQLAlchemy session", "async SQLAlchemy of asyncpg"]
)
def test_t1_a_failed_transaction_that_postgresql_would_prepare_without_an_error_votes_no(
    postgres_server: Postgres, kind: str
) -> None:
    one = account(postgres_server, kind)

    async def work() -> None:
        resource = one.resource()
        branch = await resource.begin(new_xid())
        await take(branch.connection)
        with pytest.raises(Exception, match="division by zero"):
            await execute(branch.connection, "SELECT 1 / 0")
        with pytest.raises(Declined, match="a statement failed in this branch"):
            await branch.prepare()
        await branch.roll_back()
        assert (await resource.prepared(), one.cents) == ([], 100)
        await resource.close()

    run(work)


def test_t1_the_tag_of_prepare_is_read_and_not_only_the_state_before(icbc: Account) -> None:
    """A deferred constraint fails in PREPARE itself; and this is what the server answers to a failed one."""
    import psycopg

    with psycopg.connect(icbc.server.connection_string(icbc.place)) as connection:  # type: ignore[union-attr]
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        assert connection.execute("PREPARE TRANSACTION 'lost'").statusmessage == "ROLLBACK"

    async def work() -> None:
        resource = icbc.resource()
        await execute_alone(icbc, "CREATE TABLE owners (id VARCHAR(8) PRIMARY KEY)")
        await execute_alone(
            icbc,
            "CREATE TABLE cards (owner VARCHAR(8) REFERENCES owners (id) DEFERRABLE INITIALLY DEFERRED)",
        )
        branch = await resource.begin(new_xid())
        await execute(branch.connection, "INSERT INTO cards VALUES ('nobody')")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            await branch.prepare()
        await branch.roll_back()
        assert await resource.prepared() == []
        alone = await resource.begin(new_xid())
        await execute(alone.connection, "INSERT INTO cards VALUES ('nobody')")
        with pytest.raises(Declined, match="PostgreSQL refused to commit"):
            await alone.commit_one_phase()
        await resource.close()

    run(work)


async def execute_alone(one: Account, sql: str) -> None:
    await asyncio.to_thread(one.execute, sql)


def test_t2_a_branch_that_a_live_connection_holds_is_not_taken_for_an_ended_one(ccb: Account) -> None:
    """MariaDB answers 1397 to both; only XA RECOVER tells them apart."""
    import pymysql

    async def work() -> None:
        resource = ccb.resource()
        branch = await prepared(resource)
        with pytest.raises(pymysql.err.OperationalError) as raised:
            await execute_alone(ccb, f"XA COMMIT {mariadb_literal(branch.xid)}")
        assert number_of(raised.value) == 1397
        with pytest.raises(Later, match="held by a live connection"):
            await resource.commit(branch.xid)
        with pytest.raises(Later, match="held by a live connection"):
            await resource.roll_back(branch.xid)
        assert await left(resource, branch)
        assert ccb.cents == 100
        await branch.abandon()
        await commit_when_free(resource, branch)
        assert (await left(resource, branch), ccb.cents) == (False, 70)
        await resource.commit(branch.xid)  # 1397 again, and now it is not listed: done
        await resource.close()

    run(work)


@pytest.mark.parametrize(
    "kind", ["SQLAlchemy connection", "SQLAlchemy session", "async SQLAlchemy of asyncmy"]
)
def test_t3_a_connection_with_a_branch_in_it_never_goes_back_to_a_pool(
    mariadb_server: MariaDB, kind: str
) -> None:
    """A pool would reset it, after which MariaDB answers OK to a commit that never comes."""
    one = account(mariadb_server, kind)

    async def work() -> None:
        resource = one.resource()
        branch = await prepared(resource)
        await branch.abandon()
        await commit_when_free(resource, branch)
        assert one.cents == 70
        await execute_alone(one, "UPDATE accounts SET cents = 1 WHERE id = 'A'")  # the row is not locked
        await resource.close()

    run(work)


def test_t3_what_mariadb_does_with_a_connection_that_is_reset(ccb: Account) -> None:
    """The commit is answered by OK, nothing is listed, the change is invisible and its row is locked."""
    import pymysql

    server = ccb.server
    connection = pymysql.connect(**server.parameters(ccb.place))  # type: ignore[union-attr]
    with connection.cursor() as cursor:
        for sql in (
            "XA START 'reset'",
            "UPDATE accounts SET cents = 70",
            "XA END 'reset'",
            "XA PREPARE 'reset'",
        ):
            cursor.execute(sql)
    connection._execute_command(COM_RESET_CONNECTION, b"")
    connection._read_ok_packet()
    server.execute("XA COMMIT 'reset'")
    assert [row for row in server.execute("XA RECOVER") if row[3] == b"reset"] == []
    assert ccb.cents == 100
    server.kill()  # only that brings the branch back
    server.start()
    assert [row[3] for row in server.execute("XA RECOVER") if row[3] == b"reset"] == [b"reset"]
    server.execute("XA COMMIT 'reset'")
    assert ccb.cents == 70


@pytest.mark.parametrize("database", ["PostgreSQL", "MariaDB"])
@pytest.mark.parametrize("kind", ["SQLAlchemy connection", "SQLAlchemy session"])
def test_t4_closing_in_doubt_rolls_no_prepared_branch_back(
    postgres_server: Postgres, mariadb_server: MariaDB, database: str, kind: str
) -> None:
    """SQLAlchemy rolls a prepared branch back when its connection is closed or returned."""
    one = account(postgres_server if database == "PostgreSQL" else mariadb_server, kind)

    async def work() -> None:
        resource = one.resource()
        branch = await prepared(resource)
        await branch.abandon()  # the decision is asked for, and its answer was lost
        branch.connection.close()
        assert await left(resource, branch)
        await commit_when_free(resource, branch)
        assert one.cents == 70
        await resource.close()

    run(work)


@pytest.mark.parametrize("kind", ["PyMySQL", "asyncmy", "aiomysql", "SQLAlchemy connection"])
def test_t5_phase_2_does_not_need_connections_in_autocommit(mariadb_server: MariaDB, kind: str) -> None:
    """These drivers switch autocommit off: after any read the server answers 1400 to XA COMMIT."""
    one = account(mariadb_server, kind)

    async def work() -> None:
        resource = one.resource()
        first, second = await prepared(resource), None
        await first.abandon()
        await resource.prepared()
        await commit_when_free(resource, first)
        second = await prepared(resource)
        await second.abandon()
        await resource.prepared()
        await commit_when_free(resource, second)
        assert one.cents == 40
        await resource.close()

    run(work)


# --- errors of MariaDB --------------------------------------------------------------------------------------


def test_1400_is_what_a_connection_in_a_transaction_is_answered(ccb: Account) -> None:
    import pymysql

    async def work() -> None:
        resource = ccb.resource()
        branch = await prepared(resource)
        await branch.abandon()
        other = pymysql.connect(**ccb.server.parameters(ccb.place))  # type: ignore[union-attr]
        with other.cursor() as cursor:
            cursor.execute("SELECT * FROM accounts")
            with pytest.raises(pymysql.err.OperationalError) as raised:
                cursor.execute(f"XA COMMIT {mariadb_literal(branch.xid)}")
        assert number_of(raised.value) == 1400
        other.close()
        await commit_when_free(resource, branch)
        assert ccb.cents == 70
        await resource.close()

    run(work)


def test_1402_at_a_commit_is_parked_and_at_an_abort_it_is_done(ccb: Account) -> None:
    """A branch that has changed nothing which can be committed: the server rolls it back with its connection.

    One that only reads votes so and is never prepared. This one writes a table without transactions.
    """

    async def change_nothing(connection: Any) -> None:
        await execute(connection, "SELECT cents FROM accounts")
        await execute(connection, "INSERT INTO notes VALUES ('kept whatever happens')")

    async def work() -> None:
        resource = ccb.resource()
        await execute_alone(ccb, "CREATE TABLE notes (what VARCHAR(80)) ENGINE=MEMORY")
        for is_commit in (False, True):
            branch = await prepared(resource, change_nothing)
            await branch.abandon()
            if is_commit:
                with pytest.raises(Parked, match="1402"):
                    await commit_when_free(resource, branch)
            else:
                async with asyncio.timeout(20):
                    while await left(resource, branch):
                        try:
                            await resource.roll_back(branch.xid)
                        except Later:
                            await asyncio.sleep(0.02)
        await resource.close()

    run(work)


def test_1205_a_lock_that_was_waited_for_too_long_votes_no(ccb: Account) -> None:
    """The server undoes the statement alone: the rest of the branch could be committed."""

    async def work() -> None:
        resource = ccb.resource(lock_timeout_s=1)
        await execute_alone(ccb, "INSERT INTO accounts VALUES ('B', 0)")
        holder = await resource.begin(new_xid("holder"))
        await execute(holder.connection, "UPDATE accounts SET cents = 1 WHERE id = 'B'")
        branch = await resource.begin(new_xid())
        await take(branch.connection)
        with pytest.raises(Exception, match="Lock wait timeout") as raised:
            await asyncio.to_thread(
                _update, branch.connection, "UPDATE accounts SET cents = 2 WHERE id = 'B'"
            )
        assert (number_of(raised.value), is_retriable(raised.value)) == (1205, True)
        with pytest.raises(Declined, match="a statement failed in this branch"):
            await branch.prepare()
        await branch.roll_back()
        await holder.roll_back()
        assert ccb.cents == 100
        await resource.close()

    run(work)


def test_1213_a_deadlock_votes_no(ccb: Account) -> None:
    async def work() -> None:
        resource = ccb.resource()
        await execute_alone(ccb, "INSERT INTO accounts VALUES ('B', 0)")
        await execute_alone(ccb, "CREATE TABLE heavy (id INTEGER PRIMARY KEY)")
        other = await resource.begin(new_xid("other"))
        for number in range(5):  # the server undoes the lighter one
            await execute(other.connection, "INSERT INTO heavy VALUES (:id)", id=number)
        await execute(other.connection, "UPDATE accounts SET cents = cents WHERE id = 'B'")
        await execute(other.connection, "UPDATE accounts SET cents = 5 WHERE id = 'B'")
        branch = await resource.begin(new_xid())
        await take(branch.connection)
        waiting = threading.Thread(
            target=_update, args=(other.connection, "UPDATE accounts SET cents = 6 WHERE id = 'A'")
        )
        waiting.start()
        await asyncio.to_thread(_until_waiting, ccb)
        with pytest.raises(Exception, match="Deadlock") as raised:
            await asyncio.to_thread(
                _update, branch.connection, "UPDATE accounts SET cents = 7 WHERE id = 'B'"
            )
        assert (number_of(raised.value), is_retriable(raised.value)) == (1213, True)
        with pytest.raises(Declined, match="a statement failed in this branch"):
            await branch.prepare()
        await branch.roll_back()
        await asyncio.to_thread(waiting.join, 20)
        await other.roll_back()
        assert ccb.cents == 100
        await resource.close()

    run(work)


def _update(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def _until_waiting(one: Account) -> None:
    deadline = time.monotonic() + 20
    while not one.server.execute("SELECT 1 FROM information_schema.innodb_lock_waits"):
        assert time.monotonic() < deadline, "nobody waits for a lock"
        time.sleep(0.02)


# --- errors of PostgreSQL -----------------------------------------------------------------------------------


def test_42704_is_done_for_a_branch_that_was_ended_before(icbc: Account) -> None:
    """The same answer for one that was committed, rolled back, or never there."""
    import psycopg

    async def work() -> None:
        resource = icbc.resource()
        branch = await prepared(resource)
        await branch.abandon()
        await resource.commit(branch.xid)
        with pytest.raises(psycopg.errors.UndefinedObject) as raised:
            await execute_alone(icbc, f"COMMIT PREPARED {postgresql_literal(branch.xid)}")
        assert state_of(raised.value) == "42704"
        await resource.commit(branch.xid)
        assert icbc.cents == 70
        await resource.close()

    run(work)


@pytest.mark.parametrize("database", ["PostgreSQL", "MariaDB"])
def test_with_proof_a_branch_that_somebody_else_ended_is_parked(
    postgres_server: Postgres, mariadb_server: MariaDB, database: str
) -> None:
    """The row of the fence is there after a commit, and not after a foreign rollback."""
    one = (
        account(postgres_server, "psycopg")
        if database == "PostgreSQL"
        else account(mariadb_server, "PyMySQL")
    )

    def by_hand(branch: XaBranch, verb: str) -> str:
        if database == "PostgreSQL":
            return f"{verb} PREPARED {postgresql_literal(branch.xid)}"
        return f"XA {verb} {mariadb_literal(branch.xid)}"

    async def ended_by_hand(resource: XaResource, verb: str) -> XaBranch:
        branch = await prepared(resource)
        await branch.abandon()
        async with asyncio.timeout(20):
            while await left(resource, branch):
                try:
                    await execute_alone(one, by_hand(branch, verb))
                except Exception as error:
                    assert number_of(error) == 1397  # noqa: PT017
                    await asyncio.sleep(0.02)
        return branch

    async def work() -> None:
        resource = one.resource(proof=True)
        lost = await ended_by_hand(resource, "ROLLBACK")
        with pytest.raises(Parked, match="decided to commit, but somebody has rolled back"):
            await resource.commit(lost.xid)
        await resource.roll_back(lost.xid)
        kept = await ended_by_hand(resource, "COMMIT")
        with pytest.raises(Parked, match="decided to abort, but somebody has committed"):
            await resource.roll_back(kept.xid)
        await resource.commit(kept.xid)
        assert one.cents == 70
        await resource.close()

    run(work)


def test_a_transaction_that_the_users_sql_has_ended_votes_no(icbc: Account) -> None:
    async def work() -> None:
        resource = icbc.resource()
        branch = await resource.begin(new_xid())
        await execute(branch.connection, "COMMIT")
        await take(branch.connection)
        with pytest.raises(Declined, match="was ended inside of the block"):
            await branch.prepare()
        await branch.roll_back()
        assert icbc.cents == 100
        await resource.close()

    run(work)


@pytest.mark.parametrize("kind", ["psycopg", "PyMySQL", "asyncpg", "asyncmy"])
def test_a_prepare_that_was_cancelled_while_the_server_stood_still_can_still_be_aborted(
    postgres_server: Postgres, mariadb_server: MariaDB, kind: str
) -> None:
    server: Postgres | MariaDB = postgres_server if "psycopg" in kind else mariadb_server
    one = account(server, kind)

    async def work() -> None:
        resource = one.resource()
        branch = await resource.begin(new_xid())
        await take(branch.connection)
        server.pause()
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(branch.prepare(), 0.3)
        finally:
            server.resume()
        async with asyncio.timeout(20):
            while True:
                try:
                    await branch.roll_back()
                    break
                except Later:
                    await asyncio.sleep(0.02)
        while await left(resource, branch):  # the sweep finds what was prepared after that
            await resource.roll_back(branch.xid)
        assert one.cents == 100
        await execute_alone(one, "UPDATE accounts SET cents = 5")  # nothing is locked
        await resource.close()

    run(work)


@pytest.mark.parametrize("kind", ["psycopg", "PyMySQL"])
def test_a_killed_server_has_its_prepared_branches_and_their_locks_when_it_is_back(
    postgres_server: Postgres, mariadb_server: MariaDB, kind: str
) -> None:
    server: Postgres | MariaDB = postgres_server if kind == "psycopg" else mariadb_server
    one = account(server, kind)

    async def work() -> None:
        resource = one.resource(lock_timeout_s=1)
        branch = await prepared(resource)
        await resource.prepared()  # a connection is kept for phase 2, which the kill breaks
        await asyncio.to_thread(server.kill)
        with pytest.raises(Exception):  # noqa: B017
            await branch.commit()
        await asyncio.to_thread(server.start)
        assert await left(resource, branch)
        waiter = await resource.begin(new_xid("other"))
        with pytest.raises(Exception, match=r"(?i)lock"):
            await asyncio.to_thread(
                _update, waiter.connection, "UPDATE accounts SET cents = 1 WHERE id = 'A'"
            )
        await waiter.roll_back()
        await branch.commit()
        assert one.cents == 70
        await resource.close()

    run(work)


def test_a_resource_of_sqlite_is_refused_and_told_what_there_is_instead() -> None:
    import sqlite3

    async def work() -> None:
        resource = XaResource("shop", lambda: sqlite3.connect(":memory:", check_same_thread=False))
        with pytest.raises(
            InvalidArgument, match=r"got sqlite, which cannot prepare: use SqliteLastResource"
        ):
            await resource.begin(new_xid("shop"))

    run(work)
