"""Branches of XA in real databases, by every kind of connection: what holds for all of them."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import InvalidRequestError

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.distributed.resources import BranchVote, XaResource
from turbopump.transactions.errors import Declined

from .branches import MARIADB_KINDS, POSTGRES_KINDS, Account, account, execute, new_xid, run, take
from .mariadb import MariaDB
from .postgres import Postgres

KINDS = [*(f"PostgreSQL, {kind}" for kind in POSTGRES_KINDS), *(f"MariaDB, {kind}" for kind in MARIADB_KINDS)]


@pytest.fixture(params=KINDS)
def one(request: pytest.FixtureRequest, postgres_server: Postgres, mariadb_server: MariaDB) -> Account:
    database, _, kind = request.param.partition(", ")
    return account(postgres_server if database == "PostgreSQL" else mariadb_server, kind)


async def _listed(resource: XaResource, gid: str) -> list[str]:
    return [found.xid.branch for found in await resource.prepared() if found.xid.gid == gid]


def test_a_branch_is_prepared_and_then_committed_on_its_own_connection(one: Account) -> None:
    async def work() -> None:
        resource, xid = one.resource(), new_xid()
        branch = await resource.begin(xid)
        await take(branch.connection)
        assert await _listed(resource, xid.gid) == []
        assert await branch.prepare() is BranchVote.YES
        assert (await _listed(resource, xid.gid), one.cents) == (["icbc"], 100)
        await branch.commit()
        assert (await _listed(resource, xid.gid), one.cents) == ([], 70)
        await branch.commit()
        await resource.commit(xid)  # HaveCommitted was lost: it is asked again
        await branch.abandon()
        await resource.close()

    run(work)


def test_a_prepared_branch_is_ended_by_another_connection_when_its_own_is_gone(one: Account) -> None:
    async def work() -> None:
        resource = one.resource()
        for is_commit, cents in ((False, 100), (True, 70)):
            xid = new_xid()
            branch = await resource.begin(xid)
            await take(branch.connection)
            await branch.prepare()
            await branch.abandon()
            assert await _listed(resource, xid.gid) == ["icbc"]
            await _until_free(resource.commit if is_commit else resource.roll_back, xid)
            assert (await _listed(resource, xid.gid), one.cents) == ([], cents)
        await resource.close()

    run(work)


async def _until_free(end: Any, xid: Any) -> None:
    """As the coordinator does: Later while the server has not noticed yet that the connection is closed."""
    import asyncio

    from turbopump.transactions.errors import Later

    for _ in range(200):
        try:
            return await end(xid)
        except Later:
            await asyncio.sleep(0.02)
    raise AssertionError("the branch stayed held")


def test_a_branch_is_rolled_back_before_and_after_it_is_prepared(one: Account) -> None:
    async def work() -> None:
        resource = one.resource()
        for is_prepared in (False, True):
            xid = new_xid()
            branch = await resource.begin(xid)
            await take(branch.connection)
            if is_prepared:
                await branch.prepare()
            await branch.roll_back()
            await branch.roll_back()
            assert (await _listed(resource, xid.gid), one.cents) == ([], 100)
        await resource.close()

    run(work)


def test_a_branch_that_is_alone_commits_in_one_phase(one: Account) -> None:
    async def work() -> None:
        resource, xid = one.resource(), new_xid()
        branch = await resource.begin(xid)
        await take(branch.connection)
        await branch.commit_one_phase()
        assert (await _listed(resource, xid.gid), one.cents) == ([], 70)
        await resource.close()

    run(work)


def test_a_branch_that_only_reads_votes_so_and_leaves_nothing_prepared(one: Account) -> None:
    async def work() -> None:
        resource, xid = one.resource(), new_xid()
        branch = await resource.begin(xid)
        assert [tuple(row) for row in await execute(branch.connection, "SELECT cents FROM accounts")] == [
            (100,)
        ]
        assert await branch.prepare() is BranchVote.READ_ONLY
        assert await _listed(resource, xid.gid) == []
        await branch.abandon()
        await resource.close()

    run(work)


def test_a_branch_with_a_failed_statement_votes_no_even_if_the_failure_was_swallowed(one: Account) -> None:
    async def work() -> None:
        resource = one.resource()
        for ending in ("prepare", "commit_one_phase"):
            xid = new_xid()
            branch = await resource.begin(xid)
            await take(branch.connection)
            with pytest.raises(Exception, match=r"(?i)duplicate"):
                await execute(branch.connection, "INSERT INTO accounts VALUES ('A', 7)")
            with pytest.raises(Declined, match="a statement failed in this branch"):
                await getattr(branch, ending)()
            await branch.roll_back()
            assert (await _listed(resource, xid.gid), one.cents) == ([], 100)
        await resource.close()

    run(work)


def test_a_connection_in_a_branch_refuses_to_commit_by_itself(one: Account) -> None:
    async def work() -> None:
        resource, xid = one.resource(), new_xid()
        branch = await resource.begin(xid)
        await take(branch.connection)
        if hasattr(branch.connection, "commit"):
            for name in ("commit", "rollback"):
                with pytest.raises(InvalidArgument, match="leave its block well to commit"):
                    await _awaited(getattr(branch.connection, name))
        await branch.prepare()
        await branch.commit()
        assert one.cents == 70
        await resource.close()

    run(work)


@pytest.mark.parametrize("database", ["PostgreSQL", "MariaDB"])
@pytest.mark.parametrize("kind", ["SQLAlchemy connection", "SQLAlchemy session"])
def test_a_begin_block_of_sqlalchemy_inside_of_a_branch_does_not_commit_it(
    postgres_server: Postgres, mariadb_server: MariaDB, database: str, kind: str
) -> None:
    one = account(postgres_server if database == "PostgreSQL" else mariadb_server, kind)

    async def work() -> None:
        resource = one.resource()
        branch = await resource.begin(new_xid())

        def begin_and_leave() -> None:
            with branch.connection.begin():
                branch.connection.execute(text("UPDATE accounts SET cents = 1"))

        with pytest.raises(InvalidRequestError if kind.endswith("session") else InvalidArgument):
            begin_and_leave()
        await branch.roll_back()
        assert one.cents == 100
        await resource.close()

    run(work)


async def _awaited(call: Any) -> None:
    if isawaitable(given := call()):
        await given


def test_work_after_a_branch_is_an_own_transaction_again(one: Account) -> None:
    """What a pool gives out again must not be in autocommit, nor refuse to commit."""

    async def work() -> None:
        resource = one.resource()
        for number in (1, 2, 3):
            branch = await resource.begin(new_xid())
            await take(branch.connection, 10)
            await branch.prepare()
            await branch.commit()
            assert one.cents == 100 - 10 * number
        await resource.close()

    run(work)
