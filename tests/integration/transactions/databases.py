"""Databases for tests, each by several kinds of connection: SQLite here, PostgreSQL in tests/interop.

The contracts (`idempotence.py`, `outboxes.py`) are tests that want a fixture `database` or `async_database`;
whoever imports them says which.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbopump.client.message import MessageExt, MessageQueue
from turbopump.protocol import properties
from turbopump.protocol.record import MAGIC_V1, Record, crc31
from turbopump.transactions.database import Statement, Steps, TransactionCommand, run_steps


@dataclass(frozen=True)
class Database:
    """`connect` gives a new connection or session each time."""

    kind: str
    connect: Callable[[], Any]
    is_sqlite: bool = True

    def count(self, table: str) -> int:
        """What everybody sees: asked on a connection of its own."""
        connection = self.connect()
        try:
            return int(run(connection, f"SELECT count(*) FROM {table}")[0][0])
        finally:
            connection.close()

    def run(self, sql: str, **parameters: object) -> list[Any]:
        connection = self.connect()
        try:
            rows = run(connection, sql, **parameters)
            connection.commit()
            return rows
        finally:
            connection.close()


@dataclass(frozen=True)
class AsyncDatabase:
    kind: str
    connect: Callable[[], Any]
    blocking: Database
    """The same one."""


def run(connection: Any, sql: str, **parameters: object) -> list[Any]:
    """A statement of the user, by the same SQL for every kind of connection."""
    return run_steps(connection, lambda dialect: _rows(sql, parameters))


def run_async(connection: Any, sql: str, **parameters: object) -> Awaitable[list[Any]]:
    return run_steps(connection, lambda dialect: _rows(sql, parameters))


def command_async(connection: Any, command: TransactionCommand) -> Awaitable[None]:
    """Begins or ends the user's transaction: asyncpg's connections have no commit and rollback."""

    def steps(dialect: str) -> Steps[None]:
        yield command

    return run_steps(connection, steps)


def _rows(sql: str, parameters: dict[str, object]) -> Steps[list[Any]]:
    return (yield Statement(sql, parameters)).rows


def sqlite(kind: str, path: Path) -> Database:
    """`timeout` is how long a connection waits for the write lock of another."""
    match kind:
        case "sqlite3":
            return Database(kind, lambda: sqlite3.connect(path, timeout=20))
        case "sqlite3 without transactions of its own":
            return Database(kind, lambda: sqlite3.connect(path, timeout=20, isolation_level=None))
    from sqlalchemy import create_engine
    from sqlalchemy.orm import sessionmaker
    from sqlalchemy.pool import NullPool

    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 20})
    return Database(kind, sessionmaker(engine) if kind == "SQLAlchemy session" else engine.connect)


SQLITE_KINDS = (
    "sqlite3",
    "sqlite3 without transactions of its own",
    "SQLAlchemy session",
    "SQLAlchemy connection",
)


def sqlite_async(kind: str, path: Path) -> AsyncDatabase:
    blocking = sqlite("sqlite3", path)
    if kind == "aiosqlite":
        import aiosqlite

        return AsyncDatabase(kind, lambda: aiosqlite.connect(path, timeout=20), blocking)
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
    from sqlalchemy.pool import NullPool

    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 20}
    )
    return AsyncDatabase(
        kind, async_sessionmaker(engine) if kind == "SQLAlchemy session" else engine.connect, blocking
    )


SQLITE_ASYNC_KINDS = ("aiosqlite", "SQLAlchemy session", "SQLAlchemy connection")


def message(
    unique_key: str = "", *, keys: str = "", topic: str = "orders", body: bytes = b"x", **more: str
) -> MessageExt:
    """A message as a consumer gets it."""
    known = {properties.UNIQUE_KEY: unique_key, properties.KEYS: keys, **more}
    record = Record(
        topic=topic,
        queue_id=0,
        flag=0,
        queue_offset=7,
        physical_offset=7000,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=2,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=properties.pack(known).encode(),
        body_crc=crc31(body),
        size=0,
        magic=MAGIC_V1,
    )
    return MessageExt(record, MessageQueue(topic, "broker-a", 0))
