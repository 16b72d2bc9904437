"""The loop behind the blocking clients: calls from any thread, forks, interrupts, the end of a process."""

import asyncio
import concurrent.futures
import pickle
import sys
import threading
from collections.abc import AsyncIterator

import pytest
from tests.kit import in_loop
from tests.unit.client.background_kit import Client, Core, answer

from turbopump.client import background
from turbopump.client.blocking import face
from turbopump.client.errors import EventLoopBlocked, InsideEventLoop, NotRunning


def test_a_call_returns_what_the_coroutine_returns_in_any_thread() -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(background.run(answer()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [42] * 8


def test_all_calls_run_in_one_daemon_thread() -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    first, second = background.run(where()), background.run(where())
    assert first is second
    assert first.daemon


def test_an_exception_reaches_the_caller_as_it_is() -> None:
    async def fail() -> None:
        raise LookupError("not here")

    with pytest.raises(LookupError, match="not here"):
        background.run(fail())


def test_a_timeout_cancels_the_call() -> None:
    ended = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    with pytest.raises(TimeoutError, match=r"not done within 0\.01 s"):
        background.run(endless(), 0.01)
    assert ended.wait(5)


def test_a_result_that_came_when_nobody_waited_any_more_is_given_to_who_can_put_it_back() -> None:
    back: list[int] = []
    call = background._Call(answer(), background._current(), back.append)
    call.begin()
    assert background.run(answer()) == 42  # the first one is done by now
    call._cancel()
    assert background.run(answer()) == 42
    assert back == [42]


def test_a_timeout_of_the_coroutine_itself_is_not_taken_for_ours() -> None:
    async def late() -> None:
        raise TimeoutError("the broker is late")

    with pytest.raises(TimeoutError, match="the broker is late"):
        background.run(late(), 5)


def test_a_call_that_is_cancelled_from_within_says_that_the_client_was_closed() -> None:
    async def given_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(NotRunning, match="closed while this call"):
        background.run(given_up())


@in_loop
async def test_a_blocking_call_inside_an_event_loop_names_the_other_package() -> None:
    with pytest.raises(InsideEventLoop, match=r"turbopump\.aio"):
        background.run(answer())


def test_a_blocking_call_inside_the_background_loop_is_an_error_and_no_deadlock() -> None:
    async def inner() -> None:
        background.run(answer())

    with pytest.raises(InsideEventLoop):
        background.run(inner(), 5)


def test_in_a_notebook_whose_cells_run_in_an_event_loop_blocking_calls_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)

    async def cell() -> int:
        return background.run(answer())

    assert asyncio.run(cell()) == 42
    with pytest.raises(InsideEventLoop):
        background.run(cell(), 5)


def test_a_future_may_be_asked_for_inside_an_event_loop() -> None:
    async def main() -> int:
        return await asyncio.wrap_future(background.submit(answer()))

    assert asyncio.run(main()) == 42


def test_a_future_that_is_cancelled_ends_its_coroutine() -> None:
    started, ended = threading.Event(), threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    future = background.submit(endless())
    assert started.wait(5)
    assert future.cancel()
    assert ended.wait(5)


def test_what_cannot_even_begin_fails_its_future() -> None:
    def start() -> "asyncio.Future[int]":
        raise NotRunning("not started")

    with pytest.raises(NotRunning, match="not started"):
        background.begin(start).result(5)


def test_a_future_cancelled_before_the_loop_came_to_it_begins_nothing() -> None:
    hold, begun = threading.Event(), []

    async def busy() -> None:
        hold.wait(5)

    async def work() -> None:
        begun.append(1)

    first = background.submit(busy())
    future = background.submit(work())
    assert future.cancel()
    assert future.cancel()
    hold.set()
    first.result(5)
    assert background.run(answer()) == 42
    assert not begun
    assert not first.cancel()


def test_calls_begin_in_their_order() -> None:
    order: list[int] = []

    async def note(number: int) -> None:
        order.append(number)

    for future in [background.submit(note(number)) for number in range(1000)]:
        future.result(5)
    assert order == list(range(1000))


def test_the_loop_survives_a_task_that_ends_its_thread() -> None:
    async def leave() -> None:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        background.run(leave())
    assert background.run(answer()) == 42


def test_a_loop_that_somebody_blocks_is_an_error_that_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "BUSY_S", 0.05)
    free = threading.Event()

    async def handle_badly() -> None:
        free.wait(10)

    blocked = background.submit(handle_badly())
    with pytest.raises(EventLoopBlocked, match=r"busy for 0\.05 s in .*threading\.py.*write `def`"):
        background.run(answer())
    free.set()
    blocked.result(5)
    assert background.run(answer()) == 42


def test_a_call_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "BUSY_S", 0.02)

    async def slow() -> int:
        await asyncio.sleep(0.2)
        return 42

    assert background.run(slow()) == 42


def test_items_of_an_async_iterator_come_in_order() -> None:
    assert list(background.iterate(Core().upto(3))) == [0, 1, 2]


def test_leaving_a_loop_early_closes_the_generator() -> None:
    closed = threading.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    items = background.iterate(endless())
    assert next(items) == 1
    items.close()  # type: ignore[attr-defined]
    assert closed.wait(5)


# --- faces -----------------------------------------------------------------------------------------------


def test_a_face_starts_and_closes_its_core() -> None:
    with Client() as client:
        assert client.twice(4) == 8
    with pytest.raises(NotRunning):
        client.twice(4)


def test_who_asks_for_too_many_futures_waits_until_one_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(face, "MAX_FUTURES", 2)
    client = Client()

    def pause(seconds: float) -> "concurrent.futures.Future[None]":
        return client._submit(lambda core: asyncio.create_task(asyncio.sleep(seconds)))

    first, second = pause(3600), pause(3600)
    waiting = threading.Thread(target=lambda: pause(0).result(5))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    first.cancel()
    waiting.join(5)
    assert not waiting.is_alive()
    second.cancel()


def test_a_handler_on_the_loop_may_call_what_does_not_wait() -> None:
    async def handle() -> None:
        client._call(lambda core: core.on("b"))

    with Client() as client:
        background.run(handle())
        assert client._call(lambda core: core.handlers) == ["b"]


def test_a_client_says_what_it_is_and_does_not_travel() -> None:
    client = Client()
    assert repr(client) == "<Client, not started>"
    with pytest.raises(TypeError, match="make one there"):
        pickle.dumps(client)


def test_a_block_left_by_an_exception_tells_the_core() -> None:
    client = Client()
    with pytest.raises(LookupError), client:
        raise LookupError
    assert client._core.left_by is LookupError
