"""The program that opens a global transaction (TM), in a process of its own that dies where a test says.

It stops at a named point, tells the test, and goes on when it is told to, or never. Two accounts, A at icbc
(PostgreSQL) and B at ccb (MariaDB), and a message to the topic `Transferred` with the gid as its body.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from turbopump.client.message import Message
from turbopump.protocol.errors import Refused
from turbopump.transactions.aio import (
    Aborted,
    Coordinator,
    Declined,
    InDoubt,
    Retry,
    Saga,
    Tcc,
    XaResource,
)
from turbopump.transactions.distributed import journal
from turbopump.transactions.distributed.gids import Xid

CENTS = 10
LOCK_TIMEOUT_S = 3
TOPIC = "Transferred"
XA_POINTS = (
    "begun",
    "icbc worked",
    "ccb worked",
    "sent",
    "icbc prepared",
    "ccb prepared",
    "decided",
    "icbc committed",
    "ccb committed",
)


@dataclass(frozen=True)
class Bank:
    """Where everything is; sent to the processes that are TMs."""

    namesrv: str
    postgres: str
    mariadb: dict[str, Any]
    lease_ms: int = 1500
    timeout_s: float = 6.0

    def icbc(self) -> Any:
        import psycopg

        connection = psycopg.connect(self.postgres, connect_timeout=5)
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'")
        connection.commit()
        return connection

    def ccb(self) -> Any:
        import pymysql

        return pymysql.connect(
            **self.mariadb,
            connect_timeout=5,
            init_command=f"SET innodb_lock_wait_timeout = {LOCK_TIMEOUT_S}",
        )

    def resources(self) -> dict[str, Any]:
        return {"icbc": self.icbc, "ccb": self.ccb}


class Points:
    """Tells the test where this process is, and waits to be told to go on."""

    def __init__(self, pipe: Connection, stops_at: str) -> None:
        self._pipe = pipe
        self._stops_at = stops_at

    async def at(self, name: str) -> None:
        if name == self._stops_at:
            self._pipe.send(("at", name))
            await asyncio.to_thread(self._pipe.recv)


class PointedResource(XaResource):
    """A resource whose branches stop after each phase; one branch after the other."""

    def __init__(self, name: str, connect: Any, points: Points, turn: asyncio.Lock) -> None:
        super().__init__(name, connect)
        self._points = points
        self._turn = turn

    async def begin(self, xid: Xid) -> Any:
        branch = await super().begin(xid)
        prepare, commit = branch.prepare, branch.commit

        async def prepared() -> Any:
            async with self._turn:
                vote = await prepare()
                await self._points.at(f"{self.name} prepared")
                return vote

        async def committed() -> None:
            async with self._turn:
                await commit()
                await self._points.at(f"{self.name} committed")

        branch.prepare, branch.commit = prepared, committed  # type: ignore[method-assign]
        return branch


def xa(bank: Bank, stops_at: str, pipe: Connection) -> None:
    """Transfers CENTS from A to B by XA, and tells how that ended."""
    journal._LEASE_MS = bank.lease_ms
    pipe.send(("end", *asyncio.run(_xa(bank, Points(pipe, stops_at)))))


async def _xa(bank: Bank, points: Points) -> tuple[str, str, str]:
    turn = asyncio.Lock()
    resources = {
        name: PointedResource(name, connect, points, turn) for name, connect in bank.resources().items()
    }
    coordinator = Coordinator("bank", name_servers=bank.namesrv, resources=resources)
    _stop_after_the_decision(coordinator, points)
    gid = ""
    try:
        async with coordinator.xa(timeout=bank.timeout_s) as t:
            gid = t.gid
            await points.at("begun")
            await asyncio.to_thread(
                work, t["icbc"], f"UPDATE accounts SET cents = cents - {CENTS} WHERE id = 'A'"
            )
            await points.at("icbc worked")
            await asyncio.to_thread(
                work, t["ccb"], f"UPDATE accounts SET cents = cents + {CENTS} WHERE id = 'B'"
            )
            await points.at("ccb worked")
            await t.send(Message(TOPIC, gid.encode()))
            await points.at("sent")
        return "committed", gid, ""
    except InDoubt:
        return "in doubt", gid, ""
    except Aborted as error:
        return "aborted", gid, error.reason
    except Exception as error:
        return "failed", gid, f"{type(error).__name__}: {error}"
    finally:
        await coordinator.close()


def work(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def _stop_after_the_decision(coordinator: Coordinator, points: Points) -> None:
    decide = coordinator.journal.decide

    async def decided(*given: Any, **more: Any) -> Any:
        found = await decide(*given, **more)
        await points.at("decided")
        return found

    coordinator.journal.decide = decided  # type: ignore[method-assign]


@dataclass(frozen=True)
class Transfer:
    cents: int


def transfer_saga(bank: Bank, name: str = "transfer") -> Saga[Transfer]:
    """Takes from A, and gives to B; 0 cents are refused at ccb, so that A is compensated."""

    def add(connection: Any, account: str, cents: int) -> None:
        work(connection, f"UPDATE accounts SET cents = cents + {cents} WHERE id = '{account}'")

    def take(connection: Any, order: Transfer) -> None:
        add(connection, "A", -order.cents)

    def give_back(connection: Any, order: Transfer) -> None:
        add(connection, "A", order.cents)

    def give(connection: Any, order: Transfer) -> None:
        if order.cents % 2:
            raise Declined("no odd amounts")
        add(connection, "B", order.cents)

    def take_back(connection: Any, order: Transfer) -> None:
        add(connection, "B", -order.cents)

    saga = Saga[Transfer](name)
    retry = Retry(attempts=20, first=0.1, longest=1.0)
    saga.step("debit", do=take, undo=give_back, connect=bank.icbc, retry=retry)
    saga.step("credit", do=give, undo=take_back, connect=bank.ccb, retry=retry)
    return saga


def saga(bank: Bank, stops_at: str, cents: int, gid: str, pipe: Connection) -> None:
    """Runs the saga; its points are before and after each record of the journal, by number."""
    journal._LEASE_MS = bank.lease_ms
    pipe.send(("end", *asyncio.run(_saga(bank, Points(pipe, stops_at), cents, gid))))


async def _saga(bank: Bank, points: Points, cents: int, gid: str) -> tuple[str, str, str]:
    coordinator = Coordinator("bank", name_servers=bank.namesrv)
    made = 0

    def pointed(call: Any) -> Any:
        async def with_points(*given: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            number = made
            await points.at(f"before record {number}")
            result = await call(*given, **more)
            await points.at(f"after record {number}")
            return result

        return with_points

    book = coordinator.journal
    book.open, book.append, book.decide = (  # type: ignore[method-assign]
        pointed(book.open),
        pointed(book.append),
        pointed(book.decide),
    )
    try:
        await coordinator.run(transfer_saga(bank), Transfer(cents), gid=gid)
        return "committed", gid, str(made)
    except Aborted:
        await coordinator._tasks.wait()  # the compensations
        return "aborted", gid, str(made)
    except Exception as error:
        return "failed", gid, f"{type(error).__name__}: {error}"
    finally:
        await coordinator.close()


# many transfers of every kind


def transfer_tcc(bank: Bank) -> tuple[Tcc[Transfer], Tcc[Transfer]]:
    """Reserves at A and at B, and moves what is reserved."""

    def made(name: str, connect: Any, account: str, sign: int) -> Tcc[Transfer]:
        one = Tcc[Transfer](name, connect=connect)
        of = f"WHERE id = '{account}'"

        @one.try_
        def reserve(connection: Any, order: Transfer) -> None:
            work(connection, f"UPDATE accounts SET frozen = frozen + {order.cents} {of}")

        @one.confirm
        def move(connection: Any, order: Transfer) -> None:
            work(
                connection,
                f"UPDATE accounts SET frozen = frozen - {order.cents}, "
                f"cents = cents + {sign * order.cents} {of}",
            )

        @one.cancel
        def release(connection: Any, order: Transfer) -> None:
            work(connection, f"UPDATE accounts SET frozen = frozen - {order.cents} {of}")

        return one

    return made("freeze", bank.icbc, "A", -1), made("expect", bank.ccb, "B", 1)


def many(bank: Bank, number: int, kinds: tuple[str, ...], pipe: Connection) -> None:
    """Makes one transfer of each of these kinds, after another, and tells each; recovers beside that."""
    asyncio.run(_many(bank, number, kinds, pipe))


async def _many(bank: Bank, number: int, kinds: tuple[str, ...], pipe: Connection) -> None:
    resources = {
        name: XaResource(name, connect, lock_timeout_s=LOCK_TIMEOUT_S)
        for name, connect in bank.resources().items()
    }
    saga, tcc = transfer_saga(bank), transfer_tcc(bank)
    coordinator = Coordinator(
        "bank", name_servers=bank.namesrv, resources=resources, participants=[saga, *tcc]
    )
    recovery = coordinator._recovery
    recovery.claim_interval_s, recovery.sweep_interval_s, recovery.prepared_age_s = 1.0, 1.0, 2.0
    while True:
        try:
            await coordinator.start()
            break
        except (OSError, Refused):
            await asyncio.sleep(0.2)
    for kind in kinds:
        try:
            await asyncio.wait_for(_transfer(coordinator, kind, saga, tcc), 20.0)
            outcome = "committed"
        except (Aborted, InDoubt, TimeoutError) as error:
            outcome = type(error).__name__
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
            await asyncio.sleep(0.1)
        pipe.send((kind, outcome))
    pipe.recv()  # recovers until it is told to end
    await coordinator.close()


async def _transfer(
    coordinator: Coordinator, kind: str, saga: Saga[Transfer], tcc: tuple[Tcc[Transfer], Tcc[Transfer]]
) -> None:
    match kind:
        case "xa":
            async with coordinator.xa(timeout=10) as t:
                for name, change in (
                    ("icbc", f"- {CENTS} WHERE id = 'A'"),
                    ("ccb", f"+ {CENTS} WHERE id = 'B'"),
                ):
                    await asyncio.to_thread(work, t[name], f"UPDATE accounts SET cents = cents {change}")
                await t.send(Message(TOPIC, t.gid.encode()))
        case "tcc":
            async with coordinator.tcc(timeout=10) as t:
                for one in tcc:
                    await t.call(one, Transfer(CENTS))
        case "saga":
            await coordinator.run(saga, Transfer(CENTS), timeout=20)
