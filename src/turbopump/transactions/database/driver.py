"""What is common to the adapters of connections: the interface, and what a step is.

An adapter says in `plan` what a step means for its connection; whether that is carried out at once or awaited
is the same for all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, Protocol


class BlockingConnection(Protocol):
    """A blocking connection of sqlite3, psycopg, psycopg2, PyMySQL, Django or SQLAlchemy, or its Session."""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class AsyncConnection(Protocol):
    """An async connection of psycopg, aiosqlite, asyncmy or aiomysql, or one or a session of SQLAlchemy."""

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

Step = Statement | TransactionCommand
Plan = Statement | Callable[[], Any] | None
"""How to perform a step: a statement to execute, a method to call, or None: nothing to do."""

NO_TRANSACTION = (
    "the connection commits every statement by itself, so what is written here would not be part of your "
    "transaction: begin a transaction first, or switch autocommit off"
)


class Driver:
    """Adapter of one kind of connection: performs statements and transaction commands on it.

    `perform` is for blocking ones, `perform_async` for async ones.
    """

    is_async: ClassVar[bool] = False
    dialect: str

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def perform(self, step: Step) -> StatementResult:
        raise NotImplementedError

    async def perform_async(self, step: Step) -> StatementResult:
        raise NotImplementedError


class PlanningDriver(Driver):
    """Adapter of a blocking connection that says in `plan` what a step is for it."""

    def plan(self, step: Step) -> Plan:
        raise NotImplementedError

    def execute(self, statement: Statement) -> StatementResult:
        raise NotImplementedError

    def perform(self, step: Step) -> StatementResult:
        plan = self.plan(step)
        if isinstance(plan, Statement):
            return self.execute(plan)
        if plan is not None:
            plan()
        return NOTHING


class AsyncPlanningDriver(Driver):
    """Adapter of an async connection that says in `plan` what a step is for it."""

    is_async = True

    def plan(self, step: Step) -> Plan:
        raise NotImplementedError

    async def execute(self, statement: Statement) -> StatementResult:
        raise NotImplementedError

    async def perform_async(self, step: Step) -> StatementResult:
        plan = self.plan(step)
        if isinstance(plan, Statement):
            return await self.execute(plan)
        if plan is not None:
            await plan()
        return NOTHING
