"""Adapters of the drivers of MariaDB and MySQL: PyMySQL, asyncmy and aiomysql.

By default these drivers switch autocommit off: a transaction begins with the first statement.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database.dialects import MARIADB, pyformat
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

SERVER_STATUS_IN_TRANS = 1  # of the protocol


class PyMySQLDriver(PlanningDriver):
    """Adapter of PyMySQL's connections."""

    dialect = MARIADB

    def plan(self, step: Step) -> Plan:
        return _plan(self.connection, step)

    def execute(self, statement: Statement) -> StatementResult:
        from pymysql.cursors import Cursor

        with self.connection.cursor(Cursor) as cursor:
            cursor.execute(pyformat(statement.sql), statement.parameters or None)
            return StatementResult(list(cursor.fetchall()), cursor.rowcount)


class AsyncmyDriver(AsyncPlanningDriver):
    """Adapter of the connections of asyncmy and of aiomysql, which have the same names."""

    dialect = MARIADB

    def plan(self, step: Step) -> Plan:
        return _plan(self.connection, step)

    async def execute(self, statement: Statement) -> StatementResult:
        package = type(self.connection).__module__.partition(".")[0]
        async with self.connection.cursor(cursor_class(package)) as cursor:
            if package == "aiomysql":
                statement = with_hex_bytes(statement)
            await cursor.execute(pyformat(statement.sql), statement.parameters or None)
            rows = await cursor.fetchall() if cursor.description else []
            return StatementResult(list(rows), cursor.rowcount)


@cache
def cursor_class(package: str) -> Any:
    """Returns a cursor of tuples that does not ask for the warning of each INSERT IGNORE, to log it."""
    of_the_driver: Any = getattr(import_module(f"{package}.cursors"), "Cursor")  # noqa: B009

    class QuietCursor(of_the_driver):  # type: ignore[misc, unused-ignore]
        async def _show_warnings(self, connection: Any) -> None:
            return

    return QuietCursor


def with_hex_bytes(statement: Statement) -> Statement:
    """Returns the statement with its bytes in the SQL: aiomysql 0.3 fails at them with PyMySQL 1.2."""
    sql, parameters = statement.sql, dict(statement.parameters)
    for name, value in statement.parameters.items():
        if isinstance(value, bytes):
            sql = re.sub(rf":{name}\b", f"X'{value.hex()}'", sql)
            del parameters[name]
    return Statement(sql, parameters)


def is_begun(connection: Any) -> bool:
    """Returns whether the connection is in a transaction, as the server said in its last answer."""
    return bool(connection.server_status & SERVER_STATUS_IN_TRANS)


def _plan(connection: Any, step: Step) -> Plan:
    commit: Callable[[], Any] = connection.commit
    rollback: Callable[[], Any] = connection.rollback
    by_hand = connection.get_autocommit() and not is_begun(connection)
    match step:
        case Statement():
            return step
        case TransactionCommand.BEGIN:
            return Statement("START TRANSACTION") if by_hand else None
        case TransactionCommand.JOIN:
            if by_hand:
                raise InvalidArgument(NO_TRANSACTION)
            return None
        case TransactionCommand.COMMIT:
            return commit
        case TransactionCommand.ROLLBACK:
            return rollback
