"""A program over global transactions that a type checker reads: right, but for the lines marked as wrong."""

import sqlite3
from dataclasses import dataclass

from turbopump.transactions import Coordinator, Retry, Saga, Tcc
from turbopump.transactions.aio import Coordinator as AsyncCoordinator


@dataclass(frozen=True)
class Transfer:
    id: str
    cents: int


def connect() -> sqlite3.Connection:
    return sqlite3.connect("bank.db")


def take(connection: sqlite3.Connection, order: Transfer) -> int:
    return order.cents


def give_back(connection: sqlite3.Connection, order: Transfer, taken: int) -> None: ...


def of_another_type(connection: sqlite3.Connection, order: str) -> None: ...


debit = Tcc[Transfer]("debit", connect=connect)
debit.try_(take)
debit.try_(of_another_type)  # wrong: it takes text, not a Transfer

transfer = Saga[Transfer]("transfer", version=1)
transfer.step("debit", do=take, undo=give_back, connect=connect, retry=Retry(attempts=5))
transfer.step("credit", do=of_another_type)  # wrong: it takes text, not a Transfer

order = Transfer("1", 10)


def blocking(bank: Coordinator) -> int:
    with bank.xa("icbc", timeout=10) as t:
        t["icbc"].execute("UPDATE …")
    with bank.tcc() as tcc:
        tcc.call(debit, order)
        tcc.call(debit, "1")  # wrong: it is no Transfer
    bank.run(transfer, 10)  # wrong: it is no Transfer
    bank.xa(protocol="4pc")  # wrong: there is no such protocol
    return len(bank.run(transfer, order, gid="order-1").results)


async def awaited(bank: AsyncCoordinator) -> int:
    async with bank.xa() as t:
        await t["icbc"].execute("UPDATE …")
    async with bank.tcc() as tcc:
        await tcc.call(debit, order)
    return bank.run(transfer, order)  # wrong: it is not awaited
