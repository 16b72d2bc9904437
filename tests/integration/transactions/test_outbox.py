"""The outbox with SQLite, and what does not depend on the database."""

import asyncio
import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.databases import (
    SQLITE_ASYNC_KINDS,
    SQLITE_KINDS,
    AsyncDatabase,
    Database,
    sqlite,
    sqlite_async,
)
from tests.integration.transactions.outboxes import *  # noqa: F403
from tests.integration.transactions.outboxes import Broker, left, run_until_sent, write

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.runtime.clock import SystemClock
from turbopump.transactions import outbox


@pytest.fixture(params=SQLITE_KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return sqlite(request.param, tmp_path / "database")


@pytest.fixture(params=SQLITE_ASYNC_KINDS)
def async_database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncDatabase:
    return sqlite_async(request.param, tmp_path / "database")


@pytest.fixture
def plain(tmp_path: Path) -> Database:
    return sqlite("sqlite3", tmp_path / "database")


class HandClock(SystemClock):
    """Goes on when it is told to."""

    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def test_pauses_grow_until_the_broker_is_back(plain: Database) -> None:
    write(plain, b"1")
    plain.run("UPDATE turbopump_outbox SET next_at = 0")
    clock = HandClock()
    tries: list[int] = []

    class Down(Broker):
        async def send(self, message: Message, *, by: object = None) -> str:
            tries.append(clock.ms)
            raise ConnectionError("no broker answers")

    async def go() -> None:
        relay = outbox.Relay(Down(), plain.connect, clock=clock)
        for _ in range(130):
            await relay.run_once()
            clock.ms += 500

    asyncio.run(go())
    assert [later - earlier for earlier, later in pairwise(tries)] == [1000, 2000, 4000, 8000, 16000, 32000]
    assert left(plain)[0].attempts == len(tries) == 7


class Flaky:
    """Makes connections, except when asked for those of these numbers."""

    def __init__(self, database: Database, *failing: int) -> None:
        self._database = database
        self._failing = failing
        self._asked = 0

    def __call__(self) -> Any:
        self._asked += 1
        if self._asked in self._failing:
            raise sqlite3.OperationalError("unable to open database file")
        return self._database.connect()


def test_trouble_with_the_database_does_not_end_a_relay(
    plain: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turbopump.transactions.relay.FAILURE_PAUSE_S", 0.01)
    write(plain, b"1")
    broker = Broker()
    run_until_sent(replace(plain, connect=Flaky(plain, 1, 2)), broker, 1)
    assert broker.bodies == [b"1"]


def test_what_was_sent_is_recorded_when_the_database_is_back(plain: Database) -> None:
    write(plain, b"1")
    broker = Broker()
    asyncio.run(outbox.Relay(broker, Flaky(plain, 2, 3, 4), lease=1).run_once())
    assert (broker.bodies, left(plain)) == ([b"1"], [])


def test_a_thread_refuses_an_async_producer(plain: Database) -> None:
    with pytest.raises(InvalidArgument, match="needs a blocking producer"):
        outbox.RelayThread(Broker(), plain.connect)


def test_a_thread_that_was_not_started_can_be_closed(plain: Database) -> None:
    class Signals:
        def send(self, message: object) -> None:
            raise AssertionError("nothing is sent")

    relay = outbox.RelayThread(Signals(), plain.connect)  # type: ignore[arg-type]
    relay.wake()
    relay.close()
    with relay:
        pass
    relay.close()


def test_senseless_numbers_are_refused(plain: Database) -> None:
    with pytest.raises(InvalidArgument, match="batch must be more than 0, got 0"):
        outbox.Relay(Broker(), plain.connect, batch=0)


def test_a_connection_that_commits_each_statement_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "database", isolation_level=None)
    with pytest.raises(InvalidArgument, match="begin a transaction first"):
        outbox.send(connection, Message("orders", b"1"))
    connection.close()


def test_each_message_has_an_id_of_its_own_also_between_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: outbox.stamped(Message("orders", b"x")), range(2000)))
    assert len({one.properties["UNIQ_KEY"] for one in made}) == 2000
    assert outbox.stamped(made[0]) is made[0]
