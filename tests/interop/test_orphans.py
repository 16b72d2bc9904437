"""`turbopump transactions orphans` beside real databases."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg
import pymysql
import pytest
from tests.unit.cli.transactions_kit import run

from turbopump.cli.failures import CommandFailure
from turbopump.client.admin import Admin
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind
from turbopump.testing import AsyncCluster
from turbopump.transactions.distributed.gids import Xid, mark_of
from turbopump.transactions.distributed.journal import BrokerJournal
from turbopump.transactions.distributed.resources import XaResource
from turbopump.transactions.errors import Later

from .mariadb import MariaDB
from .postgres import Postgres

XA = GlobalKind.XA
COMMITTED, UNKNOWN = (Xid(f"tp1.{mark_of('bank')}.{number:024x}", "icbc") for number in (1, 2))
PATIENCE_S = 10.0


@dataclass
class PreparedDatabase:
    """A database in which branches can be prepared, and its URL for the command."""

    url: str
    connect: Callable[[], Any]

    async def prepare(self, resource: XaResource, xid: Xid) -> None:
        """Leaves a prepared branch behind, as a program does that is killed."""
        branch = await resource.begin(xid)
        cursor = branch.connection.cursor()
        cursor.execute(f"INSERT INTO transfers VALUES ('{xid.gid}')")
        await branch.prepare()
        await branch.abandon()


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> PreparedDatabase:
    server = request.getfixturevalue(f"{request.param}_server")
    name = server.new_database()
    server.execute("CREATE TABLE transfers (gid VARCHAR(64))", database=name)
    if isinstance(server, Postgres):
        url = f"postgresql://postgres@/{name}?host={quote(str(server.home / 'socket'), safe='')}"
        return PreparedDatabase(url, lambda: psycopg.connect(server.connection_string(database=name)))
    assert isinstance(server, MariaDB)
    url = f"mariadb://root@127.0.0.1:{server.port}/{name}"
    return PreparedDatabase(url, lambda: pymysql.connect(**server.parameters(name)))


async def listed(admin: Admin, url: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert await run(admin, "orphans", "--resource", url, "--json") == 0
    return {one["gid"]: one for one in json.loads(capsys.readouterr().out)["orphans"]}


async def ended(end: Callable[[Xid], Any], xid: Xid) -> None:
    """MariaDB says for a moment that a branch is held, after its connection was closed."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await end(xid)
            except Later:
                await asyncio.sleep(0.05)


def test_prepared_branches_are_listed_with_what_the_book_says(
    database: PreparedDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with (
            AsyncCluster() as cluster,
            cluster.admin() as admin,
            BrokerJournal("bank", cluster.name_servers) as journal,
        ):
            resource = XaResource("icbc", database.connect)
            for xid in (COMMITTED, UNKNOWN):
                await database.prepare(resource, xid)
            deadline_ms = journal.admin.clock.now_ms() + 30_000
            await journal.decide(COMMITTED.gid, XA, GlobalDecision.COMMIT, ["icbc"], deadline_ms=deadline_ms)
            found = await listed(admin, database.url, capsys)
            decided, unknown = found[COMMITTED.gid], found[UNKNOWN.gid]
            assert (decided["branch"], decided["state"], decided["decision"]) == ("icbc", "decided", "commit")
            assert (decided["group"], decided["broker"]) == ("bank", journal.home)
            assert (unknown["state"], unknown["decision"], unknown["group"]) == ("unknown", "", None)
            assert await run(admin, "orphans", "--resource", database.url) == 0
            rows = {row.split()[3]: row for row in capsys.readouterr().out.splitlines() if " icbc " in row}
            printed = " ".join(rows.values())
            assert "decided   commit    bank" in printed
            assert "it writes an abort" in printed
            await ended(resource.commit, COMMITTED)
            await ended(resource.roll_back, UNKNOWN)
            assert not {COMMITTED.gid, UNKNOWN.gid} & set(await listed(admin, database.url, capsys))
            await resource.close()

    asyncio.run(main())


def test_a_database_that_cannot_be_asked_is_a_failure_in_one_line() -> None:
    async def main() -> None:
        async with AsyncCluster() as cluster, cluster.admin() as admin:
            for url in ("postgresql://bank:secret@127.0.0.1:1/icbc", "mariadb://bank:secret@127.0.0.1:1/ccb"):
                with pytest.raises(CommandFailure, match="cannot list the prepared branches of") as raised:
                    await run(admin, "orphans", "--resource", url)
                assert "secret" not in str(raised.value)
                assert len(str(raised.value).splitlines()) == 1

    asyncio.run(main())
