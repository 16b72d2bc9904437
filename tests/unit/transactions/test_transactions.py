"""The patterns with a database in memory. With every kind of connection: tests/integration/transactions."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.transactions.databases import message

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.protocol import properties
from turbopump.transactions import outbox
from turbopump.transactions.database import checked_table
from turbopump.transactions.idempotent import key_function, once, once_each
from turbopump.transactions.outbox import stamped
from turbopump.transactions.outbox_table import _head, _message, pause_ms


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE bills (what TEXT)")
    yield made
    made.close()


def bills(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT what FROM bills")]


def test_work_is_done_once(connection: sqlite3.Connection) -> None:
    for _ in range(3):
        with once(connection, message("A1"), group="billing") as first:
            if first:
                connection.execute("INSERT INTO bills VALUES ('A1')")
    assert bills(connection) == ["A1"]


def test_work_that_fails_is_undone_with_its_record(connection: sqlite3.Connection) -> None:
    def fail() -> None:
        with once(connection, message("A1"), group="billing"):
            connection.execute("INSERT INTO bills VALUES ('A1')")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert bills(connection) == []
    with once(connection, message("A1"), group="billing") as first:
        assert first


def test_of_a_batch_only_what_is_new_is_given(connection: sqlite3.Connection) -> None:
    with once_each(connection, [message("A1"), message("A2")], group="billing") as new:
        assert len(new) == 2
    with once_each(connection, [message("A2"), message("A3")], group="billing") as new:
        assert [one.message_id for one in new] == ["A3"]


def test_a_message_in_the_outbox_is_part_of_the_transaction(connection: sqlite3.Connection) -> None:
    outbox.send(connection, Message("orders", b"1"))
    connection.rollback()
    written = outbox.send(connection, Message("orders", b"2", tags="paid"), by="A-1")
    connection.commit()
    (waiting,) = outbox.pending(connection)
    assert (waiting.message.body, waiting.message.tags, waiting.by) == (b"2", "paid", "A-1")
    assert waiting.message_id == written == waiting.message.properties[properties.UNIQUE_KEY]


def test_pauses_grow_up_to_five_minutes() -> None:
    assert [pause_ms(tries) // 1000 for tries in (1, 2, 3, 8, 9, 10, 10_000)] == [1, 2, 4, 128, 256, 300, 300]


@pytest.mark.parametrize("name", ["", "1st", "a b", "a;b", 'a"b', "a.b.c", "a.", "ä-b"])
def test_a_table_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match="a table must have a name such as"):
        checked_table(name)
    assert checked_table("shop.outbox_2") == "shop.outbox_2"


def test_keys_of_a_message() -> None:
    one = message("A1", keys="order-7 item-3", body=b"seven")
    assert key_function("message_id")(one) == "A1"
    assert key_function("keys")(one) == "order-7 item-3"
    assert key_function(lambda given: given.text)(one) == "seven"


def test_an_outbox_keeps_when_a_message_is_to_be_delivered() -> None:
    at = datetime(2026, 11, 15, 20, tzinfo=UTC)
    for wish in ({"delay": timedelta(minutes=3)}, {"delay": 1.5}, {"deliver_at": at}, {"priority": 2}):
        message = stamped(Message("orders", b"x", tags="paid", **wish))
        kept = _message("orders", _head(message), b"x")
        assert kept.property_map() == message.property_map()
