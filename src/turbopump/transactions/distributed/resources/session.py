"""A connection of the user's as resources use it: opened, asked by SQL below SQLAlchemy, ended in two ways.

Blocking drivers are used in threads, one call at a time. `give_back` ends a connection that holds nothing any
more; `discard` closes one at the driver, past every pool: what a pool does to reset a connection would lose a
prepared branch or roll it back.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from typing import Any, NoReturn, TypeVar

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database import POSTGRESQL, SQLITE, DialectSteps, driver_of, is_known, run_steps
from turbopump.transactions.database.connection_kinds import package_of
from turbopump.transactions.database.driver import Driver

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """What a database answered: rows, and the command tag of PostgreSQL."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    tag: str = ""


class ConnectionOpener:
    """Opens sessions by the user's `connect`, blocking or async; which one is known after the first."""

    def __init__(self, connect: Callable[[], Any], threads: Executor | None) -> None:
        self._connect: Callable[[], Any] = connect
        if not callable(connect) and hasattr(connect, "connect"):
            self._connect = connect.connect  # an Engine of SQLAlchemy
        self._threads = threads
        self._is_async = False

    async def open(self) -> "Session":
        """Opens a connection. Raises InvalidArgument for one that is not of PostgreSQL or MariaDB."""
        given = self._connect() if self._is_async else await self._in_thread(self._connect)
        context: Any = None
        if is_known(given):
            connection = await given if isawaitable(given) else given
        elif hasattr(given, "__aenter__"):
            context, connection = given, await given.__aenter__()
        elif isawaitable(given):
            connection = await given
        elif hasattr(given, "__enter__"):
            context, connection = given, await self._in_thread(given.__enter__)
        else:
            connection = given
        driver = await self._in_thread(driver_of, connection)
        self._is_async = driver.is_async
        session = Session(connection, context, driver, self._threads)
        try:
            await session.find_raw()
        except BaseException:
            await session.give_back()
            raise
        return session

    async def _in_thread(self, function: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *given)


class Session:
    """One open connection of the user's."""

    def __init__(self, connection: Any, context: Any, driver: Driver, threads: Executor | None) -> None:
        self.connection = connection
        self.dialect = ""
        self.is_broken = False
        """It answered in a way that leaves its state unknown: it can only be discarded."""
        self._context = context
        self._driver = driver
        self._is_async = driver.is_async
        self._threads = threads
        self._raw: Any = None
        self._package = ""
        self._at_work: asyncio.Future[Any] | None = None
        self._is_ended = False
        self._alchemy: Any = None
        """SQLAlchemy's Connection, also below a Session or an async one."""
        self._unguards: list[Callable[[], None]] = []
        self._autocommit_before: bool | None = None
        self._lock_timeout_before: int | None = None

    async def find_raw(self) -> None:
        """Finds the connection of the driver, below SQLAlchemy."""
        self.dialect = await self._call(lambda: self._driver.dialect)
        if self.dialect == SQLITE:  # whoever opens it says that it cannot prepare
            return
        raw = self.connection
        if package_of(type(raw)) == "sqlalchemy":
            raw = await (self._raw_async() if self._is_async else self._call(self._raw_blocking))
        self._raw, self._package = raw, package_of(type(raw))
        if self._package not in _PACKAGES:
            raise InvalidArgument(
                "a resource must have connections of psycopg, asyncpg, PyMySQL, asyncmy or aiomysql, or of "
                f"SQLAlchemy above them, got {type(raw).__module__}.{type(raw).__qualname__}"
            )

    def _raw_blocking(self) -> Any:
        inner = self.connection
        if not hasattr(inner, "exec_driver_sql"):
            inner = inner.connection()
        self._alchemy = inner
        return inner.connection.driver_connection

    async def _raw_async(self) -> Any:
        inner = self.connection
        if not hasattr(inner, "exec_driver_sql"):
            inner = await inner.connection()
        self._alchemy = inner.sync_connection
        return (await inner.get_raw_connection()).driver_connection

    # SQL

    async def execute(self, sql: str) -> SqlAnswer:
        """Executes one statement on the driver's connection."""
        execute, raw = _EXECUTE[self._package, self._is_async], self._raw
        answer: SqlAnswer
        if self._is_async:
            answer = await self._watched(lambda: execute(raw, sql))
        else:
            answer = await self._call(lambda: execute(raw, sql))
        return answer

    async def begin(self, sql: str) -> SqlAnswer:
        """Executes the first statement of a transaction, and begins one where the driver does not.

        SQLAlchemy begins asyncpg's transactions by itself, and must do so before anything else.
        """
        if self._is_alchemy and self._package == "asyncpg" and not await self._is_autocommit():
            inner = self.connection
            if not hasattr(inner, "exec_driver_sql"):
                inner = await inner.connection()
            await inner.exec_driver_sql("SELECT 1")
        elif self.dialect == POSTGRESQL and await self._is_autocommit():
            await self.execute("BEGIN")
        return await self.execute(sql)

    @property
    def _is_alchemy(self) -> bool:
        return package_of(type(self.connection)) == "sqlalchemy"

    async def run(self, steps: DialectSteps[T]) -> T:
        """Runs steps on the user's connection."""
        if self._is_async:
            return await self._watched(lambda: run_steps(self.connection, steps))
        return await self._call(lambda: run_steps(self.connection, steps))

    async def flush(self) -> None:
        """Writes what a Session of SQLAlchemy has not written yet."""
        if self._is_alchemy and not hasattr(self.connection, "exec_driver_sql"):
            if self._is_async:
                await self._watched(self.connection.flush)
            else:
                await self._call(self.connection.flush)

    async def set_lock_timeout(self, seconds: int) -> None:
        """Sets how long MariaDB waits for a lock, until the connection is given back."""
        answer = await self.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
        self._lock_timeout_before = int(answer.rows[0][0])
        await self.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}")

    async def set_autocommit(self) -> None:
        """Makes each statement a transaction of its own, until the connection is given back."""
        if self._autocommit_before is None:
            self._autocommit_before = await self._is_autocommit()
        await self._switch_autocommit(True)

    async def _is_autocommit(self) -> bool:
        if self._package == "asyncpg":
            if self._is_alchemy:
                options = (
                    self.connection.get_execution_options()
                    if hasattr(self.connection, "get_execution_options")
                    else {}
                )
                return options.get("isolation_level") == "AUTOCOMMIT"
            return True
        if self.dialect == POSTGRESQL:
            return bool(self._raw.autocommit)
        return bool(self._raw.get_autocommit())

    async def _switch_autocommit(self, is_on: bool) -> None:
        if self._package == "asyncpg":
            return
        if self.dialect == POSTGRESQL:
            await (self._watched if self._is_async else self._call)(lambda: self._raw.set_autocommit(is_on))
        else:
            await (self._watched if self._is_async else self._call)(lambda: self._raw.autocommit(is_on))

    # the end of a transaction belongs to the coordinator

    def guard(self, gid: str) -> None:
        """Makes commit and rollback of the user's connection raise InvalidArgument."""

        def refuse(*_: object, **__: object) -> NoReturn:
            raise InvalidArgument(
                f"the connection belongs to transaction {gid}: leave its block well to commit, or raise an "
                "exception to roll back"
            )

        guarded = self._guardable
        for name in ("commit", "rollback"):
            if hasattr(guarded, name):
                setattr(guarded, name, refuse)
                self._unguards.append(partial(delattr, guarded, name))
        if self._alchemy is not None:  # its blocks of `begin()` commit in another way
            from sqlalchemy import event

            event.listen(self._alchemy, "commit", refuse)
            self._unguards.append(partial(event.remove, self._alchemy, "commit", refuse))

    def unguard(self) -> None:
        unguards, self._unguards = self._unguards, []
        for undo in unguards:
            undo()

    @property
    def _guardable(self) -> Any:
        """What has the methods: SQLAlchemy's async classes pass each call on to a blocking one."""
        connection = self.connection
        for name in ("sync_connection", "sync_session"):
            if self._is_alchemy and getattr(connection, name, None) is not None:
                return getattr(connection, name)
        return connection

    # the end of the connection

    async def give_back(self) -> None:
        """Closes it as the user's `connect` wants it: perhaps into a pool. It must hold nothing any more."""
        if self.is_broken:
            return await self.discard()
        if self._is_ended:
            return None
        self._is_ended = True
        self.unguard()
        try:
            if self._lock_timeout_before is not None:
                await self.execute(f"SET SESSION innodb_lock_wait_timeout = {self._lock_timeout_before}")
            if self._autocommit_before is False:
                await self._switch_autocommit(False)
            await self._close()
        except Exception:
            log.debug("Cannot give a connection back; closing it", exc_info=True)
            self._is_ended = False
            await self.discard()
        return None

    async def discard(self) -> None:
        """Closes it at the driver: never back to a pool, and nothing is rolled back."""
        if self._is_ended:
            return
        self._is_ended = True
        self.unguard()
        try:
            if self._at_work is not None and not self._at_work.done():
                _hang_up(_SOCKET[self._package](self._raw))  # the thread that waits for the server then ends
                await asyncio.wait([self._at_work])
                self._at_work.exception()  # it is no news that its connection was closed
            if self._is_alchemy:
                await self._invalidate()
            elif self._package == "asyncpg":
                self._raw.terminate()
            elif self._is_async:
                await _awaited(self._raw.close())
            else:
                await self._call(self._raw.close)
        except Exception:
            log.debug("Cannot close a connection", exc_info=True)
        with suppress(Exception):
            await self._close()  # the pool notes that it has one less

    async def _invalidate(self) -> None:
        inner = self.connection
        if self._is_async:
            inner = inner if hasattr(inner, "exec_driver_sql") else await inner.connection()
            await inner.invalidate()
        else:
            inner = inner if hasattr(inner, "exec_driver_sql") else inner.connection()
            await self._call(inner.invalidate)

    async def _close(self) -> None:
        if self._context is not None:
            if hasattr(self._context, "__aexit__"):
                await self._context.__aexit__(None, None, None)
            else:
                await self._call(lambda: self._context.__exit__(None, None, None))
        elif self._is_async:
            await _awaited(getattr(self.connection, "ensure_closed", self.connection.close)())
        else:
            await self._call(self.connection.close)

    # threads

    async def _watched(self, call: Callable[[], Awaitable[T]]) -> T:
        """Awaits a call; one that is cancelled leaves the connection out of step with the server."""
        try:
            return await call()
        except asyncio.CancelledError:
            self.is_broken = True
            raise

    async def _call(self, function: Callable[[], T]) -> T:
        """Calls a function of a blocking driver in a thread; one that is cancelled there goes on."""
        if self._at_work is not None and not self._at_work.done():
            raise ConnectionError("the connection is still at work with an earlier statement")
        self._at_work = asyncio.get_running_loop().run_in_executor(self._threads, function)
        try:
            return await asyncio.shield(self._at_work)
        except asyncio.CancelledError:
            self.is_broken = True
            self._at_work.add_done_callback(_retrieve)
            raise


def _retrieve(work: "asyncio.Future[Any]") -> None:
    """Takes the failure of a call that nobody waits for any more: asyncio would log it."""
    if not work.cancelled():
        work.exception()


async def _awaited(given: Any) -> None:
    if isawaitable(given):
        await given


def _psycopg(raw: Any, sql: str) -> SqlAnswer:
    from psycopg.rows import tuple_row

    with raw.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(sql)
        return SqlAnswer(cursor.fetchall() if cursor.description else [], cursor.statusmessage or "")


async def _psycopg_async(raw: Any, sql: str) -> SqlAnswer:
    from psycopg.rows import tuple_row

    async with raw.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(sql)
        rows = await cursor.fetchall() if cursor.description else []
        return SqlAnswer(rows, cursor.statusmessage or "")


async def _asyncpg(raw: Any, sql: str) -> SqlAnswer:
    if sql.startswith("SELECT"):
        return SqlAnswer([tuple(row) for row in await raw.fetch(sql)], "SELECT")
    return SqlAnswer([], await raw.execute(sql))


def _pymysql(raw: Any, sql: str) -> SqlAnswer:
    from pymysql.cursors import Cursor

    with raw.cursor(Cursor) as cursor:
        cursor.execute(sql)
        return SqlAnswer(list(cursor.fetchall()))


async def _asyncmy(raw: Any, sql: str) -> SqlAnswer:
    from turbopump.transactions.database.mariadb import cursor_class

    async with raw.cursor(cursor_class(package_of(type(raw)))) as cursor:
        await cursor.execute(sql)
        return SqlAnswer(list(await cursor.fetchall()) if cursor.description else [])


_EXECUTE: dict[tuple[str, bool], Callable[..., Any]] = {
    ("psycopg", False): _psycopg,
    ("psycopg", True): _psycopg_async,
    ("asyncpg", True): _asyncpg,
    ("pymysql", False): _pymysql,
    ("asyncmy", True): _asyncmy,
    ("aiomysql", True): _asyncmy,
}
_PACKAGES = frozenset(package for package, _ in _EXECUTE)

_SOCKET: dict[str, Callable[[Any], int]] = {
    "psycopg": lambda raw: raw.pgconn.socket,
    "pymysql": lambda raw: raw._sock.fileno(),
}


def _hang_up(descriptor: int) -> None:
    """Ends a connection under the thread that reads from it."""
    with socket.socket(fileno=os.dup(descriptor)) as one:
        one.shutdown(socket.SHUT_RDWR)
