"""Idempotent consumption with SQLite, and what does not depend on the database."""

import asyncio
import inspect
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import Mock

import pytest
from tests.integration.transactions.databases import (
    SQLITE_ASYNC_KINDS,
    SQLITE_KINDS,
    AsyncDatabase,
    Database,
    message,
    sqlite,
    sqlite_async,
)
from tests.integration.transactions.idempotence import *  # noqa: F403
from tests.integration.transactions.idempotence import Order, bill, work

from turbopump.client.errors import InvalidArgument
from turbopump.client.group.consume_status import ConsumeStatus, RetryLater
from turbopump.client.message import MessageExt
from turbopump.client.push.handlers import Handler
from turbopump.protocol import properties
from turbopump.transactions.idempotent import idempotent, once, once_each


@pytest.fixture(params=SQLITE_KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return sqlite(request.param, tmp_path / "database")


@pytest.fixture(params=SQLITE_ASYNC_KINDS)
def async_database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncDatabase:
    return sqlite_async(request.param, tmp_path / "database")


@pytest.fixture
def plain(tmp_path: Path) -> Database:
    database = sqlite("sqlite3", tmp_path / "database")
    database.run("CREATE TABLE bills (what TEXT)")
    return database


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with Python 3.12")
@pytest.mark.parametrize("autocommit", [True, False])
def test_connections_by_python_312s_rules_work_too(tmp_path: Path, autocommit: bool) -> None:
    path = tmp_path / "database"
    database = Database("sqlite3", lambda: sqlite3.connect(path, autocommit=autocommit))  # type: ignore[call-overload]
    sqlite("sqlite3", path).run("CREATE TABLE bills (what TEXT)")
    with pytest.raises(ValueError, match="failed"):
        work(database, message("A1"), fails=True)
    assert [work(database, message("A1")) for _ in range(2)] == [True, False]
    assert sqlite("sqlite3", path).count("bills") == 1


def test_a_message_without_unique_key_is_known_by_its_first_copy(plain: Database) -> None:
    first = message()
    again = message(**{properties.ORIGIN_MESSAGE_ID: first.offset_message_id})
    assert [work(plain, one) for one in (first, again)] == [True, False]


def test_a_status_that_asks_for_a_retry_is_a_failure(plain: Database) -> None:
    answers = [ConsumeStatus.RECONSUME_LATER, ConsumeStatus.CONSUME_SUCCESS]

    @idempotent(connect=plain.connect, group="billing")
    def handle(one: MessageExt, connection: Any) -> ConsumeStatus:
        bill(connection, one.message_id)
        return answers.pop(0)

    assert handle(message("A1")) is ConsumeStatus.RECONSUME_LATER
    assert plain.count("bills") == 0
    assert handle(message("A1")) is ConsumeStatus.CONSUME_SUCCESS
    assert plain.count("bills") == 1


def test_a_batch_handler_gets_only_what_is_new(plain: Database) -> None:
    got: list[list[str]] = []

    @idempotent(connect=plain.connect, group="billing")
    def handle(messages: Sequence[MessageExt], connection: Any) -> None:
        got.append([one.message_id for one in messages])

    handle([message("A1"), message("A2")])
    handle([message("A2"), message("A3"), message("A3")])
    handle([message("A1")])
    assert got == [["A1", "A2"], ["A3"]]


def test_of_a_batch_that_is_rolled_back_no_message_counts_as_consumed(plain: Database) -> None:
    """Otherwise those that the handler calls done would be acknowledged without their effect."""
    batch = [message("A1"), message("A2")]

    @idempotent(connect=plain.connect, group="billing")
    def handle(messages: Sequence[MessageExt], connection: Any) -> None:
        bill(connection, messages[0].message_id)
        raise RetryLater(consumed=1)

    failed = Handler(handle, batch=2).run(batch, Mock())
    assert failed is not None
    assert (failed.consumed, plain.count("bills")) == (0, 0)

    connection = plain.connect()
    with pytest.raises(RetryLater) as raised, once_each(connection, batch, group="billing"):
        raise RetryLater(consumed=1)
    connection.close()
    assert raised.value.consumed == 0


def test_a_consumer_sees_the_handler_without_its_connection(plain: Database) -> None:
    @idempotent(connect=plain.connect, group="billing")
    def both(one: MessageExt, order: Order, connection: Any) -> None:
        """Bills an order."""
        bill(connection, f"{one.message_id} {order.id}")

    @idempotent(connect=plain.connect, group="shipping")
    def body_alone(order: Order, connection: sqlite3.Connection) -> None:
        bill(connection, str(order.id))

    assert list(inspect.signature(both).parameters) == ["one", "order"]
    assert list(get_type_hints(both).values()) == [MessageExt, Order]
    assert list(get_type_hints(body_alone).values()) == [Order, MessageExt]
    assert both.__doc__ == "Bills an order."
    both(message("A1"), Order(7))
    both(message("A1"), Order(7))
    body_alone(Order(7), message("A1"))
    body_alone(Order(7), message("A1"))
    assert plain.run("SELECT what FROM bills ORDER BY what") == [("7",), ("A1 7",)]


def test_handlers_get_what_they_ask_for_and_only_what_is_new(plain: Database) -> None:
    """As a consumer calls them, which decodes by what the face shows."""
    got: list[Any] = []
    known = idempotent(connect=plain.connect, group="billing")

    @known
    def one(order: Order, message: MessageExt, connection: Any) -> None:
        got.append((order.id, message.message_id))

    @known
    def several(orders: list[Order], connection: Any) -> None:
        got.append([order.id for order in orders])

    @known
    def both(messages: list[MessageExt], orders: list[Order], connection: Any) -> None:
        got.append([(message.message_id, order.id) for message, order in zip(messages, orders, strict=True)])

    def orders(*ids: int) -> list[MessageExt]:
        return [message(str(number), body=b'{"id": %d}' % number) for number in ids]

    Handler(one).call(orders(1))
    Handler(one).call(orders(1))
    Handler(several, batch=8).call(orders(1, 2, 3, 2))
    Handler(both, batch=8).call(orders(3, 4, 5))
    assert got == [(1, "1"), [2, 3], [("4", 4), ("5", 5)]]


def test_a_context_manager_around_a_connection_will_do(plain: Database) -> None:
    class Pool:
        """Like psycopg_pool's: the connection goes back in the end."""

        back = 0

        def __enter__(self) -> sqlite3.Connection:
            self.connection: sqlite3.Connection = plain.connect()
            return self.connection

        def __exit__(self, *error: object) -> None:
            self.connection.close()
            Pool.back += 1

    @idempotent(connect=Pool, group="billing")
    def handle(one: MessageExt, connection: Any) -> None:
        bill(connection, one.message_id)

    handle(message("A1"))
    handle(message("A1"))
    assert (Pool.back, plain.count("bills")) == (2, 1)


@pytest.mark.parametrize(("pause_s", "left"), [(3600.0, ["A1", "A2"]), (0.0, ["A2"])])
def test_old_keys_go_by_themselves_now_and_then(
    plain: Database, monkeypatch: pytest.MonkeyPatch, pause_s: float, left: list[str]
) -> None:
    @idempotent(connect=plain.connect, group="billing")
    def handle(one: MessageExt, connection: Any) -> None: ...

    monkeypatch.setattr("turbopump.transactions.idempotent.CLEAN_EVERY_S", pause_s)
    handle(message("A1"))
    plain.run("UPDATE turbopump_processed SET done_at = 0")
    handle(message("A2"))
    assert [row[0] for row in plain.run("SELECT message_key FROM turbopump_processed")] == left


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"group": ""}, "group must be the name of the consumer group"),
        ({"group": "billing", "key": "id"}, "key must be one of message_id, keys"),
        ({"group": "billing", "table": "bills; DROP"}, "a table must have a name such as"),
    ],
)
def test_what_cannot_be_right_is_said_at_once(asked: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        idempotent(connect=sqlite3.connect, **asked)  # type: ignore[arg-type]


def test_other_mistakes_are_named(plain: Database) -> None:
    with pytest.raises(InvalidArgument, match="a connection must be one of sqlite3"):
        once("billing.db", message("A1"), group="billing").__enter__()
    with pytest.raises(InvalidArgument, match="has no KEYS"):
        work(plain, message("A1"), key="keys")
    with pytest.raises(InvalidArgument, match="must be text, got"):
        work(plain, message("A1"), key=lambda one: 7)
    with pytest.raises(InvalidArgument, match="needs a last parameter"):
        idempotent(connect=plain.connect, group="billing")(lambda one: None)
    assert plain.count("bills") == 0


def test_an_async_handler_with_a_blocking_driver_is_refused(plain: Database) -> None:
    @idempotent(connect=plain.connect, group="billing")
    async def handle(one: MessageExt, connection: Any) -> None: ...

    with pytest.raises(InvalidArgument, match="needs async connections"):
        asyncio.run(handle(message("A1")))
