"""Adapters of the drivers of PostgreSQL: psycopg 3, psycopg2 and asyncpg."""

from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database.dialects import POSTGRESQL, numbered, pyformat
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


class PsycopgDriver(PlanningDriver):
    """Adapter of connections of psycopg 3 and of psycopg2, which has the same names for what is used here."""

    dialect = POSTGRESQL

    def plan(self, step: Step) -> Plan:
        return _psycopg_plan(self.connection, step)

    def execute(self, statement: Statement) -> StatementResult:
        with self._cursor() as cursor:
            cursor.execute(pyformat(statement.sql), statement.parameters)
            return StatementResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    def _cursor(self) -> Any:
        if type(self.connection).__module__.startswith("psycopg2"):
            from psycopg2.extensions import cursor  # type: ignore[import-untyped, unused-ignore]

            return self.connection.cursor(cursor_factory=cursor)
        return _plain_cursor(self.connection)


class AsyncPsycopgDriver(AsyncPlanningDriver):
    """Adapter of psycopg's AsyncConnection."""

    dialect = POSTGRESQL

    def plan(self, step: Step) -> Plan:
        return _psycopg_plan(self.connection, step)

    async def execute(self, statement: Statement) -> StatementResult:
        async with _plain_cursor(self.connection) as cursor:
            await cursor.execute(pyformat(statement.sql), statement.parameters)
            return StatementResult(await cursor.fetchall() if cursor.description else [], cursor.rowcount)


class AsyncpgDriver(AsyncPlanningDriver):
    """Adapter of connections of asyncpg, which commits each statement unless a transaction was begun."""

    dialect = POSTGRESQL

    def plan(self, step: Step) -> Plan:
        is_begun = self.connection.is_in_transaction()
        match step:
            case Statement():
                return step
            case TransactionCommand.BEGIN:
                return None if is_begun else Statement("BEGIN")
            case TransactionCommand.JOIN:
                if not is_begun:
                    raise InvalidArgument(NO_TRANSACTION)
                return None
            case TransactionCommand.COMMIT:
                return Statement("COMMIT") if is_begun else None
            case TransactionCommand.ROLLBACK:
                return Statement("ROLLBACK") if is_begun else None

    async def execute(self, statement: Statement) -> StatementResult:
        names = list(statement.parameters)
        sql, values = numbered(statement.sql, names), [statement.parameters[name] for name in names]
        if sql.startswith("SELECT"):
            rows = await self.connection.fetch(sql, *values)
            return StatementResult([tuple(row) for row in rows], len(rows))
        tag = await self.connection.execute(sql, *values)
        count = tag.rpartition(" ")[2]
        return StatementResult([], int(count) if count.isdecimal() else 0)


_IDLE = 0  # PQTRANS_IDLE of libpq


def _psycopg_plan(connection: Any, step: Step) -> Plan:
    """Returns how to perform a step.

    Where the connection commits each statement, BEGIN and COMMIT are statements.
    """
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


def _plain_cursor(connection: Any) -> Any:
    from psycopg.rows import tuple_row

    return connection.cursor(row_factory=tuple_row)
