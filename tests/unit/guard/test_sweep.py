"""Every request of every router of ours, as each kind of sender: answered as sweep.txt says."""

import pytest
from tests.kit import virtual
from tests.unit.auth.decisions import FILE as DECISIONS
from tests.unit.auth.decisions import SECRET
from tests.unit.auth.requests_kit import handlers, name_of
from tests.unit.broker.desk import Desk
from tests.unit.guard import sweep
from tests.unit.guard.sweep import FILE, Rows, Sender, parsed

from turbopump.auth.needs import NEEDS, OPEN_AT_NAME_SERVER
from turbopump.auth.rules import on_cluster
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.dledger.codes import DLedgerRequestCode
from turbopump.remoting.router import Route

EXPECTED = parsed(FILE.read_text())
UNKNOWN = ("nobody", "forged", "eve", "off", "nobody1", "forged1", "eve1")
"""Columns of those who are not identified."""


OF_EVERY_SEND = {"MSG_REGION", "TRACE_ON"}
"""Fields of every answer to a send, whatever is in it."""


def decisions() -> Rows:
    """The table of the needs alone: code → column → whether it may be sent."""
    lines = [line.split() for line in DECISIONS.read_text().splitlines() if not line.startswith("#")]
    columns = lines[0][2:-1]
    return {
        int(row[0]): {one: mark == "yes" for one, mark in zip(columns, row[2:], strict=False)}
        for row in lines[1:]
    }


@virtual
async def test_every_request_is_served_to_those_of_the_table_and_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also a request without a row in the table, and a row without a request, are differences."""
    found = await sweep.tables(monkeypatch)
    assert {title: list(rows) for title, rows in found.items()} == {
        title: list(rows) for title, rows in EXPECTED.items()
    }
    wrong = [
        (title, name_of(code), column, served)
        for title, rows in found.items()
        for code, row in rows.items()
        for column, served in row.items()
        if served is not EXPECTED[title][code][column]
    ]
    assert wrong == []
    assert sweep.page(found) == FILE.read_text()


def test_the_tables_have_every_request_that_a_handler_of_ours_serves() -> None:
    """A route of a part that none of these servers has would be in no table."""
    served = {code for rows in EXPECTED.values() for code in rows}
    absent = {code: module for module, table in handlers() for code in table if code not in served}
    assert sorted(absent) == sorted(ONLY_IN_A_GROUP), absent


ONLY_IN_A_GROUP = (Code.RAFT_STATUS, Code.RAFT_TRANSFER)
"""Requests of brokers that are members of a group: `test_a_member_serves_its_own_requests_to_few`."""


@virtual
async def test_a_member_serves_its_own_requests_to_few(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = await sweep.group_rows(monkeypatch)
    wanted = decisions()
    assert set(ONLY_IN_A_GROUP) <= set(rows)
    for code, row in rows.items():
        for column, served in row.items():
            assert served is (column not in UNKNOWN and wanted[code][column]), (name_of(code), column)


@pytest.mark.parametrize("title", EXPECTED)
def test_servers_decide_as_the_table_of_needs(title: str) -> None:
    """And serve nobody who is not identified, but for the routes of a name server with open reads."""
    wanted = decisions()
    for code, row in EXPECTED[title].items():
        for column, served in row.items():
            if title.startswith("open name server") and code in OPEN_AT_NAME_SERVER:
                assert served, (code, column)
            elif column in UNKNOWN:
                assert not served, (code, column)
            elif column not in ("white1", "global1"):
                assert served is wanted[code][column], (code, column)


@pytest.mark.parametrize("title", [title for title in EXPECTED if title.endswith("accounts")])
def test_a_white_address_opens_what_the_pages_say(title: str) -> None:
    """It never changes accounts, settings or the server; the name of its account adds nothing to it."""
    about_accounts = {*range(50, 55), Code.AUTH_EXPLAIN}
    changes = {
        Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.REPLICA_PROMOTE,
        Code.DELETE_EXPIRED_COMMITLOG,
    }
    for code, row in EXPECTED[title].items():
        assert row["white1"] is row["global1"], code
        if code in about_accounts | changes:
            assert not row["white1"], code


def stored(desk: Desk) -> dict[str, bytes]:
    """All files of a broker but its audit lines."""
    nodes = desk.disk._names.nodes
    return {path: bytes(node.pages) for path, node in nodes.items() if "audit" not in path}


@virtual
async def test_a_request_that_is_refused_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer has no body and no field of its own, and nothing is stored."""
    async with sweep.broker_doors(monkeypatch) as (main, fast, desk):
        before = stored(desk)
        for door in (main, fast):
            for sender in (Sender("nobody"), Sender("eve", "eve"), Sender("none", "none")):
                client = door.client()
                for code in door.codes:
                    answer = await door.call(client, sender.sign(sweep.request_of(code)))
                    assert (answer.code, answer.body) == (16, b""), (sender, code)
                    assert set(answer.ext or {}) <= OF_EVERY_SEND, (sender, code)
                await client.close()
        assert stored(desk) == before


@virtual
async def test_a_new_route_without_a_row_is_refused_and_makes_the_sweep_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sweep fails whether somebody thinks of what the request needs or not."""
    new = 9_999
    async with sweep.broker_doors(monkeypatch) as (main, _, _):
        router = main.router
        router._routes[new] = Route(None, lambda request: pytest.fail("it was served"))
        main.codes = sweep.codes_of(router)
        found = await sweep.rows_of(main, [Sender("super", "super", SECRET)])
        assert found[new] == {"super": False}
        assert list(found) != list(EXPECTED["broker, users"])
        monkeypatch.setitem(NEEDS, new, on_cluster())
        assert list(await sweep.rows_of(main, ())) != list(EXPECTED["broker, users"])


def test_no_member_of_a_group_serves_another_code() -> None:
    served = set(EXPECTED["DLedger, users"])
    assert served <= set(DLedgerRequestCode)
    assert {Code(one).name for one in served if one in list(Code)} == set()
