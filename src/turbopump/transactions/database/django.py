"""Adapter of `django.db.connection`, whose transactions are the blocks of `transaction.atomic()`."""

from collections.abc import Callable
from typing import Any

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database.driver import (
    NOTHING,
    Driver,
    Statement,
    StatementResult,
    Step,
    TransactionCommand,
)


class DjangoDriver(Driver):
    """Adapter of a DatabaseWrapper of Django; statements go to the driver's connection below it."""

    def __init__(self, connection: Any, driver_of: Callable[[Any], Driver]) -> None:
        super().__init__(connection)
        connection.ensure_connection()
        self._raw = driver_of(connection.connection)
        self.dialect = self._raw.dialect

    def perform(self, step: Step) -> StatementResult:
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
