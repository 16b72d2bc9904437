"""FastAPI: a coordinator lives as long as the application does. Name servers come from NAMESRV_ADDR."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from turbopump.transactions.aio import Aborted, Coordinator, Declined, InDoubt, Saga


class Transfer(BaseModel):
    id: str
    cents: int


def connect() -> sqlite3.Connection:
    return sqlite3.connect(os.environ["BANK_DB"], timeout=20)


def add(connection: sqlite3.Connection, account: str, cents: int) -> None:
    sql = "UPDATE accounts SET cents = cents + ? WHERE id = ? AND cents + ? >= 0"
    if connection.execute(sql, (cents, account, cents)).rowcount != 1:
        raise Declined(f"account {account} cannot take part")


def take(connection: sqlite3.Connection, order: Transfer) -> None:
    add(connection, "A", -order.cents)


def give_back(connection: sqlite3.Connection, order: Transfer) -> None:
    add(connection, "A", order.cents)


def give(connection: sqlite3.Connection, order: Transfer) -> None:
    add(connection, "B", order.cents)


def take_back(connection: sqlite3.Connection, order: Transfer) -> None:
    add(connection, "B", -order.cents)


transfer = Saga[Transfer]("transfer", version=1)
transfer.step("debit", do=take, undo=give_back, connect=connect)
transfer.step("credit", do=give, undo=take_back, connect=connect)
bank = Coordinator("bank", participants=[transfer])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with bank:  # finishes what a process that died has left behind
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/transfers")
async def move(order: Transfer) -> dict[str, str]:
    try:
        outcome = await bank.run(transfer, order, gid=f"order-{order.id}", timeout=10)
    except Aborted as no:
        raise HTTPException(409, no.reason) from no
    except InDoubt as unknown:  # it goes on: the same order asks for the same saga
        raise HTTPException(202, str(unknown)) from unknown
    return {"gid": outcome.gid}
