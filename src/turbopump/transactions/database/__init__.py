"""One interface to a user's database: SQLite, PostgreSQL, MariaDB, MySQL, by drivers blocking or async.

Work is written once, as `Steps`: a generator that yields statements and transaction commands, and is sent
their results. `run_steps(connection, steps)` runs it on whatever connection the user has; on an async one it
returns an awaitable. Drivers are recognised by the module of their class: none is imported.

`steps.py` runs steps, `dialects.py` has what differs in SQL, `tables.py` creates tables; each of the others
adapts the drivers of one database, or of one library above them.
"""

from turbopump.transactions.database.connection_kinds import driver_of, is_async, is_known
from turbopump.transactions.database.dialects import (
    DIALECTS,
    MARIADB,
    MARIADB_TABLE,
    POSTGRESQL,
    SQLITE,
    checked_table,
    checked_word,
    insert_if_absent,
    is_plain,
)
from turbopump.transactions.database.driver import (
    NO_TRANSACTION,
    AsyncConnection,
    BlockingConnection,
)
from turbopump.transactions.database.steps import (
    NOTHING,
    DialectSteps,
    Statement,
    StatementResult,
    Steps,
    TransactionCommand,
    in_transaction,
    rollback,
    run_steps,
)
from turbopump.transactions.database.tables import (
    TableDefinitions,
    advisory_lock,
    begin_with_table,
    create_if_missing,
    create_table_steps,
    table_exists,
)

__all__ = [
    "DIALECTS",
    "MARIADB",
    "MARIADB_TABLE",
    "NOTHING",
    "NO_TRANSACTION",
    "POSTGRESQL",
    "SQLITE",
    "AsyncConnection",
    "BlockingConnection",
    "DialectSteps",
    "Statement",
    "StatementResult",
    "Steps",
    "TableDefinitions",
    "TransactionCommand",
    "advisory_lock",
    "begin_with_table",
    "checked_table",
    "checked_word",
    "create_if_missing",
    "create_table_steps",
    "driver_of",
    "in_transaction",
    "insert_if_absent",
    "is_async",
    "is_known",
    "is_plain",
    "rollback",
    "run_steps",
    "table_exists",
]
