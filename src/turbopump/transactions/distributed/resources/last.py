"""SQLite as the last resource of XA: it cannot prepare, so its commit is the decision.

All other branches are prepared first. Then the SQLite transaction commits, with a row in
`turbopump_decisions` in it: that row says that the global transaction is committed, and there is no moment in
which it is committed without the row. Recovery asks for the row, and writes one of its own where there is
none: then it is aborted, and a late commit of the branch fails.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Executor
from inspect import isawaitable
from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.connections import close
from turbopump.transactions.database import (
    SQLITE,
    DialectSteps,
    Statement,
    Steps,
    TransactionCommand,
    create_if_missing,
    driver_of,
    in_transaction,
    insert_if_absent,
    is_known,
    rollback,
    run_steps,
)
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.resources.values import PreparedBranch, checked_xid
from turbopump.transactions.errors import Declined

TABLE = "turbopump_decisions"
COMMIT, ABORT = "commit", "abort"
COLUMNS = ("gid", "decision", "at")
_DEFINITIONS = {
    SQLITE: (
        f"CREATE TABLE IF NOT EXISTS {TABLE} "
        "(gid TEXT PRIMARY KEY, decision TEXT NOT NULL, at BIGINT NOT NULL)",
    )
}


class SqliteLastResource:
    """The one SQLite database that may take part in XA: its commit decides. See the module.

    `connect` gives a new connection each time, of sqlite3 (with `check_same_thread=False`: it is opened in
    another thread), aiosqlite or SQLAlchemy; `threads` are for blocking ones. A commit must be on disk before
    it returns: leave `PRAGMA synchronous` at FULL.
    """

    def __init__(self, name: str, connect: Callable[[], Any], *, threads: Executor | None = None) -> None:
        self.name = checked_xid(Xid("gid", name)).branch
        self._connect = connect
        self._threads = threads
        self._is_async = False

    async def begin(self, xid: Xid) -> "SqliteLastBranch":
        """Opens a connection and begins a transaction on it, with SQLite's write lock.

        Others wait for that lock until the transaction ends. Raises Declined if the gid is decided already.
        """
        checked_xid(xid)
        connection = await self._open()
        branch = SqliteLastBranch(self, xid, connection)
        try:
            await self._check_threads(connection)
            await self.run(connection, _begin(xid.gid))
        except BaseException:
            await self.close_connection(connection)
            raise
        return branch

    async def roll_back(self, xid: Xid) -> None:
        """Writes that the transaction is aborted, for ever. Raises Declined if it was committed before.

        Raises what SQLite raises while a branch of it is still open there: ask again.
        """
        if await self.decide(xid, ABORT) == COMMIT:
            raise Declined(f"{self.name} has committed transaction {xid.gid}: that was the decision")

    async def commit(self, xid: Xid) -> None:
        """Checks that the transaction is committed here. Raises Declined if it is aborted, or now will be."""
        if await self.decide(xid, ABORT) != COMMIT:
            raise Declined(f"{self.name} has not committed transaction {xid.gid}: so it is aborted")

    async def prepared(self) -> list[PreparedBranch]:
        """Returns none: SQLite has no prepared state."""
        return []

    async def close(self) -> None:
        """Does nothing: no connection is kept."""

    async def decide(self, xid: Xid, decision: str) -> str:
        """Writes the decision unless there is one; returns the one that counts."""
        connection = await self._open()
        try:
            await self._check_threads(connection)
            counts: str = await self.run(connection, in_transaction(_decide(xid.gid, decision)))
            return counts
        finally:
            await self.close_connection(connection)

    # for branches

    async def run(self, connection: Any, steps: DialectSteps[Any]) -> Any:
        if self._is_async:
            return await run_steps(connection, steps)
        return await self._in_thread(lambda: run_steps(connection, steps))

    async def close_connection(self, connection: Any) -> None:
        if self._is_async:
            await close(connection)
        else:
            await self._in_thread(connection.close)

    async def _open(self) -> Any:
        given = self._connect() if self._is_async else await self._in_thread(self._connect)
        if isawaitable(given):
            given = await given
        if not is_known(given):
            raise InvalidArgument(
                f"resource {self.name} must have connections of sqlite3, aiosqlite or SQLAlchemy, "
                f"got {type(given).__module__}.{type(given).__qualname__}"
            )
        driver = driver_of(given)
        self._is_async = driver.is_async
        if driver.dialect != SQLITE:
            await self.close_connection(given)
            raise InvalidArgument(f"the last resource must be SQLite, got {driver.dialect}: use XaResource")
        return given

    async def _check_threads(self, connection: Any) -> None:
        """Raises InvalidArgument for a connection that only its own thread may use."""
        if isinstance(connection, sqlite3.Connection):
            try:
                connection.cursor().close()
            except sqlite3.ProgrammingError as error:
                raise InvalidArgument(
                    f"connections of resource {self.name} must be made by sqlite3.connect(…, "
                    "check_same_thread=False): they are opened in another thread"
                ) from error

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


class SqliteLastBranch:
    """The work of one global transaction in the last resource. `connection` is the user's own kind."""

    def __init__(self, resource: SqliteLastResource, xid: Xid, connection: Any) -> None:
        self.xid = xid
        self.connection = connection
        self._resource = resource
        self._has_ended = False

    async def commit_one_phase(self) -> None:
        """Commits the work with the decision. Raises Declined if both were certainly rolled back."""
        try:
            await self._resource.run(self.connection, _commit(self.xid.gid))
        except Declined:
            await self.abandon()
            raise
        except Exception as error:
            await self.abandon()
            if await self._resource.decide(self.xid, ABORT) != COMMIT:
                raise Declined(f"SQLite could not commit {self.xid.gid}: {error}") from error
        await self.abandon()

    async def roll_back(self) -> None:
        """Rolls back the work. Raises Declined if it was committed."""
        was_open = not self._has_ended
        await self.abandon()
        if not was_open:
            await self._resource.roll_back(self.xid)

    async def abandon(self) -> None:
        """Closes the connection, which rolls back what is not committed. May be repeated."""
        if not self._has_ended:
            self._has_ended = True
            await self._resource.close_connection(self.connection)


_MARK = "turbopump_branch"


def _begin(gid: str) -> DialectSteps[None]:
    """The savepoint is gone when the user's code ends the transaction by itself."""

    def steps(dialect: str) -> Steps[None]:
        yield TransactionCommand.BEGIN
        yield from create_if_missing(dialect, TABLE, _DEFINITIONS)
        if decision := (yield from _read(gid)):
            yield from rollback()
            raise Declined(f"transaction {gid} is decided already: {decision}")
        yield Statement(f"SAVEPOINT {_MARK}")

    return steps


def _commit(gid: str) -> DialectSteps[None]:
    def steps(dialect: str) -> Steps[None]:
        try:
            yield Statement(f"RELEASE SAVEPOINT {_MARK}")
        except Exception as error:
            raise Declined("the transaction of SQLite was ended inside of the block") from error
        insert = insert_if_absent(dialect, TABLE, COLUMNS)
        if (yield Statement(insert, _row(gid, COMMIT))).count != 1:
            raise Declined(f"transaction {gid} was aborted before this commit")
        yield TransactionCommand.COMMIT

    return steps


def _decide(gid: str, decision: str) -> DialectSteps[str]:
    def steps(dialect: str) -> Steps[str]:
        yield from create_if_missing(dialect, TABLE, _DEFINITIONS)
        yield Statement(insert_if_absent(dialect, TABLE, COLUMNS), _row(gid, decision))
        return (yield from _read(gid))

    return steps


def _read(gid: str) -> Steps[str]:
    rows = (yield Statement(f"SELECT decision FROM {TABLE} WHERE gid = :gid", {"gid": gid})).rows
    return str(rows[0][0]) if rows else ""


def _row(gid: str, decision: str) -> dict[str, object]:
    return {"gid": gid, "decision": decision, "at": time.time_ns() // 1_000_000}
