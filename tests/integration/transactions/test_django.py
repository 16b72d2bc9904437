"""Idempotent handlers and the outbox inside Django's transactions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.databases import Database, message, sqlite

from turbopump.client.errors import InvalidArgument
from turbopump.client.group.consume_status import ConsumeStatus
from turbopump.client.message import Message, MessageExt
from turbopump.transactions import outbox
from turbopump.transactions.idempotent import idempotent, once

django = pytest.importorskip("django")
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the database during app initialization")

ENGINE = "django.db.backends.sqlite3"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Any]:
    """A connection of its own: settings of Django are once per process, connections are not."""
    from django.db.backends.sqlite3.base import DatabaseWrapper

    place = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "database")}
    rest = {"AUTOCOMMIT": True, "ATOMIC_REQUESTS": False, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False}
    made = DatabaseWrapper(
        {**place, **rest, "OPTIONS": {}, "TIME_ZONE": None, "TEST": {}, "USER": ""}, "shop"
    )
    made.ensure_connection()
    yield made
    made.close()


@pytest.fixture
def seen(tmp_path: Path) -> Database:
    database = sqlite("sqlite3", tmp_path / "database")
    database.run("CREATE TABLE bills (what TEXT)")
    return database


@contextmanager
def atomic(connection: Any) -> Iterator[Any]:
    """What `transaction.atomic()` does, for a connection that is not among the settings."""
    from django.db import connections, transaction

    connections["shop"] = connection
    try:
        with transaction.atomic(using="shop"):
            yield connection
    finally:
        del connections["shop"]


def bill(connection: Any, what: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO bills VALUES (%s)", [what])


@pytest.fixture(autouse=True)
def settings() -> None:
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        )


def test_a_handler_in_an_atomic_block_works_once(connection: Any, seen: Database) -> None:
    fails = [True]

    @idempotent(connect=lambda: atomic(connection), group="billing", keep=None)
    def handle(one: MessageExt, given: Any) -> None:
        bill(given, one.message_id)
        if fails:
            fails.clear()
            raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        handle(message("A1"))
    assert seen.count("bills") == 0
    handle(message("A1"))
    handle(message("A1"))
    assert seen.count("bills") == 1


def test_a_status_that_asks_for_a_retry_rolls_the_block_back(connection: Any, seen: Database) -> None:
    @idempotent(connect=lambda: atomic(connection), group="billing")
    def handle(one: MessageExt, given: Any) -> ConsumeStatus:
        bill(given, one.message_id)
        return ConsumeStatus.RECONSUME_LATER

    handle(message("A1"))
    assert seen.count("bills") == 0


def test_the_outbox_is_part_of_an_atomic_block(connection: Any, seen: Database) -> None:
    with atomic(connection):
        bill(connection, "A1")
        outbox.send(connection, Message("orders", b"1"))
    with atomic(connection):
        outbox.send(connection, Message("orders", b"2"))
        connection.set_rollback(True)
    assert [one.message.body for one in outbox.pending(seen.connect())] == [b"1"]


def test_outside_of_a_block_it_is_refused(connection: Any) -> None:
    with (
        pytest.raises(InvalidArgument, match=r"transaction.atomic"),
        once(connection, message("A1"), group="b"),
    ):
        pass
    with pytest.raises(InvalidArgument, match=r"transaction.atomic"):
        outbox.send(connection, Message("orders", b"1"))
