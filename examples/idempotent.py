"""Each effect once: a message may come twice, its row in the database does not.

The key of a message is recorded in the same transaction as the work. A repeat finds it and does nothing.
"""

import queue
import sqlite3
import tempfile
from pathlib import Path

from turbopump import Consumer, Message, MessageExt, Producer
from turbopump.transactions.idempotent import idempotent

DATABASE = Path(tempfile.mkdtemp()) / "bills.db"
with sqlite3.connect(DATABASE) as database:
    database.execute("CREATE TABLE bills (order_id TEXT, amount TEXT)")

with Producer("orders") as producer:
    for order in ("A-1", "B-2", "A-1", "A-1"):  # a careful program sends again when in doubt
        producer.send(Message("BillTopic", b"9.90", keys=order))

consumer = Consumer("bills")
delivered: queue.SimpleQueue[str] = queue.SimpleQueue()


@idempotent(connect=lambda: sqlite3.connect(DATABASE, timeout=30), group="bills", key="keys")
def bill(message: MessageExt, connection: sqlite3.Connection) -> None:  # commits when it returns
    connection.execute("INSERT INTO bills VALUES (?, ?)", (message.keys[0], message.text))


@consumer.on("BillTopic")
def deliver(message: MessageExt) -> None:  # `bill` itself could be the handler; here deliveries are counted
    bill(message)
    delivered.put(message.keys[0])


with consumer:
    print("delivered:", *sorted(delivered.get(timeout=30) for _ in range(4)))
with sqlite3.connect(DATABASE) as database:
    print("billed:", *sorted(row[0] for row in database.execute("SELECT order_id FROM bills")))
