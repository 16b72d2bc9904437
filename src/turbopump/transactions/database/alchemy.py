"""Adapters of SQLAlchemy's connections and sessions, whatever database and driver is below.

Statements go to a Session's connection, past its objects. SQLAlchemy begins transactions by itself, but on
SQLite only with the first write.
"""

from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database.dialects import ALCHEMY_NAMES, MARIADB, SQLITE
from turbopump.transactions.database.driver import (
    NO_TRANSACTION,
    NOTHING,
    Driver,
    Statement,
    StatementResult,
    Step,
    TransactionCommand,
)
from turbopump.transactions.database.mariadb import is_begun, with_hex_bytes
from turbopump.transactions.database.sqlite import BEGIN_IMMEDIATE


class AlchemyDriver(Driver):
    """Adapter of a Connection or Session of SQLAlchemy."""

    @property
    def dialect(self) -> str:  # type: ignore[override]
        return dialect_of(self._connection())

    def _connection(self) -> Any:
        inner = self.connection
        return inner if hasattr(inner, "exec_driver_sql") else inner.connection()

    def perform(self, step: Step) -> StatementResult:
        match step:
            case TransactionCommand.COMMIT:
                self.connection.commit()
            case TransactionCommand.ROLLBACK:
                self.connection.rollback()
            case TransactionCommand():
                connection = self._connection()
                if _must_begin(dialect_of(connection), connection.connection, step):
                    connection.exec_driver_sql(BEGIN_IMMEDIATE)
            case Statement():
                result = self._connection().execute(*_alchemy(step))
                return StatementResult(result.all() if result.returns_rows else [], result.rowcount)
        return NOTHING


class AsyncAlchemyDriver(Driver):
    """Adapter of an AsyncConnection or AsyncSession of SQLAlchemy."""

    is_async = True

    @property
    def dialect(self) -> str:  # type: ignore[override]
        inner = self.connection
        return dialect_of(inner if hasattr(inner, "exec_driver_sql") else inner.get_bind())

    async def _connection(self) -> Any:
        inner = self.connection
        return inner if hasattr(inner, "exec_driver_sql") else await inner.connection()

    async def perform_async(self, step: Step) -> StatementResult:
        match step:
            case TransactionCommand.COMMIT:
                await self.connection.commit()
            case TransactionCommand.ROLLBACK:
                await self.connection.rollback()
            case TransactionCommand():
                connection = await self._connection()
                pooled = await connection.get_raw_connection()
                if _must_begin(dialect_of(connection), pooled, step):
                    await connection.exec_driver_sql(BEGIN_IMMEDIATE)
            case Statement():
                connection = await self._connection()
                if connection.dialect.driver == "aiomysql":
                    step = with_hex_bytes(step)
                result = await connection.execute(*_alchemy(step))
                return StatementResult(result.all() if result.returns_rows else [], result.rowcount)
        return NOTHING


def dialect_of(bound: Any) -> str:
    """Returns our name of the dialect of an Engine or a connection. Raises InvalidArgument for others."""
    name = str(bound.dialect.name)
    if name not in ALCHEMY_NAMES:
        raise InvalidArgument(f"the database must be SQLite, PostgreSQL, MariaDB or MySQL, got {name}")
    return ALCHEMY_NAMES[name]


def _must_begin(dialect: str, pooled: Any, step: TransactionCommand) -> bool:
    """Returns whether to execute BEGIN IMMEDIATE. Raises InvalidArgument for a connection in autocommit."""
    if dialect == SQLITE:
        return step is TransactionCommand.BEGIN and not pooled.driver_connection.in_transaction
    if dialect == MARIADB:
        raw = pooled.driver_connection
        commits_itself = raw.get_autocommit() and not is_begun(raw)
    else:
        commits_itself = getattr(pooled.dbapi_connection, "autocommit", False) is True
    if commits_itself:
        raise InvalidArgument(NO_TRANSACTION)
    return False


def _alchemy(statement: Statement) -> tuple[Any, ...]:
    from sqlalchemy import text

    return (
        text(statement.sql).execution_options(preserve_rowcount=True),
        dict(statement.parameters),
    )
