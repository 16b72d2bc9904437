"""The fence with SQLite, and what does not depend on the database."""

from pathlib import Path

import pytest
from tests.integration.transactions.databases import (
    SQLITE_ASYNC_KINDS,
    SQLITE_KINDS,
    AsyncDatabase,
    Database,
    sqlite,
    sqlite_async,
)
from tests.integration.transactions.dying import dying_sqlite
from tests.integration.transactions.fences import *  # noqa: F403
from tests.integration.transactions.fences import call, check_killed_calls, with_fence

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.transactions.errors import FenceRefused
from turbopump.transactions.fence import Fence, fenced, message_done


@pytest.fixture(params=SQLITE_KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return sqlite(request.param, tmp_path / "database")


@pytest.fixture(params=SQLITE_ASYNC_KINDS)
def async_database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncDatabase:
    return sqlite_async(request.param, tmp_path / "database")


@pytest.fixture
def plain(tmp_path: Path) -> Database:
    return sqlite("sqlite3", tmp_path / "database")


def test_a_participant_killed_at_every_step_has_each_effect_once(plain: Database, tmp_path: Path) -> None:
    check_killed_calls(tmp_path, dying_sqlite(tmp_path / "database"), with_fence(plain))


def test_a_missing_table_is_created_and_one_that_was_dropped_comes_back(plain: Database) -> None:
    known = Fence()

    def attempt(gid: str) -> bool:
        connection = plain.connect()
        try:
            with fenced(connection, gid, "debit", "try", fence=known) as found:
                return found.is_first
        finally:
            connection.close()

    assert attempt("1")
    plain.run("DROP TABLE turbopump_fence")
    with pytest.raises(Exception, match="turbopump_fence"):
        attempt("2")
    assert attempt("2")


def test_a_message_without_an_id_is_refused(plain: Database) -> None:
    with pytest.raises(InvalidArgument, match=r"use `outbox.stamped\(message\)`"):
        message_done(plain.connect(), Message("orders", b"x"))


def test_a_refusal_is_a_no_of_the_business(plain: Database) -> None:
    with_fence(plain)
    assert call(plain, "1", "cancel") == "empty"
    connection = plain.connect()
    with (
        pytest.raises(FenceRefused, match=r"branch debit of transaction 1 was cancelled"),
        fenced(connection, "1", "debit", "try"),
    ):
        pytest.fail("it worked")
    connection.close()
