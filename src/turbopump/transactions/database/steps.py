"""Runs steps on a connection: work that is written once, for blocking and async connections."""

import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar, overload

from turbopump.transactions.database.connection_kinds import driver_of
from turbopump.transactions.database.driver import (
    NOTHING,
    AsyncConnection,
    BlockingConnection,
    Driver,
    Statement,
    StatementResult,
    TransactionCommand,
)

__all__ = [
    "NOTHING",
    "DialectSteps",
    "Statement",
    "StatementResult",
    "Steps",
    "TransactionCommand",
    "in_transaction",
    "rollback",
    "run_steps",
]

T = TypeVar("T")
log = logging.getLogger(__name__)

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


def _begin(dialect: str) -> Steps[None]:
    yield TransactionCommand.BEGIN


def in_transaction(written: DialectSteps[T], begin: DialectSteps[None] = _begin) -> DialectSteps[T]:
    """Returns the steps with BEGIN before and COMMIT after them; an error rolls back and is raised.

    `begin` are steps that begin the transaction, and do what must be done just before or after that.
    """

    def whole(dialect: str) -> Steps[T]:
        try:
            yield from begin(dialect)
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


def _run(driver: Driver, steps: Steps[T]) -> T:
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


async def _run_async(driver: Driver, steps: Steps[T]) -> T:
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
