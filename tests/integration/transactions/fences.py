"""What holds for the fence with every database and every kind of connection.

The work of a branch is a row for each effect. Whatever the order, number and deaths of its calls, at the end
there is one Try and one Confirm, one Try and one Cancel, or nothing at all.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.transactions.databases import AsyncDatabase, Database, message, run, run_async
from tests.integration.transactions.dying import Points, in_process
from tests.integration.transactions.outboxes import begun

from turbopump.client.errors import InvalidArgument
from turbopump.client.produce.transaction import Decision
from turbopump.transactions import fence
from turbopump.transactions.connections import close
from turbopump.transactions.errors import Contradicted, FenceRefused, NotTried, WorkUndone
from turbopump.transactions.fence import FencedCall, checked, fenced, is_retriable, message_done

EFFECT = "INSERT INTO effects VALUES (:gid, :phase)"


@pytest.fixture
def effects(database: Database) -> Database:
    return with_fence(database)


def with_fence(database: Database) -> Database:
    database.run("CREATE TABLE effects (gid VARCHAR(40), phase VARCHAR(8))")
    connection = database.connect()
    fence.create_table(connection)
    connection.close()
    return database


def call(database: Database, gid: str, phase: str, die: Callable[[Any], None] | None = None) -> str:
    """One call of a coordinator: what the participant answers. Repeated when another one was in its way."""
    while True:
        connection = database.connect()
        try:
            with fenced(connection, gid, "debit", phase) as known:
                if known.is_first:
                    run(connection, EFFECT, gid=gid, phase=phase)
                    known.result = f"{phase} of {gid}"
                if die is not None:
                    die(connection)
            return known.result if not known.is_empty else "empty"
        except FenceRefused:
            return "refused"
        except Exception as error:
            if not is_retriable(error):
                raise
        finally:
            close_anyhow(connection)


def close_anyhow(connection: Any) -> None:
    try:
        connection.close()
    except Exception:
        return


def done(database: Database, gid: str) -> list[str]:
    rows = database.run("SELECT phase FROM effects WHERE gid = :gid ORDER BY phase", gid=gid)
    return [row[0] for row in rows]


def orders(*phases: str) -> list[tuple[str, ...]]:
    return sorted(set(itertools.permutations(phases)))


def test_confirmed_however_often_the_calls_come(effects: Database) -> None:
    for order in orders("try", "try", "confirm"):
        gid = "-".join(order)
        for phase in order:
            if phase == "confirm" and not done(effects, gid):  # a coordinator never confirms before a Try
                with pytest.raises(NotTried):
                    call(effects, gid, phase)
            else:
                assert call(effects, gid, phase) == f"{phase} of {gid}"
        assert call(effects, gid, "confirm") == f"confirm of {gid}"
        assert done(effects, gid) == ["confirm", "try"]


def test_cancelled_in_every_order_of_the_calls_leaves_nothing_frozen(effects: Database) -> None:
    """Empty rollback, anti-hanging, idempotence: Try, Try, Cancel, Cancel in each order."""
    for order in orders("try", "try", "cancel", "cancel"):
        gid = "-".join(order)
        answers = [call(effects, gid, phase) for phase in order]
        if order[0] == "cancel":
            assert done(effects, gid) == []
            assert [answer for answer, phase in zip(answers, order, strict=True) if phase == "try"] == [
                "refused",
                "refused",
            ]
            assert set(answers) == {"refused", "empty"}
        else:
            assert done(effects, gid) == ["cancel", "try"]
            late = [phase for phase in order[order.index("cancel") :] if phase == "try"]
            assert answers.count("refused") == len(late)


def test_steps_and_compensations_of_a_saga_are_fenced_alike(effects: Database) -> None:
    for order in orders("do", "do", "undo", "undo"):
        gid = "-".join(order)
        for phase in order:
            call(effects, gid, phase)
        assert done(effects, gid) == ([] if order[0] == "undo" else ["do", "undo"])
        assert call(effects, gid, "do") == "refused"


def test_calls_that_contradict_each_other_do_nothing(effects: Database) -> None:
    assert call(effects, "1", "try") == "try of 1"
    assert call(effects, "1", "confirm") == "confirm of 1"
    with pytest.raises(Contradicted, match="cancel came after confirm"):
        call(effects, "1", "cancel")
    assert call(effects, "2", "try") == "try of 2"
    assert call(effects, "2", "cancel") == "cancel of 2"
    with pytest.raises(Contradicted, match="confirm came after cancel"):
        call(effects, "2", "confirm")
    assert call(effects, "3", "cancel") == "empty"
    with pytest.raises(Contradicted, match="confirm came after cancel"):
        call(effects, "3", "confirm")
    assert call(effects, "4", "do") == "do of 4"
    for other in ("try", "confirm", "cancel"):
        with pytest.raises(Contradicted, match=f"{other} came after do"):
            call(effects, "4", other)
    assert (done(effects, "1"), done(effects, "4")) == (["confirm", "try"], ["do"])


def test_work_that_fails_may_be_tried_again(effects: Database) -> None:
    def fail(connection: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        call(effects, "1", "try", fail)
    assert done(effects, "1") == []
    assert call(effects, "1", "try") == "try of 1"


def test_a_rollback_inside_of_the_block_is_an_error(effects: Database) -> None:
    connection = effects.connect()
    with pytest.raises(WorkUndone), fenced(connection, "1", "debit", "try"):
        connection.rollback()
    connection.close()
    assert call(effects, "1", "try") == "try of 1"


def test_the_callers_own_transaction_holds_row_and_work(effects: Database) -> None:
    connection = begun(effects)
    with fenced(connection, "1", "debit", "try", commit=False) as known:
        assert known.is_first
    connection.rollback()
    connection.close()
    assert call(effects, "1", "try") == "try of 1"


def test_branches_and_transactions_are_told_apart_by_every_byte(effects: Database) -> None:
    connection = effects.connect()
    for gid, branch in (("a", "b"), ("A", "b"), ("a", "B"), ("a.", "b"), ("a" * 128, "b" * 64)):
        with fenced(connection, gid, branch, "try") as known:
            assert known.is_first
    for gid, branch in (("a" * 129, "b"), ("a", "b" * 65), ("a ", "b"), ("ä", "b"), ("", "b"), ("a", "b\n")):
        with pytest.raises(InvalidArgument, match="printable ASCII"):
            fenced(connection, gid, branch, "try")
    with pytest.raises(InvalidArgument, match="phase must be one of try, confirm"):
        fenced(connection, "a", "b", "prepare")
    connection.close()


GIDS, THREADS, DEATHS = 24, 4, 0.1


def test_threads_that_call_in_any_order_and_die_leave_each_effect_once_or_nothing(effects: Database) -> None:
    chance = random.Random(7)
    calls = [(f"{number}", phase) for number in range(GIDS) for phase in ("try", "try", "cancel", "cancel")]
    chance.shuffle(calls)
    dying = {place for place in range(len(calls)) if chance.random() < DEATHS}

    def die(connection: Any) -> None:
        raise ConnectionResetError("it dies before it commits")

    def deliver(place: int) -> None:
        gid, phase = calls[place]
        if place in dying:
            with contextlib.suppress(ConnectionResetError):
                call(effects, gid, phase, die)
        call(effects, gid, phase)  # a coordinator that got no answer calls again

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(deliver, range(len(calls))))
    outcomes = {tuple(done(effects, f"{number}")) for number in range(GIDS)}
    assert outcomes <= {(), ("cancel", "try")}, outcomes


def test_confirms_at_once_work_once(effects: Database) -> None:
    for number in range(8):
        call(effects, f"{number}", "try")

    def confirm(number: int) -> str:
        return call(effects, f"{number // 3}", "confirm")

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(confirm, range(24)))
    assert answers == [f"confirm of {number // 3}" for number in range(24)]
    assert effects.count("effects") == 16


def test_an_unlucky_confirm_and_a_cancel_at_once_never_both_work(effects: Database) -> None:
    """No coordinator does that; two that think they are the only one might."""
    for number in range(6):
        call(effects, f"{number}", "try")

    def end(place: int) -> str:
        try:
            return call(effects, f"{place // 2}", ("confirm", "cancel")[place % 2])
        except Contradicted:
            return "contradicted"

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(end, range(12)))
    assert answers.count("contradicted") == 6
    for number in range(6):
        assert done(effects, f"{number}") in (["confirm", "try"], ["cancel", "try"])


def check_killed_calls(place: Path, dying: Callable[[Points], Database], seen: Database) -> None:
    """The process of a participant is killed at each statement and commit; then all calls come again."""
    for number, phases in enumerate((("try", "confirm"), ("try", "cancel"), ("cancel", "try"))):
        die_at, was_killed = 1, True
        while was_killed:
            gid = f"{number}-{die_at}"
            steps = place / f"steps-{gid}"

            def calls(gid: str = gid, phases: Any = phases, steps: Path = steps, at: int = die_at) -> None:
                database = dying(Points(steps, at))
                for phase in phases:
                    call(database, gid, phase)

            was_killed = in_process(calls)
            for phase in phases:
                call(seen, gid, phase)
            assert done(seen, gid) == ([] if phases[0] == "cancel" else sorted(phases)), (gid, phases)
            die_at += 1
        assert die_at > 5, "it was not killed at many steps"


def test_rows_of_transactions_that_ended_long_ago_are_forgotten(effects: Database) -> None:
    for gid in ("1", "2", "3", "4"):
        call(effects, gid, "try")
    effects.run("UPDATE turbopump_fence SET at = 0 WHERE gid <> '4'")
    call(effects, "3", "confirm")  # its newest row counts for all of it
    connection = effects.connect()
    assert fence.forget(connection, still_open=["2"]) == 1
    assert fence.forget(connection, older_than=timedelta(days=365), still_open=["2"]) == 0
    connection.close()
    rows = effects.run("SELECT DISTINCT gid FROM turbopump_fence ORDER BY gid")
    assert [row[0] for row in rows] == ["2", "3", "4"]


# --- transaction messages -----------------------------------------------------------------------------------


def test_the_answer_to_a_transaction_check_is_a_decision(effects: Database) -> None:
    connection = begun(effects)
    message_done(connection, "A1")
    run(connection, EFFECT, gid="A1", phase="msg")
    connection.commit()
    assert checked(connection, message("A1")) is Decision.COMMIT
    assert checked(connection, message("A1")) is Decision.COMMIT
    assert checked(connection, message("A2")) is Decision.ROLLBACK
    assert checked(connection, message("A2")) is Decision.ROLLBACK
    connection.close()
    slow = begun(effects)
    run(slow, EFFECT, gid="A2", phase="msg")
    with pytest.raises(FenceRefused):
        message_done(slow, message("A2"))
    slow.rollback()
    slow.close()
    assert (done(effects, "A1"), done(effects, "A2")) == (["msg"], [])


def test_a_check_and_a_slow_local_transaction_exclude_each_other(effects: Database) -> None:
    """The check waits for the transaction that is under way, and says what became of it."""
    for gid, commits in (("A1", True), ("A2", False)):
        slow = begun(effects)
        message_done(slow, gid)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(_checked_elsewhere, effects, gid)
            try:
                asked.result(0.3)
                pytest.fail("the check did not wait")
            except TimeoutError:
                (slow.commit if commits else slow.rollback)()
            assert asked.result(20) is (Decision.COMMIT if commits else Decision.ROLLBACK)
        slow.close()


def _checked_elsewhere(database: Database, gid: str) -> Decision:
    connection = database.connect()
    try:
        return checked(connection, message(gid))
    finally:
        connection.close()


# --- async --------------------------------------------------------------------------------------------------


def test_async_connections_are_fenced_too(async_database: AsyncDatabase) -> None:
    seen = with_fence(async_database.blocking)

    async def one(gid: str, phase: str) -> FencedCall:
        connection = async_database.connect()
        if hasattr(connection, "__await__"):
            connection = await connection
        try:
            async with fenced(connection, gid, "debit", phase) as known:
                if known.is_first:
                    await run_async(connection, EFFECT, gid=gid, phase=phase)
                    known.result = "ä"
            return known
        finally:
            await close(connection)

    async def go() -> None:
        for phase in ("try", "confirm"):
            assert (await one("1", phase)).is_first
            assert await one("1", phase) == FencedCall(False, "ä")
        assert (await one("2", "cancel")).is_empty
        with pytest.raises(FenceRefused):
            await one("2", "try")
        connection = async_database.connect()
        if hasattr(connection, "__await__"):
            connection = await connection
        assert await checked(connection, message("A1")) is Decision.ROLLBACK
        assert await fence.forget(connection) == 0
        await close(connection)

    asyncio.run(go())
    assert (done(seen, "1"), done(seen, "2")) == (["confirm", "try"], [])
