import asyncio
import threading

from tests.kit import in_loop

from turbopump.runtime.disk import SystemWorkers


@in_loop
async def test_urgent_work_does_not_wait_behind_ordinary_work() -> None:
    workers = SystemWorkers()
    may_end = threading.Event()
    ordinary = asyncio.create_task(workers.run(may_end.wait, 10))
    assert await workers.urgent(threading.current_thread) is not threading.main_thread()
    assert not ordinary.done()
    may_end.set()
    assert await ordinary
    workers.close()


@in_loop
async def test_urgent_work_brings_back_values_and_errors_in_the_order_asked() -> None:
    workers = SystemWorkers()
    done: list[int] = []
    first, failed, last = await asyncio.gather(
        workers.urgent(done.append, 1),
        workers.urgent(int, "x"),
        workers.urgent(done.append, 2),
        return_exceptions=True,
    )
    assert (first, last, done) == (None, None, [1, 2])
    assert isinstance(failed, ValueError)
    names = {(await workers.urgent(threading.current_thread)).name for _ in range(3)}
    assert names == {"sync"}
    workers.close()


@in_loop
async def test_urgent_work_of_one_who_no_longer_waits_is_done_all_the_same() -> None:
    workers = SystemWorkers()
    began, may_end = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait(10)

    waiting = asyncio.create_task(workers.urgent(work))
    await asyncio.to_thread(began.wait, 10)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    may_end.set()
    assert await workers.urgent(int, "7") == 7
    workers.close()


def test_urgent_work_that_outlives_its_loop_does_not_end_the_thread() -> None:
    workers = SystemWorkers()
    began, may_end = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait(10)

    async def leave() -> None:
        task = asyncio.create_task(workers.urgent(work))
        await asyncio.to_thread(began.wait, 10)
        task.cancel()

    async def again() -> int:
        return await workers.urgent(int, "7")

    asyncio.run(leave())
    may_end.set()
    assert asyncio.run(again()) == 7
    workers.close()
