"""What holds for idempotent consumption with every database and every kind of connection."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.integration.transactions.databases import AsyncDatabase, Database, message, run, run_async

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import MessageExt
from turbopump.transactions.database import Steps, TransactionCommand, run_steps
from turbopump.transactions.idempotent import WorkUndone, create_table, forget, idempotent, once, once_each

BILL = "INSERT INTO bills (what) VALUES (:what)"


def bill(connection: Any, what: str) -> None:
    run(connection, BILL, what=what)


@pytest.fixture
def bills(database: Database) -> Database:
    database.run("CREATE TABLE bills (what TEXT)")
    return database


@pytest.fixture
def async_bills(async_database: AsyncDatabase) -> AsyncDatabase:
    async_database.blocking.run("CREATE TABLE bills (what TEXT)")
    return async_database


def work(database: Database, one: MessageExt, fails: bool = False, **more: Any) -> bool:
    """One delivery; was it done?"""
    connection = database.connect()
    try:
        with once(connection, one, **{"group": "billing"} | more) as first:
            if first:
                bill(connection, one.message_id)
            if fails:
                raise ValueError("the work failed")
            return first
    finally:
        connection.close()


def test_a_message_that_comes_again_has_no_second_effect(bills: Database) -> None:
    assert [work(bills, message("A1")) for _ in range(3)] == [True, False, False]
    assert work(bills, message("A2"))
    assert bills.count("bills") == 2


def test_work_that_fails_leaves_neither_effect_nor_record(bills: Database) -> None:
    with pytest.raises(ValueError, match="the work failed"):
        work(bills, message("A1"), fails=True)
    assert bills.count("bills") == 0
    assert work(bills, message("A1"))
    assert bills.count("bills") == 1


def test_each_group_does_its_own_work(bills: Database) -> None:
    assert work(bills, message("A1"), group="billing")
    assert work(bills, message("A1"), group="shipping")
    assert not work(bills, message("A1"), group="shipping")


def test_messages_are_told_apart_by_keys_or_by_what_the_user_says(bills: Database) -> None:
    assert work(bills, message("1", keys="order-7"), key="keys")
    assert not work(bills, message("2", keys="order-7"), key="keys")
    assert work(bills, message("2", keys="order-7", topic="refunds"), key="keys")
    assert work(bills, message("3", body=b"7"), key=lambda one: one.text)
    assert not work(bills, message("4", body=b"7"), key=lambda one: one.text)


def test_a_long_key_is_recorded_all_the_same(bills: Database) -> None:
    first, second = "k" * 20_000, "k" * 20_001
    assert [work(bills, message(key)) for key in (first, first, second)] == [True, False, True]


def test_a_swallowed_failure_of_a_statement_does_not_lose_the_message(bills: Database) -> None:
    connection = bills.connect()
    try:
        with once(connection, message("A1"), group="billing") as first:
            bill(connection, "A1")
            try:
                run(connection, "SELECT nothing FROM nowhere")
            except Exception:
                first = first and True
    except Exception:  # PostgreSQL: nothing of the transaction would be kept
        assert bills.count("bills") == 0
        assert work(bills, message("A1"))
    finally:
        connection.close()
    assert not work(bills, message("A1"))
    assert bills.count("bills") == 1


def test_a_rollback_inside_the_block_is_an_error(bills: Database) -> None:
    create(bills)
    connection = bills.connect()
    with pytest.raises(WorkUndone), once(connection, message("A1"), group="billing"):
        connection.rollback()
    connection.close()
    assert work(bills, message("A1"))


def test_work_that_commits_by_itself_and_then_fails_comes_again(
    bills: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A second effect, since the first one was committed; but not a lost one."""
    create(bills)
    connection = bills.connect()

    def half_way() -> None:
        with once(connection, message("A1"), group="billing"):
            bill(connection, "first half")
            run_steps(connection, lambda dialect: committed())
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        half_way()
    connection.close()
    assert "committed by itself" in caplog.text
    assert work(bills, message("A1"))


def committed() -> Steps[None]:
    yield TransactionCommand.COMMIT


def test_who_rolls_back_inside_and_goes_on_does_not_take_another_consumers_record_for_his(
    bills: Database,
) -> None:
    create(bills)
    connection = bills.connect()

    def go_on() -> None:
        with once(connection, message("A1"), group="billing"):
            connection.rollback()
            assert work(bills, message("A1"))
            if "without" not in bills.kind and "autocommit" not in bills.kind:
                bill(connection, "a second effect")

    with pytest.raises(WorkUndone):
        go_on()
    connection.close()
    assert bills.count("bills") == 1


def create(database: Database, **more: Any) -> None:
    connection = database.connect()
    create_table(connection, **more)
    connection.close()


def test_of_two_consumers_with_one_message_one_does_the_work(bills: Database) -> None:
    for number in range(5):
        start = threading.Barrier(4)

        def deliver(start: threading.Barrier = start, number: int = number) -> bool:
            start.wait()
            return work(bills, message(f"A{number}"))

        with ThreadPoolExecutor(4) as pool:
            done = [future.result(30) for future in [pool.submit(deliver) for _ in range(4)]]
        assert sorted(done) == [False, False, False, True]
    assert bills.count("bills") == 5


def test_the_loser_does_the_work_when_the_winner_fails(bills: Database) -> None:
    create(bills)
    claimed = threading.Event()

    def win_and_fail() -> None:
        connection = bills.connect()
        try:
            with once(connection, message("A1"), group="billing") as first:
                assert first
                bill(connection, "A1")
                claimed.set()
                time.sleep(0.2)
                raise ValueError("after all not")
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        winner = pool.submit(win_and_fail)
        assert claimed.wait(10)
        assert work(bills, message("A1"))
        assert isinstance(winner.exception(10), ValueError)
    assert bills.count("bills") == 1


def test_consumers_that_create_the_table_at_once_do_not_disturb_each_other(bills: Database) -> None:
    start = threading.Barrier(4)

    def deliver(number: int) -> bool:
        start.wait()
        return work(bills, message(f"A{number}"), table="made_on_demand")

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(deliver, range(4)))


def test_the_callers_own_transaction_holds_both(bills: Database) -> None:
    connection = bills.connect()
    if "without transactions" in bills.kind or "autocommit" in bills.kind:
        with (
            pytest.raises(InvalidArgument, match="begin a transaction"),
            once(connection, message("A1"), group="b", commit=False),
        ):
            pass
        run(connection, "BEGIN")
    with once(connection, message("A1"), group="billing", commit=False) as first:
        assert first
        bill(connection, "A1")
    connection.rollback()
    connection.close()
    assert bills.count("bills") == 0
    assert work(bills, message("A1"))


def test_a_batch_gives_what_is_new_and_each_only_once(bills: Database) -> None:
    assert work(bills, message("A2"))
    batch = [message(key) for key in ("A3", "A1", "A2", "A1")]
    connection = bills.connect()
    with once_each(connection, batch, group="billing") as new:
        assert [one.message_id for one in new] == ["A3", "A1"]
    with once_each(connection, batch, group="billing") as new:
        assert new == []
    connection.close()


def test_old_keys_are_forgotten(bills: Database) -> None:
    assert work(bills, message("A1"))
    connection = bills.connect()
    assert forget(connection, older_than=timedelta(hours=1)) == 0
    time.sleep(0.005)
    assert forget(connection, older_than=timedelta(0)) == 1
    connection.close()
    assert work(bills, message("A1"))


def test_a_decorated_handler_gets_a_connection_and_works_once(bills: Database) -> None:
    @idempotent(connect=bills.connect, group="billing")
    def handle(one: MessageExt, connection: Any) -> str:
        bill(connection, one.message_id)
        return "done"

    assert [handle(message("A1")), handle(message("A1")), handle(message("A2"))] == ["done", None, "done"]
    assert bills.count("bills") == 2


def test_a_decorated_handler_that_raises_is_rolled_back_and_may_try_again(bills: Database) -> None:
    tries = []

    @idempotent(connect=bills.connect, group="billing")
    def handle(one: MessageExt, connection: Any) -> None:
        bill(connection, one.message_id)
        tries.append(one)
        if len(tries) < 3:
            raise ValueError("not yet")

    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            handle(message("A1"))
    handle(message("A1"))
    handle(message("A1"))
    assert (len(tries), bills.count("bills")) == (3, 1)


def test_a_table_that_was_dropped_comes_back(bills: Database) -> None:
    @idempotent(connect=bills.connect, group="billing")
    def handle(one: MessageExt, connection: Any) -> None:
        bill(connection, one.message_id)

    handle(message("A1"))
    handle(message("A2"))
    bills.run("DROP TABLE turbopump_processed")
    with pytest.raises(Exception, match="turbopump_processed"):
        handle(message("A3"))
    handle(message("A3"))
    assert bills.count("bills") == 3


def test_async_handlers_work_once_too(async_bills: AsyncDatabase) -> None:
    @idempotent(connect=async_bills.connect, group="billing")
    async def handle(one: MessageExt, connection: Any) -> str:
        await run_async(connection, BILL, what=one.message_id)
        if one.body == b"fail":
            raise ValueError("the work failed")
        return "done"

    async def deliver() -> list[Any]:
        with pytest.raises(ValueError, match="the work failed"):
            await handle(message("A1", body=b"fail"))
        return [await handle(message(key)) for key in ("A1", "A1", "A2")]

    assert asyncio.run(deliver()) == ["done", None, "done"]
    assert async_bills.blocking.count("bills") == 2


def test_of_two_async_consumers_with_one_message_one_does_the_work(async_bills: AsyncDatabase) -> None:
    @idempotent(connect=async_bills.connect, group="billing")
    async def handle(one: MessageExt, connection: Any) -> str:
        await run_async(connection, BILL, what=one.message_id)
        await asyncio.sleep(0.01)
        return "done"

    async def deliver() -> list[Any]:
        return await asyncio.gather(*(handle(message("A1")) for _ in range(4)))

    assert sorted(map(str, asyncio.run(deliver()))) == ["None", "None", "None", "done"]
    assert async_bills.blocking.count("bills") == 1


def test_an_async_handler_that_is_cancelled_leaves_nothing(async_bills: AsyncDatabase) -> None:
    @idempotent(connect=async_bills.connect, group="billing")
    async def handle(one: MessageExt, connection: Any) -> None:
        await run_async(connection, BILL, what=one.message_id)
        await asyncio.sleep(one.reconsume_times or 60)

    async def deliver() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle(message("A1")), 0.3)

    asyncio.run(deliver())
    assert async_bills.blocking.count("bills") == 0


@dataclass
class Order:
    id: int
