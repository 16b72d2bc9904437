"""An outbox: the message is part of the database transaction, and is sent afterwards until a broker has it.

Without it, a program that dies between commit and send has an order without a message.
"""

import sqlite3
import tempfile
from pathlib import Path

from turbopump import Message, Producer, PullConsumer
from turbopump.transactions import outbox

DATABASE = Path(tempfile.mkdtemp()) / "orders.db"


def connect() -> sqlite3.Connection:
    return sqlite3.connect(DATABASE, timeout=30)


connection = connect()
connection.execute("CREATE TABLE orders (id TEXT)")
outbox.create_table(connection)

with connection:  # a transaction: both rows or none
    connection.execute("INSERT INTO orders VALUES ('A-1')")
    outbox.send(connection, Message("OutboxTopic", b"order A-1", keys="A-1"), by="A-1")
try:
    with connection:
        outbox.send(connection, Message("OutboxTopic", b"order B-2", keys="B-2"), by="B-2")
        raise ValueError("the customer has no credit")
except ValueError as error:
    print("rolled back:", error)

with (
    Producer("orders") as producer,
    outbox.RelayThread(producer, connect),
    PullConsumer("shipping", topics=["OutboxTopic"], topic_metadata_check_interval=1) as consumer,
):
    print("sent:", next(iter(consumer)).text)
connection.close()
