"""Idempotent consumption and the outbox with a real MariaDB: the contracts that the other databases keep,
processes killed at every step, and what is different there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.databases import AsyncDatabase, Database, message, run, run_async
from tests.integration.transactions.dying import dying_mariadb, killed_everywhere
from tests.integration.transactions.fences import *  # noqa: F403
from tests.integration.transactions.fences import call, check_killed_calls, with_fence
from tests.integration.transactions.idempotence import *  # noqa: F403
from tests.integration.transactions.idempotence import create, work
from tests.integration.transactions.kill_kit import STEPS, check_real_clients
from tests.integration.transactions.outboxes import *  # noqa: F403
from tests.integration.transactions.outboxes import Broker, begun, create_outbox, left, relay, write

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.transactions import outbox
from turbopump.transactions.database import (
    MARIADB,
    Statement,
    Steps,
    checked_word,
    insert_if_absent,
    run_steps,
)
from turbopump.transactions.fence import fenced
from turbopump.transactions.idempotent import once

from . import mariadb

KINDS = ("PyMySQL", "PyMySQL autocommit", "SQLAlchemy session", "SQLAlchemy connection")
ASYNC_KINDS = (
    "asyncmy",
    "aiomysql",
    "SQLAlchemy session of asyncmy",
    "SQLAlchemy connection of asyncmy",
    "SQLAlchemy session of aiomysql",
)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, mariadb_server: mariadb.MariaDB) -> Database:
    made = _database(request.param, mariadb_server, mariadb_server.new_database())
    create_outbox(made)  # inside of a transaction they could not be created
    create(made)
    return made


@pytest.fixture(params=ASYNC_KINDS)
def async_database(request: pytest.FixtureRequest, mariadb_server: mariadb.MariaDB) -> AsyncDatabase:
    name = mariadb_server.new_database()
    blocking = _database("PyMySQL", mariadb_server, name)
    create_outbox(blocking)
    return AsyncDatabase(request.param, _connect_async(request.param, mariadb_server, name), blocking)


@pytest.fixture
def plain(mariadb_server: mariadb.MariaDB) -> Database:
    database = _database("PyMySQL", mariadb_server, mariadb_server.new_database())
    database.run("CREATE TABLE bills (what TEXT)")
    return database


def _database(kind: str, server: mariadb.MariaDB, name: str) -> Database:
    return Database(kind, _connect(kind, server, name), is_sqlite=False)


def _connect(kind: str, server: mariadb.MariaDB, name: str) -> Callable[[], Any]:
    import pymysql
    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.orm import sessionmaker

    if kind.startswith("PyMySQL"):
        autocommit = kind.endswith("autocommit")
        return lambda: pymysql.connect(**server.parameters(name), autocommit=autocommit)
    engine = create_engine(server.url(name), poolclass=NullPool)
    return sessionmaker(engine) if kind == "SQLAlchemy session" else engine.connect


def _connect_async(kind: str, server: mariadb.MariaDB, name: str) -> Callable[[], Any]:
    import aiomysql
    import asyncmy
    from sqlalchemy import NullPool
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    parameters = server.parameters(name)
    own = {("db" if key == "database" else key): value for key, value in parameters.items()}
    if kind == "asyncmy":
        return lambda: asyncmy.connect(**own)
    if kind == "aiomysql":
        return lambda: aiomysql.connect(**own)
    driver = kind.rpartition(" ")[2]
    engine = create_async_engine(server.url(name, driver), poolclass=NullPool)
    return async_sessionmaker(engine) if "session" in kind else engine.connect


def test_each_effect_once_and_each_committed_message_sent_wherever_a_process_dies(
    mariadb_server: mariadb.MariaDB, tmp_path: Path
) -> None:
    def fresh(_: str) -> Any:
        return dying_mariadb(mariadb_server.port, _with_outbox(mariadb_server))

    outcomes = list(killed_everywhere(tmp_path, fresh))
    for outcome in outcomes:
        outcome.check()
    whole, *deaths = outcomes
    assert len(deaths) == len(whole.names)
    assert {death.died_at for death in deaths} == set(whole.names) >= STEPS
    assert any(len(death.sent) > len(whole.sent) for death in deaths), "no message was sent twice"


def test_real_clients_killed_again_and_again_have_each_effect_once(
    mariadb_server: mariadb.MariaDB, tmp_path: Path
) -> None:
    check_real_clients(f"mariadb:{mariadb_server.port}/{_with_outbox(mariadb_server)}", tmp_path)


def _with_outbox(server: mariadb.MariaDB) -> str:
    """A new database in which the outbox is there before the first transaction. Its name."""
    name = server.new_database()
    create_outbox(_database("PyMySQL", server, name))
    return name


# --- tables -------------------------------------------------------------------------------------------------


def test_a_missing_table_is_created_before_the_transaction_begins(plain: Database) -> None:
    assert [work(plain, message("A1")) for _ in range(2)] == [True, False]
    connection = plain.connect()
    outbox.send(connection, Message("orders", b"1"))  # nothing was done on it before
    connection.rollback()
    connection.close()
    assert left(plain) == []


def test_a_missing_table_is_refused_inside_of_a_transaction_which_creating_it_would_commit(
    plain: Database,
) -> None:
    connection = plain.connect()
    run(connection, "INSERT INTO bills VALUES ('not to be committed')")
    with pytest.raises(InvalidArgument, match=r"turbopump_outbox is missing.*create_table"):
        outbox.send(connection, Message("orders", b"1"))
    with (
        pytest.raises(InvalidArgument, match="turbopump_processed is missing"),
        once(connection, message("A1"), group="billing", commit=False),
    ):
        pass
    connection.rollback()
    connection.close()
    assert plain.count("bills") == 0
    create_outbox(plain)
    write(plain, b"1")
    assert len(left(plain)) == 1


def test_a_user_that_may_not_create_tables_needs_none(
    plain: Database, mariadb_server: mariadb.MariaDB
) -> None:
    import pymysql

    create(plain)
    create_outbox(plain)
    ((name,),) = plain.run("SELECT DATABASE()")
    mariadb_server.execute(f"CREATE USER '{name}'@'%'")
    mariadb_server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name}.* TO '{name}'@'%'")
    own = mariadb_server.parameters(name) | {"user": name}
    clerk = Database("PyMySQL", lambda: pymysql.connect(**own), is_sqlite=False)
    assert [work(clerk, message("A1")) for _ in range(2)] == [True, False]
    write(clerk, b"1")
    broker = Broker()
    assert relay(clerk, broker) == 1
    assert broker.bodies == [b"1"]


# --- what MariaDB would take for the same -------------------------------------------------------------------


def test_keys_that_a_column_would_merge_are_kept_apart(plain: Database) -> None:
    """Upper and lower case, a space at the end, letters that ASCII has not, and what is cut to 512."""
    names = ["order", "ORDER", "order ", "ordér", "ordèr", "k" * 512, "k" * 513, "k" * 514, "注文", "註文"]
    assert [work(plain, message("1"), key=lambda _, name=name: name) for name in names] == [True] * len(names)
    assert [work(plain, message("1"), key=lambda _, name=name: name) for name in names] == [False] * len(
        names
    )


def test_names_that_would_be_cut_are_refused(plain: Database) -> None:
    for group in ("g" * 256, "groupé", "group "):
        with pytest.raises(InvalidArgument, match="the group must be 1 to 255 printable ASCII characters"):
            work(plain, message("A1"), group=group)
    with pytest.raises(InvalidArgument, match="by must be at most 1020 bytes on MariaDB, got 1021"):
        outbox.send(plain.connect(), Message("orders", b"1"), by="k" * 1021)
    with pytest.raises(InvalidArgument, match="the gid must be 1 to 4 printable"):
        checked_word("the gid", "12345", 4)


def test_insert_ignore_cuts_a_value_that_is_too_long_without_an_error(plain: Database) -> None:
    """Why lengths are checked before: the second name would be the first one."""
    plain.run("CREATE TABLE names (name VARCHAR(4) PRIMARY KEY)")
    insert = insert_if_absent(MARIADB, "names", ["name"])
    assert [_count(plain.connect(), insert, name) for name in ("1234",)] == [1]
    connection = plain.connect()
    assert _count(connection, insert, "1234567") == 1
    assert _count(connection, insert, "1234568") == 0
    connection.close()


def test_the_count_of_an_insert_tells_old_from_new_whatever_the_client_asks_for(
    plain: Database, mariadb_server: mariadb.MariaDB
) -> None:
    """With FOUND_ROWS, which SQLAlchemy and Django set, ON DUPLICATE KEY UPDATE counts 1 for an old row."""
    import pymysql
    from pymysql.constants import CLIENT

    plain.run("CREATE TABLE names (name VARCHAR(4) PRIMARY KEY)")
    ((database,),) = plain.run("SELECT DATABASE()")
    connection = pymysql.connect(**mariadb_server.parameters(database), client_flag=CLIENT.FOUND_ROWS)
    update = "INSERT INTO names (name) VALUES (:name) ON DUPLICATE KEY UPDATE name = name"
    assert [_count(connection, update, "old") for _ in range(2)] == [1, 1]
    insert = insert_if_absent(MARIADB, "names", ["name"])
    assert [_count(connection, insert, "new") for _ in range(2)] == [1, 0]
    connection.close()


def _count(connection: Any, sql: str, name: str) -> int:
    def steps(_: str) -> Steps[int]:
        return (yield Statement(sql, {"name": name})).count

    return run_steps(connection, steps)


def test_keys_of_order_differ_by_each_byte(plain: Database) -> None:
    create_outbox(plain)
    for by in ("a", "A", "a ", " ", "ä", "注"):
        write(plain, by.encode(), by=by)
    broker = Broker(refuses={b"a", b" "})
    assert relay(plain, broker) == 6
    assert sorted(broker.bodies) == sorted(by.encode() for by in ("A", "a ", "ä", "注"))
    assert [one.by for one in left(plain)] == ["a", " "]
    write(plain, b"behind", by=" ")
    assert relay(plain, broker) == 0


# --- locks --------------------------------------------------------------------------------------------------


def test_a_relay_does_not_wait_for_a_transaction_that_has_not_committed_its_message(plain: Database) -> None:
    create_outbox(plain)
    slow = begun(plain)
    outbox.send(slow, Message("orders", b"slow"))
    write(plain, b"1", b"2")
    broker = Broker()
    began = time.monotonic()
    assert relay(plain, broker, rounds=2) == 2
    connection = plain.connect()
    assert outbox.retry_now(connection) == 0
    connection.close()
    assert time.monotonic() - began < 10  # the server waits 20 s for a lock
    slow.commit()
    slow.close()
    assert relay(plain, broker) == 1
    assert broker.bodies == [b"1", b"2", b"slow"]


def test_relays_at_once_never_take_one_message_twice(plain: Database) -> None:
    create_outbox(plain)
    write(plain, *[b"%d" % number for number in range(60)])
    brokers = [Broker() for _ in range(4)]
    threads = [
        threading.Thread(target=relay, args=(plain, broker, 8), kwargs={"batch": 5}) for broker in brokers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    sent = [body for broker in brokers for body in broker.bodies]
    assert sorted(sent) == sorted(b"%d" % number for number in range(60))


def test_sqlalchemy_that_commits_each_statement_is_refused(mariadb_server: mariadb.MariaDB) -> None:
    from sqlalchemy import create_engine

    engine = create_engine(mariadb_server.url(mariadb_server.new_database()), isolation_level="AUTOCOMMIT")
    with (
        engine.connect() as connection,
        pytest.raises(InvalidArgument, match="begin a transaction first"),
    ):
        outbox.send(connection, Message("orders", b"x"))
    engine.dispose()


@pytest.mark.filterwarnings("ignore:Accessing the database during app initialization")
def test_djangos_atomic_blocks_hold_record_message_and_work(mariadb_server: mariadb.MariaDB) -> None:
    """Django's connections set FOUND_ROWS. PyMySQL stands in for mysqlclient, as its users do it."""
    pytest.importorskip("django")
    import pymysql
    from django.conf import settings
    from django.db import connections, transaction

    pymysql.install_as_MySQLdb()
    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        )
    from django.db.backends.mysql.base import DatabaseWrapper

    name = mariadb_server.new_database()
    place = {"HOST": "127.0.0.1", "PORT": mariadb_server.port, "USER": "root", "PASSWORD": "", "NAME": name}
    rest = {"AUTOCOMMIT": True, "ATOMIC_REQUESTS": False, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False}
    more = {"ENGINE": "django.db.backends.mysql", "OPTIONS": {}, "TIME_ZONE": None, "TEST": {}}
    connection = connections["shop"] = DatabaseWrapper({**place, **rest, **more}, "shop")
    try:
        connection.ensure_connection()
        with transaction.atomic(using="shop"):
            outbox.create_table(connection)
        done = []
        for _ in range(2):
            with transaction.atomic(using="shop"), once(connection, message("A1"), group="billing") as first:
                done.append(first)
                if first:
                    outbox.send(connection, Message("orders", b"1"))
        assert done == [True, False]
        with transaction.atomic(using="shop"):
            outbox.send(connection, Message("orders", b"2"))
            connection.set_rollback(True)
        for is_first in (True, False):
            with transaction.atomic(using="shop"), fenced(connection, "1", "debit", "try") as known:
                assert known.is_first is is_first
        assert [one.message.body for one in outbox.pending(connection)] == [b"1"]
        with transaction.atomic(using="shop"):
            with connection.cursor() as cursor:
                cursor.execute("UPDATE turbopump_outbox SET next_at = 0")
            with pytest.raises(InvalidArgument, match="other is missing"):
                outbox.send(connection, Message("orders", b"3"), table="other")
    finally:
        connection.close()
        del connections["shop"]


def test_a_repeat_leaves_no_warning_in_the_log_of_asyncmy(
    mariadb_server: mariadb.MariaDB, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks for the warnings of each INSERT IGNORE and logs them: a line for each repeated message."""
    name = mariadb_server.new_database()
    connect = _connect_async("asyncmy", mariadb_server, name)

    async def go() -> list[bool]:
        connection = await connect()
        await run_async(connection, "CREATE TABLE bills (what TEXT)")
        done = []
        for _ in range(2):
            async with once(connection, message("A1"), group="billing") as first:
                done.append(first)
        await connection.ensure_closed()
        return done

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(go()) == [True, False]
    assert caplog.records == []


# --- the fence ----------------------------------------------------------------------------------------------


def test_a_participant_killed_at_every_step_has_each_effect_once(
    mariadb_server: mariadb.MariaDB, tmp_path: Path
) -> None:
    name = mariadb_server.new_database()
    dying = dying_mariadb(mariadb_server.port, name)
    check_killed_calls(tmp_path, dying, with_fence(_database("PyMySQL", mariadb_server, name)))


def test_under_repeatable_read_a_refused_call_sees_the_row_that_a_plain_select_does_not(
    plain: Database,
) -> None:
    with_fence(plain)
    connection = plain.connect()
    assert run(connection, "SELECT count(*) FROM turbopump_fence") == [(0,)]  # what it sees from now on
    assert call(plain, "1", "try") == "try of 1"
    assert run(connection, "SELECT count(*) FROM turbopump_fence") == [(0,)]
    with fenced(connection, "1", "debit", "try", commit=False) as known:
        assert (known.is_first, known.result) == (False, "try of 1")
    connection.close()
