"""Adapters of the drivers of SQLite: sqlite3 and aiosqlite.

They begin transactions with the write lock: one that only reads at first could not get it later.
"""

from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database.dialects import SQLITE
from turbopump.transactions.database.driver import (
    NO_TRANSACTION,
    AsyncPlanningDriver,
    Plan,
    PlanningDriver,
    Statement,
    StatementResult,
    Step,
    TransactionCommand,
)

BEGIN_IMMEDIATE = "BEGIN IMMEDIATE"


class SqliteDriver(PlanningDriver):
    """Adapter of sqlite3 connections."""

    dialect = SQLITE

    def plan(self, step: Step) -> Plan:
        return _plan(self.connection, step)

    def execute(self, statement: Statement) -> StatementResult:
        cursor = self.connection.cursor()
        cursor.row_factory = None  # the user's own could turn rows into anything
        try:
            cursor.execute(statement.sql, statement.parameters)
            return StatementResult(cursor.fetchall(), cursor.rowcount)
        finally:
            cursor.close()


class AiosqliteDriver(AsyncPlanningDriver):
    """Adapter of aiosqlite connections."""

    dialect = SQLITE

    def plan(self, step: Step) -> Plan:
        return _plan(self.connection, step)

    async def execute(self, statement: Statement) -> StatementResult:
        async with self.connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(statement.sql, statement.parameters)
            return StatementResult(list(await cursor.fetchall()), cursor.rowcount)


def _plan(connection: Any, step: Step) -> Plan:
    """Returns how to perform a step.

    Since Python 3.12 there are connections that end transactions by SQL alone (`autocommit=True`).
    """
    is_begun = connection.in_transaction
    commits_itself = getattr(connection, "autocommit", None) is True
    match step:
        case Statement():
            return step
        case TransactionCommand.BEGIN:
            return None if is_begun else Statement(BEGIN_IMMEDIATE)
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
