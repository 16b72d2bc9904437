"""A transfer between two banks: a debit in one database, a credit in another, never one without the other.

The message is delivered when the debit is committed. When the process dies in between, the broker asks a
producer of the group later: `check` looks into the database. The other bank credits each transfer once.
"""

import os
import queue
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from turbopump import Consumer, Decision, Message, MessageExt, Producer
from turbopump.transactions.idempotent import idempotent

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())


def connect(bank: str) -> sqlite3.Connection:
    return sqlite3.connect(FOLDER / f"{bank}.db", timeout=30)


def transfer(producer: Producer, number: str, amount: int, dies: bool = False) -> None:
    """The debit is a transaction of the database; the message is committed after it, or not at all."""
    with producer.transaction(Message("TransferTopic", b"%d" % amount, keys=number)):
        with connect("here") as bank:
            bank.execute("UPDATE account SET balance = balance - ?", (amount,))  # refuses to become negative
            bank.execute("INSERT INTO transfers VALUES (?)", (number,))
        if dies:
            os._exit(9)  # the debit is done, but the transaction has not been ended


def check(message: MessageExt) -> Decision:
    """Asked by the broker: was the debit done? In any process of the group."""
    with connect("here") as bank:
        known = bank.execute("SELECT 1 FROM transfers WHERE number = ?", message.keys).fetchone()
    return Decision.COMMIT if known else Decision.ROLLBACK


if len(sys.argv) > 1:  # the process that dies
    with Producer("transfers", check=check) as producer:
        transfer(producer, "T-3", 40, dies=True)

for name in ("here", "there"):
    with connect(name) as database:
        database.execute("CREATE TABLE account (balance INTEGER CHECK (balance >= 0))")
        database.execute("CREATE TABLE transfers (number TEXT)")
        database.execute("INSERT INTO account VALUES (100)")

consumer = Consumer("credits")
credited: queue.SimpleQueue[str] = queue.SimpleQueue()


@idempotent(connect=lambda: connect("there"), group="credits", key="keys")
def credit(message: MessageExt, bank: sqlite3.Connection) -> None:
    bank.execute("UPDATE account SET balance = balance + ?", (int(message.body),))


@consumer.on("TransferTopic")
def receive(message: MessageExt) -> None:
    credit(message)
    credited.put(message.keys[0])


with Producer("transfers", check=check) as producer:
    transfer(producer, "T-1", 25)
    try:
        transfer(producer, "T-2", 1000)
    except sqlite3.IntegrityError:
        print("T-2: not enough money, no message")
    subprocess.run([sys.executable, __file__, str(FOLDER)])
    with consumer:
        print("credited:", *sorted(credited.get(timeout=120) for _ in range(2)))
for name in ("here", "there"):
    with connect(name) as database:
        print(f"{name}:", *database.execute("SELECT balance FROM account").fetchone())
