"""One interface to a user's database: SQLite and PostgreSQL, by several drivers, blocking or async.

Work is written once, as `Steps`: a generator that yields statements and transaction commands, and is sent
their results. `run_steps(connection, steps)` runs it on whatever connection the user has; on an async one it
returns an awaitable. Drivers are recognised by the module of their class: none is imported.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, Protocol, TypeVar, overload

from turbopump.client.errors import InvalidArgument

T = TypeVar("T")
log = logging.getLogger(__name__)

SQLITE = "sqlite"
POSTGRESQL = "postgresql"

_PARAMETER = re.compile(r":(\w+)")
_TABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


class BlockingConnection(Protocol):
    """A blocking connection of sqlite3, psycopg, psycopg2, Django or SQLAlchemy, or its Session."""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class AsyncConnection(Protocol):
    """An async connection of psycopg or aiosqlite, or an AsyncConnection or AsyncSession of SQLAlchemy."""

    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement with `:name` for each parameter, and the values of the parameters."""

    sql: str
    parameters: Mapping[str, object] = field(default_factory=dict)


class TransactionCommand(Enum):
    """A command that begins, joins or ends a transaction; steps yield it among their statements."""

    BEGIN = auto()
    """Begins a transaction that we end; what the connection has begun by itself becomes part of it."""
    JOIN = auto()
    """Uses the caller's transaction, which the caller ends. Refused where every statement commits itself."""
    COMMIT = auto()
    ROLLBACK = auto()


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The rows that a statement returned, and how many rows it wrote."""

    rows: list[Any]
    count: int
    """Rows written."""


NOTHING = StatementResult([], 0)

Steps = Generator[Statement | TransactionCommand, StatementResult, T]
DialectSteps = Callable[[str], Steps[T]]
"""Steps that depend on the dialect."""


@overload
def run_steps(connection: AsyncConnection, written: DialectSteps[T]) -> Awaitable[T]: ...
@overload
def run_steps(connection: BlockingConnection, written: DialectSteps[T]) -> T: ...
def run_steps(connection: Any, written: DialectSteps[T]) -> T | Awaitable[T]:
    """Runs steps on a connection and returns their result; on an async connection, an awaitable of it.

    An error of a statement is raised inside the steps.
    """
    driver = driver_of(connection)
    steps = written(driver.dialect)
    return _run_async(driver, steps) if driver.is_async else _run(driver, steps)


def in_transaction(written: DialectSteps[T]) -> DialectSteps[T]:
    """Returns the steps with BEGIN before and COMMIT after them; an error rolls back and is raised."""

    def whole(dialect: str) -> Steps[T]:
        try:
            yield TransactionCommand.BEGIN
            result = yield from written(dialect)
            yield TransactionCommand.COMMIT
        except BaseException:
            yield from rollback()
            raise
        return result

    return whole


def rollback() -> Steps[None]:
    """Steps that roll back after an error; a failure of the rollback itself is ignored.

    A connection that is gone has rolled back too.
    """
    try:
        yield TransactionCommand.ROLLBACK
    except Exception:
        log.debug("Cannot roll back", exc_info=True)


def is_async(connection: object) -> bool:
    """Returns whether a connection is async. Raises InvalidArgument for an unknown kind of connection."""
    return driver_of(connection).is_async


def is_known(connection: object) -> bool:
    """Returns whether `run_steps` accepts the object as a connection."""
    return _driver_class(type(connection)) is not None


def checked_table(name: str) -> str:
    """Returns the name if it is a plain table name, since it becomes part of SQL. Raises InvalidArgument."""
    if not _TABLE.fullmatch(name):
        raise InvalidArgument(f"a table must have a name such as `outbox` or `schema.outbox`, got {name!r}")
    return name


def create_if_missing(dialect: str, table: str, definitions: Mapping[str, tuple[str, ...]]) -> Steps[None]:
    """Steps that create the table if it is missing, by the SQL of `definitions` for the dialect.

    On PostgreSQL two that create it at once wait for each other. There its existence is checked first: CREATE
    … IF NOT EXISTS needs the right to create even if the table exists.
    """
    if dialect == POSTGRESQL:
        if (yield from table_exists(table)):
            return
        yield advisory_lock(table)
    for definition in definitions[dialect]:
        yield Statement(definition)


def table_exists(table: str) -> Steps[bool]:
    """Steps that return whether a table exists; for PostgreSQL only."""
    return (yield Statement("SELECT to_regclass(:name)", {"name": table})).rows[0][0] is not None


def advisory_lock(name: str) -> Statement:
    """Returns the PostgreSQL statement that takes the lock of that name, until the transaction ends."""
    return Statement("SELECT pg_advisory_xact_lock(hashtext(:name))", {"name": f"turbopump {name}"})


def driver_of(connection: Any) -> "_Driver":
    """Returns the adapter for a connection. Raises InvalidArgument for an unknown kind of connection."""
    found = _driver_class(type(connection))
    if found is None:
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
        raise InvalidArgument(
            "a connection must be one of sqlite3, psycopg (3 or 2), aiosqlite or Django, or a Connection or "
            f"Session of SQLAlchemy, got {kind}"
        )
    return found(connection)


def _driver_class(kind: type) -> "type[_Driver] | None":
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if package == "sqlalchemy":
            return _AsyncAlchemy if "asyncio" in base.__module__ else _Alchemy
        if package == "psycopg":
            return _AsyncPsycopg if base.__name__ == "AsyncConnection" else _Psycopg
        if package in _BY_PACKAGE:
            return _BY_PACKAGE[package]
    return None


def _run(driver: "_Driver", steps: Steps[T]) -> T:
    send: Callable[[Any], Statement | TransactionCommand] = steps.send
    value: Any = None
    while True:
        try:
            step = send(value)
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            value, send = driver.perform(step), steps.send
        except BaseException as error:
            value, send = error, steps.throw


async def _run_async(driver: "_Driver", steps: Steps[T]) -> T:
    send: Callable[[Any], Statement | TransactionCommand] = steps.send
    value: Any = None
    while True:
        try:
            step = send(value)
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            value, send = await driver.perform_async(step), steps.send
        except BaseException as error:
            value, send = error, steps.throw


class _Driver:
    """Adapter of one kind of connection: performs statements and transaction commands on it.

    `perform` is for blocking ones, `perform_async` for async ones.
    """

    is_async: ClassVar[bool] = False
    dialect: str

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def perform(self, step: Statement | TransactionCommand) -> StatementResult:
        raise NotImplementedError

    async def perform_async(self, step: Statement | TransactionCommand) -> StatementResult:
        raise NotImplementedError


class _Sqlite(_Driver):
    """Adapter of sqlite3 connections.

    Begins transactions with the write lock: one that only reads at first could not get it later.
    """

    dialect = SQLITE

    def perform(self, step: Statement | TransactionCommand) -> StatementResult:
        command = _sqlite_command(self.connection, step)
        if callable(command):
            command()
            return NOTHING
        if command is None:
            return NOTHING
        cursor = self.connection.cursor()
        cursor.row_factory = None  # the user's own could turn rows into anything
        try:
            cursor.execute(command.sql, command.parameters)
            return StatementResult(cursor.fetchall(), cursor.rowcount)
        finally:
            cursor.close()


class _AsyncSqlite(_Driver):
    """Adapter of aiosqlite connections."""

    is_async = True
    dialect = SQLITE

    async def perform_async(self, step: Statement | TransactionCommand) -> StatementResult:
        command = _sqlite_command(self.connection, step)
        if callable(command):
            await command()
            return NOTHING
        if command is None:
            return NOTHING
        async with self.connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(command.sql, command.parameters)
            return StatementResult(list(await cursor.fetchall()), cursor.rowcount)


def _sqlite_command(
    connection: Any, step: Statement | TransactionCommand
) -> Statement | Callable[[], Any] | None:
    """Returns how to perform a step: a statement to execute, a method to call, or None: nothing to do.

    Since Python 3.12 there are connections that end transactions by SQL alone (`autocommit=True`).
    """
    is_begun = connection.in_transaction
    commits_itself = getattr(connection, "autocommit", None) is True
    match step:
        case Statement():
            return step
        case TransactionCommand.BEGIN:
            return None if is_begun else Statement("BEGIN IMMEDIATE")
        case TransactionCommand.JOIN:
            if not is_begun and (commits_itself or connection.isolation_level is None):
                raise InvalidArgument(NO_TRANSACTION)
            return None
        case TransactionCommand.COMMIT:
            return Statement("COMMIT") if commits_itself else connection.commit
        case TransactionCommand.ROLLBACK if not is_begun:
            return None
        case TransactionCommand.ROLLBACK:
            return Statement("ROLLBACK") if commits_itself else connection.rollback


class _Psycopg(_Driver):
    """Adapter of connections of psycopg 3 and of psycopg2, which has the same names for what is used here."""

    dialect = POSTGRESQL

    def perform(self, step: Statement | TransactionCommand) -> StatementResult:
        command = self._command(step)
        if callable(command):
            command()
            return NOTHING
        if command is None:
            return NOTHING
        with self._cursor() as cursor:
            cursor.execute(_pyformat(command.sql), command.parameters)
            return StatementResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    def _cursor(self) -> Any:
        if type(self.connection).__module__.startswith("psycopg2"):
            from psycopg2.extensions import cursor  # type: ignore[import-untyped, unused-ignore]

            return self.connection.cursor(cursor_factory=cursor)
        return _plain_cursor(self.connection)

    def _command(self, step: Statement | TransactionCommand) -> Statement | Callable[[], Any] | None:
        """Returns how to perform a step: a statement to execute, a method to call, None: nothing to do.

        Where the connection commits each statement, BEGIN and COMMIT are statements.
        """
        connection = self.connection
        by_hand = connection.autocommit and (
            step in (TransactionCommand.COMMIT, TransactionCommand.ROLLBACK)
            or connection.info.transaction_status == _IDLE
        )
        match step:
            case Statement():
                return step
            case TransactionCommand.BEGIN:
                return Statement("BEGIN") if by_hand else None
            case TransactionCommand.JOIN:
                if by_hand:
                    raise InvalidArgument(NO_TRANSACTION)
                return None
            case TransactionCommand.COMMIT:
                return Statement("COMMIT") if by_hand else connection.commit
            case TransactionCommand.ROLLBACK:
                return Statement("ROLLBACK") if by_hand else connection.rollback


class _AsyncPsycopg(_Psycopg):
    """Adapter of psycopg's AsyncConnection."""

    is_async = True

    async def perform_async(self, step: Statement | TransactionCommand) -> StatementResult:
        command = self._command(step)
        if callable(command):
            await command()
            return NOTHING
        if command is None:
            return NOTHING
        async with _plain_cursor(self.connection) as cursor:
            await cursor.execute(_pyformat(command.sql), command.parameters)
            return StatementResult(await cursor.fetchall() if cursor.description else [], cursor.rowcount)


_IDLE = 0  # PQTRANS_IDLE of libpq


def _plain_cursor(connection: Any) -> Any:
    from psycopg.rows import tuple_row

    return connection.cursor(row_factory=tuple_row)


def _pyformat(sql: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", sql)


class _Alchemy(_Driver):
    """Adapter of a Connection or Session of SQLAlchemy.

    Statements go to the Session's connection, past its objects.
    """

    @property
    def dialect(self) -> str:  # type: ignore[override]
        return str(self._connection().dialect.name)

    def _connection(self) -> Any:
        return (
            self.connection if hasattr(self.connection, "exec_driver_sql") else self.connection.connection()
        )

    def perform(self, step: Statement | TransactionCommand) -> StatementResult:
        match step:
            case TransactionCommand.COMMIT:
                self.connection.commit()
            case TransactionCommand.ROLLBACK:
                self.connection.rollback()
            case TransactionCommand():
                connection = self._connection()
                if _must_begin(connection.dialect.name, connection.connection, step):
                    connection.exec_driver_sql(_BEGIN_IMMEDIATE)
            case Statement():
                result = self._connection().execute(*_alchemy(step))
                return StatementResult(result.all() if result.returns_rows else [], result.rowcount)
        return NOTHING


class _AsyncAlchemy(_Driver):
    """Adapter of an AsyncConnection or AsyncSession of SQLAlchemy."""

    is_async = True

    @property
    def dialect(self) -> str:  # type: ignore[override]
        inner = self.connection
        return str((inner if hasattr(inner, "exec_driver_sql") else inner.get_bind()).dialect.name)

    async def _connection(self) -> Any:
        inner = self.connection
        return inner if hasattr(inner, "exec_driver_sql") else await inner.connection()

    async def perform_async(self, step: Statement | TransactionCommand) -> StatementResult:
        match step:
            case TransactionCommand.COMMIT:
                await self.connection.commit()
            case TransactionCommand.ROLLBACK:
                await self.connection.rollback()
            case TransactionCommand():
                connection = await self._connection()
                pooled = await connection.get_raw_connection()
                if _must_begin(connection.dialect.name, pooled, step):
                    await connection.exec_driver_sql(_BEGIN_IMMEDIATE)
            case Statement():
                result = await (await self._connection()).execute(*_alchemy(step))
                return StatementResult(result.all() if result.returns_rows else [], result.rowcount)
        return NOTHING


class _Django(_Driver):
    """Adapter of `django.db.connection`, whose transactions are the blocks of `transaction.atomic()`."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        connection.ensure_connection()
        self._raw = driver_of(connection.connection)
        self.dialect = self._raw.dialect

    def perform(self, step: Statement | TransactionCommand) -> StatementResult:
        match step:
            case Statement():
                return self._raw.perform(step)
            case TransactionCommand.ROLLBACK:
                if self.connection.in_atomic_block:
                    self.connection.set_rollback(True)
            case TransactionCommand():
                if not self.connection.in_atomic_block:
                    raise InvalidArgument("with Django, call this inside `with transaction.atomic():`")
        return NOTHING


_BEGIN_IMMEDIATE = "BEGIN IMMEDIATE"


def _must_begin(dialect: str, pooled: Any, step: TransactionCommand) -> bool:
    """Returns whether to execute BEGIN IMMEDIATE. Raises InvalidArgument for autocommit or another database.

    SQLAlchemy begins by itself, but on SQLite only with the first write.
    """
    if dialect == SQLITE:
        return step is TransactionCommand.BEGIN and not pooled.driver_connection.in_transaction
    if dialect != POSTGRESQL:
        raise InvalidArgument(f"the database must be SQLite or PostgreSQL, got {dialect}")
    if getattr(pooled.dbapi_connection, "autocommit", False) is True:
        raise InvalidArgument(NO_TRANSACTION)
    return False


def _alchemy(statement: Statement) -> tuple[Any, ...]:
    from sqlalchemy import text

    return (
        text(statement.sql).execution_options(preserve_rowcount=True),
        dict(statement.parameters),
    )


NO_TRANSACTION = (
    "the connection commits every statement by itself, so what is written here would not be part of your "
    "transaction: begin a transaction first, or switch autocommit off"
)

_BY_PACKAGE: dict[str, type[_Driver]] = {
    "django": _Django,
    "sqlite3": _Sqlite,
    "aiosqlite": _AsyncSqlite,
    "psycopg2": _Psycopg,
}
