"""The block of the page about distributed transactions that needs PostgreSQL and MariaDB."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.integration.client import pages

from turbopump.testing import Cluster

from .mariadb import MariaDB
from .postgres import Postgres

PAGE = Path(__file__).parents[2] / "docs/distributed-transactions.md"
ICBC = '"host=10.0.0.1 dbname=icbc user=bank"'
CCB = 'host="10.0.0.2", user="bank", database="ccb"'
TABLE = "CREATE TABLE accounts (id VARCHAR(8) PRIMARY KEY, cents BIGINT)"


def test_the_transfer_of_the_page_moves_money_between_two_servers(
    postgres_server: Postgres, mariadb_server: MariaDB
) -> None:
    icbc, ccb = postgres_server.new_database(), mariadb_server.new_database()
    for server, database, row in (
        (postgres_server, icbc, "('A', 5000000)"),
        (mariadb_server, ccb, "('B', 0)"),
    ):
        server.execute(TABLE, database=database)
        server.execute(f"INSERT INTO accounts VALUES {row}", database=database)
    (block,) = [one for one in pages.blocks(PAGE) if "psycopg" in one.code]
    assert ICBC in block.code
    assert CCB in block.code
    given = ", ".join(f"{name}={value!r}" for name, value in mariadb_server.parameters(ccb).items())
    code = block.code.replace(ICBC, repr(postgres_server.connection_string(database=icbc))).replace(
        CCB, given
    )
    names: dict[str, Any] = {"__name__": "__main__"}
    with Cluster() as cluster:
        cluster.create_topic("TransferTopic")
        pages.run(PAGE, replace(block, code=code), cluster.name_servers, names)
        assert [message.body for message in cluster.messages("TransferTopic")] == [b"A to B"]
