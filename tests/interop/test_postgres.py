"""Idempotent consumption and the outbox with a real PostgreSQL: the contracts that SQLite keeps, and
processes killed at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.databases import AsyncDatabase, Database, message
from tests.integration.transactions.dying import dying_postgres, killed_everywhere
from tests.integration.transactions.fences import *  # noqa: F403
from tests.integration.transactions.fences import call, check_killed_calls, with_fence
from tests.integration.transactions.idempotence import *  # noqa: F403
from tests.integration.transactions.idempotence import create, work
from tests.integration.transactions.kill_kit import STEPS, check_real_clients
from tests.integration.transactions.outboxes import *  # noqa: F403
from tests.integration.transactions.outboxes import Broker, relay, write

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.transactions import outbox
from turbopump.transactions.fence import fenced, is_retriable
from turbopump.transactions.idempotent import once

from . import postgres

KINDS = ("psycopg", "psycopg autocommit", "psycopg2", "SQLAlchemy session", "SQLAlchemy connection")
ASYNC_KINDS = (
    "psycopg",
    "asyncpg",
    "SQLAlchemy session",
    "SQLAlchemy connection",
    "SQLAlchemy session of asyncpg",
)


@pytest.fixture
def server(postgres_server: postgres.Postgres) -> postgres.Postgres:
    return postgres_server


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, server: postgres.Postgres) -> Database:
    return _database(request.param, server, server.new_schema())


@pytest.fixture(params=ASYNC_KINDS)
def async_database(request: pytest.FixtureRequest, server: postgres.Postgres) -> AsyncDatabase:
    name = server.new_schema()
    return AsyncDatabase(request.param, _connect_async(request.param, server, name), _plain(server, name))


@pytest.fixture
def plain(server: postgres.Postgres) -> Database:
    database = _plain(server, server.new_schema())
    database.run("CREATE TABLE bills (what TEXT)")
    return database


def _plain(server: postgres.Postgres, name: str) -> Database:
    return _database("psycopg", server, name)


def _database(kind: str, server: postgres.Postgres, name: str) -> Database:
    return Database(kind, _connect(kind, server, name), is_sqlite=False)


def _connect(kind: str, server: postgres.Postgres, name: str) -> Callable[[], Any]:
    import psycopg
    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.orm import sessionmaker

    autocommit = kind.endswith("autocommit")
    if kind.startswith("psycopg2"):
        return lambda: _psycopg2(server.connection_string(name))
    if kind.startswith("psycopg"):
        return lambda: psycopg.connect(server.connection_string(name), autocommit=autocommit)
    engine = create_engine(server.url(name), poolclass=NullPool)
    return sessionmaker(engine) if kind == "SQLAlchemy session" else engine.connect


def _psycopg2(connection_string: str) -> Any:
    import psycopg2

    return psycopg2.connect(connection_string)


def _connect_async(kind: str, server: postgres.Postgres, name: str) -> Callable[[], Any]:
    import asyncpg
    import psycopg
    from sqlalchemy import NullPool
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    if kind == "psycopg":
        return lambda: psycopg.AsyncConnection.connect(server.connection_string(name))
    if kind == "asyncpg":
        settings = {"search_path": name}
        place = {"host": str(server.home / "socket"), "user": "postgres", "database": "postgres"}
        return lambda: asyncpg.connect(**place, server_settings=settings)
    if kind.endswith("asyncpg"):
        url = f"postgresql+asyncpg://postgres@/postgres?host={server.home / 'socket'}"
        own = {"server_settings": {"search_path": name}}
        return async_sessionmaker(create_async_engine(url, poolclass=NullPool, connect_args=own))
    engine = create_async_engine(server.url(name), poolclass=NullPool)
    return async_sessionmaker(engine) if kind == "SQLAlchemy session" else engine.connect


def fresh_schema(server: postgres.Postgres) -> str:
    return server.connection_string(server.new_schema())


def test_each_effect_once_and_each_committed_message_sent_wherever_a_process_dies(
    server: postgres.Postgres, tmp_path: Path
) -> None:
    outcomes = list(killed_everywhere(tmp_path, lambda _: dying_postgres(fresh_schema(server))))
    for outcome in outcomes:
        outcome.check()
    whole, *deaths = outcomes
    assert len(deaths) == len(whole.names)
    assert {death.died_at for death in deaths} == set(whole.names) >= STEPS
    assert any(len(death.sent) > len(whole.sent) for death in deaths), "no message was sent twice"


def test_a_consumer_that_may_not_create_tables_needs_none(plain: Database) -> None:
    create(plain)
    plain.run("CREATE ROLE clerk")
    plain.run("GRANT ALL ON bills, turbopump_processed TO clerk")
    (schema,) = plain.run("SELECT current_schema()")[0]
    plain.run(f"GRANT USAGE ON SCHEMA {schema} TO clerk")
    connection = plain.connect()
    connection.execute("SET ROLE clerk")
    connection.commit()
    with once(connection, message("A1"), group="billing") as first:
        assert first
    connection.close()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_under_stricter_isolation_the_loser_is_refused_and_finds_it_done_later(
    plain: Database, level: str
) -> None:
    """A conflict there is an error of the database, which brings the message again."""
    import psycopg

    create(plain)
    connection = plain.connect()
    connection.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
    connection.commit()
    connection.execute("SELECT count(*) FROM bills")
    assert work(plain, message("A1"))
    with pytest.raises(psycopg.errors.SerializationFailure), once(connection, message("A1"), group="billing"):
        pytest.fail("it was done twice")
    with once(connection, message("A1"), group="billing") as first:
        assert not first
    connection.close()


def test_relays_keep_order_also_where_sessions_are_serializable(plain: Database) -> None:
    def connect() -> Any:
        connection = plain.connect()
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        connection.commit()
        return connection

    strict = Database("psycopg", connect, is_sqlite=False)
    write(strict, b"1", b"2", by="A")
    broker = Broker()
    assert relay(strict, broker, rounds=2) == 2
    assert broker.bodies == [b"1", b"2"]


@pytest.mark.parametrize("use", ["session", "connection"])
def test_sqlalchemy_that_commits_each_statement_is_refused(server: postgres.Postgres, use: str) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(server.url(server.new_schema()), isolation_level="AUTOCOMMIT")
    with Session(engine) if use == "session" else engine.connect() as connection:
        with pytest.raises(InvalidArgument, match="begin a transaction first"):
            once(connection, message("A1"), group="billing").__enter__()
        with pytest.raises(InvalidArgument, match="begin a transaction first"):
            outbox.send(connection, Message("orders", b"x"))
    engine.dispose()


def test_real_clients_killed_again_and_again_have_each_effect_once(
    server: postgres.Postgres, tmp_path: Path
) -> None:
    check_real_clients(f"postgres:{fresh_schema(server)}", tmp_path)


def test_a_participant_killed_at_every_step_has_each_effect_once(
    server: postgres.Postgres, tmp_path: Path
) -> None:
    schema = server.new_schema()
    dying = dying_postgres(server.connection_string(schema))
    check_killed_calls(tmp_path, dying, with_fence(_plain(server, schema)))


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_call_under_stricter_isolation_is_refused_by_40001_and_may_be_repeated(
    plain: Database, level: str
) -> None:
    with_fence(plain)
    connection = plain.connect()
    connection.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
    connection.commit()
    connection.execute("SELECT count(*) FROM effects")
    assert call(plain, "1", "try") == "try of 1"
    with pytest.raises(Exception, match="could not serialize") as raised:
        fenced(connection, "1", "debit", "try").__enter__()
    assert is_retriable(raised.value)
    with fenced(connection, "1", "debit", "try") as known:
        assert (known.is_first, known.result) == (False, "try of 1")
    connection.close()
