import asyncio
import gc
import logging

import pytest
from tests.kit import virtual
from tests.unit.remoting.kit import turn

from turbopump.runtime.tasks import SharedTask, Tasks, TaskScope, call_concurrently
from turbopump.testing.loop import run_virtual

LOG = logging.getLogger("turbopump.runtime.test")


async def forever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise ValueError("on purpose")


@virtual
async def test_a_task_runs_and_is_forgotten_when_it_ends() -> None:
    tasks = Tasks(LOG)
    done: list[int] = []

    async def work() -> int:
        await asyncio.sleep(60)
        done.append(1)
        return 7

    task = tasks.start(work(), name="work")
    assert (len(tasks), task.get_name()) == (1, "work")
    assert await task == 7
    assert (len(tasks), done) == (0, [1])


@virtual
async def test_a_task_that_nothing_else_refers_to_is_kept_until_it_ends() -> None:
    tasks = Tasks(LOG)
    done: list[int] = []

    async def work() -> None:
        await asyncio.get_running_loop().create_future()  # referred to by the task alone
        done.append(1)  # pragma: no cover - never reached

    tasks.start(work())
    await turn()
    gc.collect()
    assert len(tasks) == 1
    await tasks.close()
    assert (len(tasks), done) == (0, [])


def test_a_failure_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks = Tasks(LOG)
        tasks.start(fails(), name="poll")
        await turn()
        assert len(tasks) == 0
        await tasks.close()

    run_virtual(main())
    gc.collect()
    [record] = caplog.records
    assert record.getMessage() == "Background task poll (fails) failed"
    assert (record.name, record.levelno) == (LOG.name, logging.ERROR)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
    assert record.exc_info[2] is not None


def test_a_failure_at_the_end_of_a_cancelled_task_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        try:
            await forever()
        finally:
            raise ValueError("while it ended")

    async def main() -> None:
        tasks = Tasks(LOG)
        one, _ = tasks.start(work(), "one"), tasks.start(work(), "two")
        await turn()
        await tasks.cancel(one)
        assert len(tasks) == 1
        await tasks.close()
        assert len(tasks) == 0

    run_virtual(main())
    gc.collect()
    assert [record.args[0] for record in caplog.records if record.args] == ["one", "two"]


def test_the_failure_of_an_awaited_task_is_raised_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks = Tasks(LOG)
        with pytest.raises(ValueError, match="on purpose"):
            await tasks.start(fails(), log_failure=False)
        assert len(tasks) == 0

    run_virtual(main())
    gc.collect()
    assert caplog.records == []


def test_a_cancelled_task_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks = Tasks(LOG)
        task = tasks.start(forever())
        await turn()
        await tasks.cancel(task)
        assert task.cancelled()
        assert len(tasks) == 0
        await tasks.cancel(task)

    run_virtual(main())
    assert caplog.records == []


@virtual
async def test_a_task_cancelled_before_its_first_step_never_begins() -> None:
    tasks = Tasks(LOG)
    began: list[int] = []

    async def work() -> None:
        began.append(1)

    await tasks.cancel(tasks.start(work()))
    tasks.start(work())
    await tasks.close()
    assert (began, len(tasks)) == ([], 0)


@virtual
async def test_cancel_and_close_wait_for_what_a_task_does_at_its_end() -> None:
    tasks = Tasks(LOG)
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(5)
            ended.append(name)

    one = tasks.start(work("one"))
    tasks.start(work("two"))
    await turn()
    await tasks.cancel(one)
    assert ended == ["one"]
    await tasks.close()
    assert ended == ["one", "two"]


@virtual
async def test_a_caller_that_is_cancelled_while_it_waits_is_cancelled() -> None:
    tasks = Tasks(LOG)

    async def slow() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(5)

    task = tasks.start(slow())
    await turn()
    for waiting in (asyncio.create_task(tasks.cancel(task)), asyncio.create_task(tasks.close())):
        await turn()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await tasks.close()
    assert len(tasks) == 0


@virtual
async def test_close_ends_tasks_in_the_order_of_their_starts() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(number)

    tasks = Tasks(LOG)
    for number in range(50):
        tasks.start(work(number))
    await asyncio.sleep(0)
    await tasks.close()
    assert ended == list(range(50))


@virtual
async def test_close_may_be_called_twice_also_at_the_same_time() -> None:
    tasks = Tasks(LOG)
    task = tasks.start(forever())
    await asyncio.gather(tasks.close(), tasks.close())
    assert task.cancelled()
    await tasks.close()
    assert len(tasks) == 0


@virtual
async def test_close_ends_tasks_that_are_started_while_it_waits() -> None:
    tasks = Tasks(LOG)
    started: list[asyncio.Task[None]] = []

    async def work() -> None:
        try:
            await forever()
        finally:
            started.append(tasks.start(forever()))

    tasks.start(work())
    await turn()
    await tasks.close()
    assert [task.cancelled() for task in started] == [True]
    assert len(tasks) == 0


@virtual
async def test_close_from_within_a_task_ends_the_others_and_then_that_task_goes_on() -> None:
    tasks = Tasks(LOG)
    other = tasks.start(forever())

    async def work() -> str:
        await tasks.close()
        await asyncio.sleep(1)
        return "went on"

    assert await tasks.start(work()) == "went on"
    assert other.cancelled()
    assert len(tasks) == 0


@virtual
async def test_tasks_may_be_started_again_after_close() -> None:
    tasks = Tasks(LOG)
    tasks.start(forever())
    await tasks.close()
    task = tasks.start(asyncio.sleep(3, "again"))
    assert await task == "again"


@virtual
async def test_waiting_lets_all_tasks_end_by_themselves_also_those_started_meanwhile() -> None:
    tasks = Tasks(LOG)
    done: list[str] = []

    async def first() -> None:
        await asyncio.sleep(1)
        tasks.start(second())
        done.append("first")

    async def second() -> None:
        await asyncio.sleep(1)
        done.append("second")

    await tasks.wait()
    tasks.start(first())
    await tasks.wait()
    assert (done, len(tasks)) == (["first", "second"], 0)


# Shared tasks


@virtual
async def test_a_shared_task_runs_once_for_all_who_wait() -> None:
    runs: list[int] = []

    async def work() -> None:
        runs.append(1)
        await asyncio.sleep(5)

    shared = SharedTask(work)
    await asyncio.gather(shared.wait(), shared.wait())
    await shared.wait()
    assert runs == [1]


@virtual
async def test_a_cancelled_caller_does_not_cancel_a_shared_task() -> None:
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(5)
        done.append(1)

    shared = SharedTask(work)
    waiting = asyncio.create_task(shared.wait())
    await turn()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await shared.wait_ended()
    assert done == [1]


@pytest.mark.parametrize(("repeats", "runs"), [(False, 1), (True, 3)])
@virtual
async def test_after_a_failure_a_shared_task_fails_again_or_runs_again(repeats: bool, runs: int) -> None:
    began: list[int] = []

    async def work() -> None:
        began.append(1)
        await asyncio.sleep(1)
        raise ValueError("on purpose")

    shared = SharedTask(work, repeats_failed=repeats)
    for _ in range(3):
        with pytest.raises(ValueError, match="on purpose"):
            await shared.wait()
    assert len(began) == runs


@virtual
async def test_waiting_for_the_end_neither_starts_a_shared_task_nor_raises() -> None:
    began: list[int] = []

    async def work() -> None:
        began.append(1)
        raise ValueError("on purpose")

    shared = SharedTask(work)
    await shared.wait_ended()
    assert began == []
    with pytest.raises(ValueError, match="on purpose"):
        await shared.wait()
    await shared.wait_ended()


# Scopes


@virtual
async def test_a_scope_waits_for_its_tasks() -> None:
    async with TaskScope() as tasks:
        task = tasks.start(asyncio.sleep(5, "done"))
    assert task.result() == "done"


@virtual
async def test_a_failure_ends_the_scope_and_is_raised_itself() -> None:
    async def fails_with_cause() -> None:
        raise ValueError("on purpose") from KeyError("why")

    others: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with TaskScope() as tasks:
            others.append(tasks.start(forever()))
            tasks.start(fails_with_cause())
            await forever()

    with pytest.raises(ValueError, match="on purpose") as caught:
        await block()
    assert isinstance(caught.value.__cause__, KeyError)
    assert [other.cancelled() for other in others] == [True]


@virtual
async def test_a_failure_of_the_block_ends_the_tasks() -> None:
    started: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with TaskScope() as tasks:
            started.append(tasks.start(forever()))
            raise KeyError("block")

    with pytest.raises(KeyError, match="block"):
        await block()
    assert [task.cancelled() for task in started] == [True]


@virtual
async def test_cancelled_tasks_of_a_scope_are_no_failure() -> None:
    async with TaskScope() as tasks:
        task = tasks.start(forever())
        await turn()
        tasks.cancel()
    assert task.cancelled()


@virtual
async def test_concurrent_calls_have_a_limit_and_return_their_results_in_order() -> None:
    running = most = 0

    async def ask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(10 - number)
        running -= 1
        return -number

    assert await call_concurrently(ask, range(9)) == [-number for number in range(9)]
    assert most == 9
    most = 0
    assert await call_concurrently(ask, range(9), 4) == [-number for number in range(9)]
    assert most == 4


@virtual
async def test_the_first_failure_cancels_the_other_concurrent_calls() -> None:
    ended: list[int] = []

    async def ask(number: int) -> None:
        try:
            await asyncio.sleep(number)
            raise ValueError(f"on purpose: {number}")
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="on purpose: 1"):
        await call_concurrently(ask, (2, 1, 3))
    assert sorted(ended) == [1, 2, 3]
