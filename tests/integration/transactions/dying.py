"""A shop that dies at every step: orders with an outbox, a relay, and a consumer that bills each order once.

The shop runs in a process of its own. Each statement, commit, send and acknowledgement calls a point before
and after; `killed_everywhere` runs the shop once for each of these points, kills it there with SIGKILL, lets
it run again to the end, and gives what became of it. Broker and acknowledgements are files: what is written
there survives the process, as a broker would.
"""

import asyncio
import json
import os
import signal
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.transactions.databases import Database, message, run

from turbopump.client.message import Message, MessageExt
from turbopump.protocol import properties
from turbopump.transactions import outbox
from turbopump.transactions.idempotent import idempotent

ORDERS = 2


class Points:
    """Counts the steps of this process, writes their names down, and dies at one of them."""

    def __init__(self, log: Path, die_at: int = 0) -> None:
        self._log = log
        self._die_at = die_at
        self._count = 0

    def __call__(self, name: str) -> None:
        self._count += 1
        with self._log.open("a") as log:
            log.write(name + "\n")
        if self._count == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def name_of(sql: str) -> str:
    """The step that a statement is: its verb and its table.

    >>> name_of("INSERT INTO bills (what) VALUES (:what)")
    'INSERT bills'
    """
    known = ("turbopump_outbox", "turbopump_processed", "turbopump_fence", "bills", "orders", "effects")
    return " ".join([sql.split()[0], *[table for table in known if table in sql][:1]])


def dying_sqlite(path: Path, one_thread: bool = True) -> Callable[[Points], Database]:
    def made(point: Points) -> Database:
        class Cursor(sqlite3.Cursor):
            def execute(self, sql: str, *more: Any) -> Any:
                point(f"before {name_of(sql)}")
                done = super().execute(sql, *more)
                point(f"after {name_of(sql)}")
                return done

        class Connection(sqlite3.Connection):
            def __init__(self, *given: Any, **more: Any) -> None:
                super().__init__(*given, **more)
                super().cursor().execute("PRAGMA synchronous = OFF")  # the process dies, not the machine

            def cursor(self, *_: Any) -> Any:
                return super().cursor(Cursor)

            def commit(self) -> None:
                point("before commit")
                super().commit()
                point("after commit")

        def connect() -> Any:
            return sqlite3.connect(path, timeout=20, factory=Connection, check_same_thread=one_thread)

        return Database("sqlite3", connect)

    return made


def dying_postgres(connection_string: str) -> Callable[[Points], Database]:
    def made(point: Points) -> Database:
        import psycopg

        class Cursor(psycopg.Cursor[Any]):
            def execute(self, query: Any, *given: Any, **more: Any) -> Any:
                point(f"before {name_of(query)}")
                done = super().execute(query, *given, **more)
                point(f"after {name_of(query)}")
                return done

        class Connection(psycopg.Connection[Any]):
            def commit(self) -> None:
                point("before commit")
                super().commit()
                point("after commit")

        def connect() -> Any:
            return Connection.connect(connection_string, cursor_factory=Cursor)

        return Database("psycopg", connect, is_sqlite=False)

    return made


def dying_mariadb(port: int, name: str) -> Callable[[Points], Database]:
    def made(point: Points) -> Database:
        import pymysql
        from pymysql.cursors import Cursor

        class Connection(pymysql.Connection):
            def query(self, sql: Any, unbuffered: bool = False) -> Any:
                text = sql if isinstance(sql, str) else sql.decode("utf-8", "surrogateescape")
                step = name_of(text)
                if " " not in step or "information_schema" in text:  # of the connection, or only looks
                    return super().query(sql, unbuffered)
                point(f"before {step}")
                done = super().query(sql, unbuffered)
                point(f"after {step}")
                return done

            def commit(self) -> None:
                point("before commit")
                super().commit()
                point("after commit")

        def connect() -> Any:
            own = {"host": "127.0.0.1", "port": port, "user": "root", "database": name}
            return Connection(**own, cursorclass=Cursor)

        return Database("PyMySQL", connect, is_sqlite=False)

    return made


@dataclass
class Shop:
    """Everything that outlives a process, and what it does when it runs."""

    place: Path
    database: Callable[[Points], Database]

    @property
    def broker(self) -> Path:
        return self.place / "broker"

    @property
    def acknowledged(self) -> Path:
        return self.place / "acknowledged"

    def run(self, point: Points) -> None:
        database = self.database(point)
        self._order(database)
        asyncio.run(self._relay(database, point))
        self._consume(database, point)

    def _order(self, database: Database) -> None:
        """Each order that is not there yet, with its message, in one transaction."""
        for number in range(ORDERS):
            connection = database.connect()
            if not run(connection, "SELECT 1 FROM orders WHERE id = :id", id=number):
                run(connection, "INSERT INTO orders VALUES (:id)", id=number)
                outbox.send(connection, Message("orders", b"%d" % number), by="shop")
            connection.commit()
            connection.close()

    async def _relay(self, database: Database, point: Points) -> None:
        relay = outbox.Relay(_FileBroker(self.broker, point), database.connect)
        while await relay.run_once():
            pass

    def _consume(self, database: Database, point: Points) -> None:
        """Delivers what was not acknowledged, as a consumer that begins at its last offset."""

        @idempotent(connect=database.connect, group="billing")
        def bill(one: MessageExt, connection: Any) -> None:
            run(connection, "INSERT INTO bills (what) VALUES (:what)", what=one.text)

        for offset, line in enumerate(self.sent()):
            if offset >= self._offset():
                bill(message(line["id"], body=line["body"].encode()))
                point("before acknowledge")
                self.acknowledged.write_text(str(offset + 1))
                point("after acknowledge")

    def _offset(self) -> int:
        return int(self.acknowledged.read_text() or "0") if self.acknowledged.exists() else 0

    def sent(self) -> list[dict[str, str]]:
        lines = self.broker.read_text().splitlines() if self.broker.exists() else []
        return [json.loads(line) for line in lines]


class _FileBroker:
    """A producer whose broker is a file. One write is one message: nothing can be torn."""

    def __init__(self, path: Path, point: Points) -> None:
        self._path = path
        self._point = point

    async def send(self, message: Message, *, by: object = None) -> None:
        self._point("before send")
        line = {"id": message.properties[properties.UNIQUE_KEY], "body": message.body.decode()}
        with self._path.open("ab", buffering=0) as broker:
            broker.write(json.dumps(line).encode() + b"\n")
        self._point("after send")


@dataclass
class Outcome:
    died_at: str
    orders: list[int]
    sent: list[str]
    """Bodies, in the broker's order."""
    ids: set[str]
    bills: list[str]
    left: int
    names: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Each effect once, each committed message sent, in order, however it died."""
        every = [str(number) for number in range(ORDERS)]
        assert self.orders == list(range(ORDERS)), self
        assert list(dict.fromkeys(self.sent)) == every, self
        assert len(self.ids) == ORDERS, self
        assert sorted(self.bills) == every, self
        assert self.left == 0, self


def killed_everywhere(place: Path, fresh: Callable[[str], Callable[[Points], Database]]) -> Iterator[Outcome]:
    """`fresh` makes an empty database of that name. The first outcome is of a shop that nobody killed."""
    die_at = 0
    while True:
        home = place / f"death-{die_at}"
        home.mkdir()
        shop = Shop(home, fresh(f"death_{die_at}"))
        database = shop.database(Points(home / "unused"))
        database.run("CREATE TABLE orders (id INTEGER)")
        database.run("CREATE TABLE bills (what TEXT)")
        died = in_process(lambda shop=shop, home=home, at=die_at: shop.run(Points(home / "steps", at)))  # type: ignore[misc]
        steps = (home / "steps").read_text().splitlines()
        if died:
            end_leases(database)
            assert not in_process(lambda shop=shop, home=home: shop.run(Points(home / "again")))  # type: ignore[misc]
        elif die_at:
            return  # it has fewer steps than that
        yield _outcome(shop, database, steps[-1] if died else "", steps)
        die_at += 1


def end_leases(database: Database) -> None:
    """As time does: what the dead relay had taken is free."""
    connection = database.connect()
    outbox.create_table(connection)
    connection.close()
    database.run("UPDATE turbopump_outbox SET taken_until = 0")


def _outcome(shop: Shop, database: Database, died_at: str, steps: list[str]) -> Outcome:
    return Outcome(
        died_at=died_at,
        orders=[row[0] for row in database.run("SELECT id FROM orders ORDER BY id")],
        sent=[line["body"] for line in shop.sent()],
        ids={line["id"] for line in shop.sent()},
        bills=[row[0] for row in database.run("SELECT what FROM bills")],
        left=database.count("turbopump_outbox"),
        names=steps,
    )


def in_process(work: Callable[[], None]) -> bool:
    """Runs it in a child of this process. True: it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the shop failed, see above"
    return False
