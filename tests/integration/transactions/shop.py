"""The shop with real clients, as a program: orders with an outbox, a relay, an idempotent consumer.

    python -m tests.integration.transactions.shop DATABASE NAME_SERVERS RUN STEPS DIE_AT

Each run adds orders of its own and ends when every order of all runs is billed; with DIE_AT it kills itself
at that step. DATABASE is `sqlite:<path>`, `postgres:<connection string>` or `mariadb:<port>/<name>`.
"""

import sys
import time
from pathlib import Path
from typing import Any

from tests.integration.transactions.databases import Database, run
from tests.integration.transactions.dying import Points, dying_mariadb, dying_postgres, dying_sqlite

from turbopump import ConsumeFromWhere, Consumer, Message, MessageExt, Producer
from turbopump.transactions import outbox
from turbopump.transactions.idempotent import idempotent

TOPIC = "orders"
ORDERS = 4
PATIENCE_S = 60.0


def database_of(text: str, point: Points) -> Database:
    kind, _, where = text.partition(":")
    if kind == "sqlite":
        return dying_sqlite(Path(where))(point)
    if kind == "mariadb":
        port, _, name = where.partition("/")
        return dying_mariadb(int(port), name)(point)
    return dying_postgres(where)(point)


def order(database: Database, run_number: int) -> None:
    for number in range(ORDERS):
        connection = database.connect()
        what = f"{run_number}-{number}"
        run(connection, "INSERT INTO orders VALUES (:what)", what=what)
        outbox.send(connection, Message(TOPIC, what.encode()), by=f"customer {number % 2}")
        connection.commit()
        connection.close()


def billing(database: Database, name_servers: str, point: Points) -> Consumer:
    consumer = Consumer(
        "billing", name_servers=name_servers, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )

    @idempotent(connect=database.connect, group="billing")
    def bill(message: MessageExt, connection: Any) -> None:
        run(connection, "INSERT INTO bills VALUES (:what)", what=message.text)

    @consumer.on(TOPIC)
    def deliver(message: MessageExt) -> None:
        bill(message)
        point("before acknowledge")

    return consumer


def main(database_text: str, name_servers: str, run_number: str, steps: str, die_at: str) -> None:
    point = Points(Path(steps), int(die_at))
    database = database_of(database_text, point)
    seen = database_of(database_text, Points(Path(steps + ".unused")))
    with (
        Producer("orders", name_servers=name_servers) as producer,
        outbox.RelayThread(producer, database.connect, interval=0.1),
        billing(database, name_servers, point),
    ):
        order(database, int(run_number))
        deadline = time.monotonic() + PATIENCE_S
        while seen.count("orders") != seen.count("bills") and time.monotonic() < deadline:
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
