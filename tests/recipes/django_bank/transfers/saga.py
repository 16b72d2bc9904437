"""A saga whose steps work in Django's own database, and its coordinator, one for the whole process."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from turbopump.transactions import Coordinator, Declined, Saga


@dataclass(frozen=True)
class Transfer:
    id: str
    cents: int


@contextmanager
def connect() -> Iterator[Any]:
    """The connection of the thread in which a step runs, in a transaction: models use the same one."""
    try:
        with transaction.atomic():
            yield connection
    finally:
        connection.close()  # no request ends in this thread, which would do that


def add(database: Any, account: str, cents: int) -> None:
    with database.cursor() as cursor:
        sql = "UPDATE accounts SET cents = cents + %s WHERE id = %s AND cents + %s >= 0"
        cursor.execute(sql, [cents, account, cents])
        if cursor.rowcount != 1:
            raise Declined(f"account {account} cannot take part")


def take(database: Any, order: Transfer) -> None:
    add(database, "A", -order.cents)


def give_back(database: Any, order: Transfer) -> None:
    add(database, "A", order.cents)


def give(database: Any, order: Transfer) -> None:
    add(database, "B", order.cents)


def take_back(database: Any, order: Transfer) -> None:
    add(database, "B", -order.cents)


transfer = Saga[Transfer]("transfer", version=1)
transfer.step("debit", do=take, undo=give_back, connect=connect)
transfer.step("credit", do=give, undo=take_back, connect=connect)


@functools.cache
def bank() -> Coordinator:
    """The coordinator, made when the first view needs it: after the fork of a worker."""
    made = Coordinator("django-bank", participants=[transfer])
    made.start()  # finishes what was left behind; closed when the process ends
    return made
