"""Creates the tables that the patterns need, when they are missing.

On SQLite and PostgreSQL that is part of the transaction. On MariaDB CREATE TABLE commits the transaction
around it, so there it is done before one begins, and refused inside of one that has done something already.
"""

from collections.abc import Mapping

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database.dialects import MARIADB, POSTGRESQL, SQLITE
from turbopump.transactions.database.driver import Statement, TransactionCommand
from turbopump.transactions.database.steps import DialectSteps, Steps, in_transaction

TableDefinitions = Mapping[str, tuple[str, ...]]
"""The SQL statements that create a table and what belongs to it, by dialect."""


def begin_with_table(
    dialect: str, command: TransactionCommand, table: str, definitions: TableDefinitions
) -> Steps[None]:
    """Steps that begin or join a transaction in which the table exists."""
    if dialect != MARIADB:
        yield command
        yield from create_if_missing(dialect, table, definitions)
    elif command is TransactionCommand.BEGIN:
        yield from create_if_missing(dialect, table, definitions)
        yield command
    else:
        yield command  # refused outside of a transaction, before anything is created
        yield from create_if_missing(dialect, table, definitions)


def create_table_steps(table: str, definitions: TableDefinitions) -> DialectSteps[None]:
    """Returns steps that create the table if it is missing, in a transaction of its own."""

    def begin(dialect: str) -> Steps[None]:
        return begin_with_table(dialect, TransactionCommand.BEGIN, table, definitions)

    return in_transaction(_nothing, begin)


def _nothing(dialect: str) -> Steps[None]:
    yield from ()


def create_if_missing(dialect: str, table: str, definitions: TableDefinitions) -> Steps[None]:
    """Steps that create the table if it is missing, by the SQL of `definitions` for the dialect.

    On PostgreSQL two that create it at once wait for each other. There its existence is checked first: CREATE
    … IF NOT EXISTS needs the right to create even if the table exists. On MariaDB it raises InvalidArgument
    where it would commit something.
    """
    if dialect != SQLITE and (yield from table_exists(dialect, table)):
        return
    if dialect == POSTGRESQL:
        yield advisory_lock(table)
    if dialect == MARIADB:
        yield from _refuse_commit(table)
    for definition in definitions[dialect]:
        yield Statement(definition)


def table_exists(dialect: str, table: str) -> Steps[bool]:
    """Steps that return whether a table exists; for PostgreSQL and MariaDB."""
    if dialect == POSTGRESQL:
        return (yield Statement("SELECT to_regclass(:name)", {"name": table})).rows[0][0] is not None
    schema, _, name = table.rpartition(".")
    where = ":schema" if schema else "DATABASE()"
    select = f"SELECT 1 FROM information_schema.tables WHERE table_schema = {where} AND table_name = :name"
    parameters = {"schema": schema, "name": name} if schema else {"name": name}
    return bool((yield Statement(select, parameters)).rows)


def advisory_lock(name: str) -> Statement:
    """Returns the PostgreSQL statement that takes the lock of that name, until the transaction ends."""
    return Statement("SELECT pg_advisory_xact_lock(hashtext(:name))", {"name": f"turbopump {name}"})


def _refuse_commit(table: str) -> Steps[None]:
    """Raises InvalidArgument if the connection is in a transaction, which creating a table would commit."""
    try:
        rows = (yield Statement("SELECT @@in_transaction")).rows
    except Exception:  # MySQL has no such variable
        rows = [(1,)]
    if rows[0][0]:
        raise InvalidArgument(
            f"table {table} is missing, and MariaDB would commit your transaction to create it: create it "
            "once before, with `create_table(connection)`"
        )
