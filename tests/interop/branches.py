"""Databases for tests of XA, by every kind of connection: a resource, and what all see of its table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from turbopump.transactions.database import Statement, Steps, run_steps
from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.distributed.resources import XaResource

from . import mariadb, postgres

POSTGRES_KINDS = (
    "psycopg",
    "psycopg autocommit",
    "async psycopg",
    "asyncpg",
    "asyncpg pool",
    "SQLAlchemy connection",
    "SQLAlchemy session",
    "SQLAlchemy autocommit",
    "async SQLAlchemy of psycopg",
    "async SQLAlchemy of asyncpg",
)
MARIADB_KINDS = (
    "PyMySQL",
    "PyMySQL autocommit",
    "asyncmy",
    "aiomysql",
    "SQLAlchemy connection",
    "SQLAlchemy session",
    "async SQLAlchemy of asyncmy",
)


@dataclass
class Account:
    """One database with one account of 100 in it."""

    server: postgres.Postgres | mariadb.MariaDB
    place: str
    """The database of MariaDB, the schema of PostgreSQL, where a database of its own would take long."""
    connect: Callable[[], Any]

    @property
    def cents(self) -> int:
        """What everybody sees: asked on a connection of its own."""
        ((cents,),) = self.execute("SELECT cents FROM accounts WHERE id = 'A'")
        return int(cents)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """One statement on a connection of its own, committed at once."""
        if isinstance(self.server, postgres.Postgres):
            return self.server.execute(sql, schema=self.place)
        return self.server.execute(sql, self.place)

    def resource(self, name: str = "icbc", **more: Any) -> XaResource:
        return XaResource(name, self.connect, **more)

    @property
    def is_mariadb(self) -> bool:
        return isinstance(self.server, mariadb.MariaDB)


def account(server: postgres.Postgres | mariadb.MariaDB, kind: str) -> Account:
    if isinstance(server, postgres.Postgres):
        place = server.new_schema()
        made = Account(server, place, _postgres(server, place, kind))
    else:
        place = server.new_database()
        made = Account(server, place, _mariadb(server, place, kind))
    made.execute("CREATE TABLE accounts (id VARCHAR(8) PRIMARY KEY, cents BIGINT)")
    made.execute("INSERT INTO accounts VALUES ('A', 100)")
    return made


async def take(connection: Any, cents: int = 30) -> None:
    """The work of a user, by the same SQL for every kind of connection."""
    await execute(connection, "UPDATE accounts SET cents = cents - :cents WHERE id = 'A'", cents=cents)


async def execute(connection: Any, sql: str, **parameters: object) -> list[Any]:
    """A statement of the user: blocking connections are used in the loop's thread, as in a block of his."""

    def steps(_: str) -> Steps[list[Any]]:
        return (yield Statement(sql, parameters)).rows

    done: Any = run_steps(connection, steps)
    return list(await done if isawaitable(done) else done)


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.run(bounded())


_made = 0


def new_xid(branch: str = "icbc") -> Xid:
    global _made
    _made += 1
    return Xid(f"tp1.00c0ffee.{_made:024x}", branch)


def _postgres(server: postgres.Postgres, schema: str, kind: str) -> Callable[[], Any]:
    import asyncpg
    import psycopg
    from sqlalchemy import create_engine
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.orm import sessionmaker

    where = server.connection_string(schema)
    if kind.startswith("psycopg"):
        return lambda: psycopg.connect(where, autocommit=kind.endswith("autocommit"))
    if kind == "async psycopg":
        return lambda: psycopg.AsyncConnection.connect(where)
    settings = {"server_settings": {"search_path": schema}}
    own = {"host": str(server.home / "socket"), "user": "postgres", "database": "postgres", **settings}
    if kind == "asyncpg":
        return lambda: asyncpg.connect(**own)
    if kind == "asyncpg pool":
        return _AsyncpgPool(own)
    if kind.startswith("async SQLAlchemy"):
        driver = kind.rpartition(" ")[2]
        more = {"connect_args": settings} if driver == "asyncpg" else {}
        return create_async_engine(server.url(schema, driver), **more).connect
    level = {"isolation_level": "AUTOCOMMIT"} if kind.endswith("autocommit") else {}
    engine = create_engine(server.url(schema), **level)
    return sessionmaker(engine) if kind.endswith("session") else engine.connect


class _AsyncpgPool:
    """A pool for each event loop: tests have one each."""

    def __init__(self, own: dict[str, Any]) -> None:
        self._own = own
        self._pools: dict[int, Any] = {}

    def __call__(self) -> Any:
        return self._acquire()

    def _acquire(self) -> Any:
        from contextlib import asynccontextmanager

        import asyncpg

        @asynccontextmanager
        async def acquired() -> Any:
            loop = id(asyncio.get_running_loop())
            if loop not in self._pools:
                self._pools[loop] = await asyncpg.create_pool(**self._own, min_size=1, max_size=3)
            async with self._pools[loop].acquire() as connection:
                yield connection

        return acquired()


def _mariadb(server: mariadb.MariaDB, database: str, kind: str) -> Callable[[], Any]:
    import aiomysql
    import asyncmy
    import pymysql
    from sqlalchemy import create_engine
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.orm import sessionmaker

    own = server.parameters(database)
    if kind.startswith("PyMySQL"):
        return lambda: pymysql.connect(**own, autocommit=kind.endswith("autocommit"))
    other = {("db" if key == "database" else key): value for key, value in own.items()}
    if kind == "asyncmy":
        return lambda: asyncmy.connect(**other)
    if kind == "aiomysql":
        return lambda: aiomysql.connect(**other)
    if kind.startswith("async SQLAlchemy"):
        return create_async_engine(server.url(database, kind.rpartition(" ")[2])).connect
    engine = create_engine(server.url(database))
    return sessionmaker(engine) if kind.endswith("session") else engine.connect
