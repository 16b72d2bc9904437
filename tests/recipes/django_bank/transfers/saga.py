"""A saga whose steps work in Django's own database, and its coordinator, one for the whole process."""

import functools
from dataclasses import dataclass
from typing import Any

from django.db import connections

from turbopump.transactions import Coordinator, Declined, Saga


@dataclass(frozen=True)
class Transfer:
    id: str
    cents: int


def connect() -> Any:
    return connections["default"]  # of the thread in which the step runs: models use the same one


def add(connection: Any, account: str, cents: int) -> None:
    with connection.cursor() as cursor:
        sql = "UPDATE accounts SET cents = cents + %s WHERE id = %s AND cents + %s >= 0"
        cursor.execute(sql, [cents, account, cents])
        if cursor.rowcount != 1:
            raise Declined(f"account {account} cannot take part")


def take(connection: Any, order: Transfer) -> None:
    add(connection, "A", -order.cents)


def give_back(connection: Any, order: Transfer) -> None:
    add(connection, "A", order.cents)


def give(connection: Any, order: Transfer) -> None:
    add(connection, "B", order.cents)


def take_back(connection: Any, order: Transfer) -> None:
    add(connection, "B", -order.cents)


transfer = Saga[Transfer]("transfer", version=1)
transfer.step("debit", do=take, undo=give_back, connect=connect)
transfer.step("credit", do=give, undo=take_back, connect=connect)


@functools.cache
def bank() -> Coordinator:
    """The coordinator, made when the first view needs it: after the fork of a worker."""
    made = Coordinator("django-bank", participants=[transfer])
    made.start()  # finishes what was left behind; closed when the process ends
    return made
