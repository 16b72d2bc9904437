"""Virtual time used by a thread, and threads that hold the clock."""

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Iterator

import pytest
from tests.kit import virtual

from turbopump.testing import loop as loops
from turbopump.testing.loop import VirtualLoop, run_virtual
from turbopump.testing.thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    one = LoopThread(lambda: VirtualLoop(by_itself=False))
    yield one
    one.close()


def test_time_stands_still_while_nobody_waits(thread: LoopThread) -> None:
    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.sleep(1))

    sleeping = thread.call(begin())
    time.sleep(0.05)
    assert thread.loop.time() == 0
    assert not sleeping.done()


def test_a_call_that_waits_takes_exactly_the_time_it_asks_for_and_no_real_one(thread: LoopThread) -> None:
    began = time.monotonic()
    thread.call(asyncio.sleep(7200))
    assert thread.loop.time() == 7200
    assert time.monotonic() - began < 1


def test_a_call_returns_when_all_that_needs_no_time_has_happened(thread: LoopThread) -> None:
    done: list[str] = []

    async def chain(length: int) -> None:
        for _ in range(length):
            await asyncio.sleep(0)
        done.append("chain")

    async def set_off() -> None:
        thread.tasks = asyncio.create_task(chain(50))  # type: ignore[attr-defined]

    thread.call(set_off())
    assert done == ["chain"]
    assert thread.loop.time() == 0


def test_a_call_that_fails_says_so(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        thread.call(fail())


def test_a_call_inside_the_loop_is_refused(thread: LoopThread) -> None:
    async def inside() -> None:
        thread.call(asyncio.sleep(1))

    with pytest.raises(RuntimeError, match="it would wait for itself"):
        thread.call(inside())


def test_time_does_not_pass_while_a_thread_works_for_the_loop() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        timer = loop.create_task(asyncio.sleep(1))
        await loop.run_in_executor(None, time.sleep, 0.05)
        spent = loop.time()
        await timer
        return spent

    assert run_virtual(main()) == 0


def test_a_thread_that_works_too_long_holds_the_clock_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "GRACE_S", 0.05)
    go_on = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        blocked = loop.run_in_executor(None, go_on.wait)
        await asyncio.sleep(900)
        go_on.set()
        await blocked
        return loop.time()

    assert run_virtual(main()) == 900


def test_a_thread_at_work_may_itself_wait_for_time(thread: LoopThread) -> None:
    """As a handler that sends does, when the broker makes it try again."""

    def handler() -> str:
        thread.call(asyncio.sleep(30))
        return "handled"

    async def handle() -> str:
        return await asyncio.get_running_loop().run_in_executor(None, handler)

    assert thread.call(handle()) == "handled"
    assert thread.loop.time() == 30


def test_a_thread_holds_the_clock_again_after_its_call(thread: LoopThread) -> None:
    def handler() -> float:
        thread.call(asyncio.sleep(1))
        time.sleep(0.05)
        return thread.loop.time()

    async def handle() -> float:
        beside = asyncio.create_task(asyncio.sleep(2))
        seen = await asyncio.get_running_loop().run_in_executor(None, handler)
        beside.cancel()
        return seen

    assert thread.call(handle()) == 1


def test_a_submitted_call_lets_time_pass_until_it_is_done(thread: LoopThread) -> None:
    thread.submit(asyncio.sleep(5)).result(2)
    assert thread.loop.time() == 5


def test_a_call_for_what_never_comes_is_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loops, "STUCK_S", 0.01)
    thread = LoopThread(lambda: VirtualLoop(by_itself=False))

    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(loops.Stuck):
        thread.call(forever())
    assert thread.loop.is_closed()
    del thread
    gc.collect()
    assert not caplog.records  # of a task that was destroyed: the error has told it


@virtual
async def test_a_timer_that_fires_is_never_ahead_of_the_clock() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(39.99999999999996)
    turns = 0
    while loop.time() < 40.0 and turns < 100:
        turns += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(40.0 - loop.time()):
                await asyncio.Event().wait()
    assert turns == 1
