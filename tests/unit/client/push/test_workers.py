"""Coroutines and threads that call handlers: as many as allowed, none of them lost, none in the way."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from turbopump.client.push.workers import ConcurrencySlots, CoroutinePool, ThreadPool, WorkerPoolSize
from turbopump.runtime.clock import SystemClock

PATIENCE_S = 5.0


class Work:
    capacity = 0

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    def absorb(self, other: object) -> bool:
        return False

    def run(self) -> None:
        self._work()

    async def deliver(self) -> bool:
        try:
            await self._work()
        except BaseException:
            return False
        return True


class Meeting:
    """Counts who is inside at a time; nobody leaves before the door is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.most = self.entered = 0
        self.door = threading.Event()

    def attend(self) -> None:
        with self._lock:
            self.inside += 1
            self.entered += 1
            self.most = max(self.most, self.inside)
        self.door.wait(PATIENCE_S)
        with self._lock:
            self.inside -= 1

    async def reaches(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.inside != count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


async def gone(names: str) -> None:
    """Returns when no thread is left whose name begins so."""
    async with asyncio.timeout(PATIENCE_S):
        while any(thread.name.startswith(names) for thread in threading.enumerate()):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def run(scene: Any) -> None:
    asyncio.run(asyncio.wait_for(scene, 2 * PATIENCE_S))


def test_threads_come_until_there_are_enough_and_all_work_is_done() -> None:
    async def scene() -> None:
        meeting, done = Meeting(), list[Work]()
        threads = ThreadPool[Work](WorkerPoolSize(1, 4), done.extend, "test")
        threads.submit([Work(meeting.attend) for _ in range(10)])
        await meeting.reaches(4)
        assert len(list(threads.in_progress())) == 4
        meeting.door.set()
        await threads.wait_done()
        assert (len(done), meeting.most) == (10, 4)
        threads.end()

    run(scene())


def test_the_number_of_threads_can_grow_and_shrink_while_they_work() -> None:
    async def scene() -> None:
        meeting, size, done = Meeting(), WorkerPoolSize(1, 1), list[Work]()
        threads = ThreadPool[Work](size, done.extend, "test")
        threads.submit([Work(meeting.attend) for _ in range(8)])
        await meeting.reaches(1)
        size.max_workers = 3
        threads.resize()
        await meeting.reaches(3)
        size.max_workers = 1
        threads.resize()
        meeting.door.set()
        await threads.wait_done()
        assert len(done) == 8
        second = Meeting()
        threads.submit([Work(second.attend) for _ in range(4)])
        await second.reaches(1)
        await asyncio.sleep(0.05)
        assert second.most == 1
        second.door.set()
        await threads.wait_done()
        threads.end()

    run(scene())


def test_a_thread_that_is_given_up_makes_room_for_another() -> None:
    async def scene() -> None:
        stuck, done = Meeting(), list[Work]()
        threads = ThreadPool[Work](WorkerPoolSize(1, 1), done.extend, "test")
        blocker, next_one = Work(stuck.attend), Work(lambda: None)
        threads.submit([blocker, next_one])
        await stuck.reaches(1)
        threads.abandon(blocker)
        await threads.wait_done()
        assert done == [next_one]
        stuck.door.set()
        await asyncio.sleep(0.05)
        assert done == [next_one]  # what it says now, nobody hears
        threads.end()

    run(scene())


def test_what_waits_can_be_forgotten_and_ended_threads_go_home() -> None:
    async def scene() -> None:
        meeting, done = Meeting(), list[Work]()
        threads = ThreadPool[Work](WorkerPoolSize(2, 2), done.extend, "goers")
        threads.submit([Work(meeting.attend) for _ in range(5)])
        await meeting.reaches(2)
        threads.discard_waiting()
        meeting.door.set()
        await threads.wait_done()
        assert len(done) == 2
        threads.end()
        await gone("turbopump-goers")

    run(scene())


def test_what_a_thread_had_when_it_was_killed_is_done_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        done: list[Work] = []
        threads = ThreadPool[Work](WorkerPoolSize(1, 1), done.extend, "killed")
        killers = [SystemExit(), KeyboardInterrupt()]

        def fatal() -> None:
            if killers:
                raise killers.pop()

        pieces = [Work(fatal), Work(lambda: None)]
        threads.submit(pieces)
        await threads.wait_done()
        assert done == pieces
        threads.end()
        await gone("turbopump-killed")

    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    run(scene())


def test_coroutines_come_until_there_are_enough() -> None:
    async def scene() -> None:
        door, inside, most = asyncio.Event(), 0, 0

        async def attend() -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await door.wait()
            inside -= 1

        done: list[Work] = []
        size = WorkerPoolSize(1, 4)
        pool = CoroutinePool[Work](size, done.extend, SystemClock())
        pool.submit([Work(attend) for _ in range(10)])
        await asyncio.sleep(0.01)
        assert inside == 4
        size.max_workers = 6
        pool.resize()
        await asyncio.sleep(0.01)
        assert inside == 6
        door.set()
        await pool.wait_done()
        assert (len(done), most) == (10, 6)
        await pool.end()

    run(scene())


def test_a_handler_that_cancels_its_own_task_ends_nothing() -> None:
    async def scene() -> None:
        async def selfish() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        async def fine() -> None: ...

        done: list[Work] = []
        pool = CoroutinePool[Work](WorkerPoolSize(1, 1), done.extend, SystemClock())
        pool.submit([Work(selfish), Work(fine), Work(selfish), Work(fine)])
        await pool.wait_done()
        assert len(done) == 4
        await pool.end()

    run(scene())


def test_a_coroutine_that_is_given_up_makes_room_for_another() -> None:
    async def scene() -> None:
        never = asyncio.Event()

        async def fine() -> None: ...

        done: list[Work] = []
        pool = CoroutinePool[Work](WorkerPoolSize(1, 1), done.extend, SystemClock())
        blocker, next_one = Work(never.wait), Work(fine)
        pool.submit([blocker, next_one])
        await asyncio.sleep(0.01)
        assert list(pool.in_progress()) == [blocker]
        pool.abandon(blocker)
        await pool.wait_done()
        assert done == [next_one]
        never.set()
        await asyncio.sleep(0.01)
        await pool.end()

    run(scene())


def test_handlers_that_never_wait_let_others_have_the_loop() -> None:
    async def scene() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def busy() -> None:
            sum(range(20_000))

        task = asyncio.create_task(other())
        pool = CoroutinePool[Work](WorkerPoolSize(20, 20), lambda done: None, SystemClock())
        pool.submit([Work(busy) for _ in range(400)])
        await pool.wait_done()
        assert turns > 3
        task.cancel()
        await pool.end()

    run(scene())


def test_slots_are_given_in_turn_and_their_number_may_change() -> None:
    async def scene() -> None:
        size = WorkerPoolSize(1, 1)
        slots, order = ConcurrencySlots(size), list[int]()

        async def hold(number: int) -> None:
            await slots.acquire()
            order.append(number)
            await asyncio.sleep(0.01)
            slots.release()

        tasks = [asyncio.create_task(hold(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert order == [0]
        tasks[1].cancel()
        size.max_workers = 2
        slots.resize()
        await asyncio.sleep(0.001)
        assert order == [0, 2]
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [0, 2, 3]

    run(scene())


def test_a_freed_slot_goes_to_the_task_that_has_waited_longest() -> None:
    async def scene() -> None:
        slots, order = ConcurrencySlots(WorkerPoolSize(1, 1)), list[str]()

        async def wait(name: str) -> None:
            await slots.acquire()
            order.append(name)
            slots.release()

        await slots.acquire()
        tasks = [asyncio.create_task(wait(name)) for name in ("first", "second")]
        await asyncio.sleep(0)
        slots.release()
        await slots.acquire()  # in the same turn of the loop: before the first has run
        order.append("the one that had it")
        slots.release()
        await asyncio.gather(*tasks)
        assert order == ["first", "second", "the one that had it"]

    run(scene())


def test_a_task_that_is_cancelled_when_it_has_its_slot_passes_it_on() -> None:
    async def scene() -> None:
        slots = ConcurrencySlots(WorkerPoolSize(1, 1))
        await slots.acquire()
        cancelled, next_one = (asyncio.create_task(slots.acquire()) for _ in range(2))
        await asyncio.sleep(0)
        slots.release()
        cancelled.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await next_one
        assert cancelled.cancelled()
        slots.release()
        async with asyncio.timeout(PATIENCE_S):
            await slots.acquire()

    run(scene())


def test_no_slot_is_given_while_more_are_taken_than_a_lowered_limit_allows() -> None:
    async def scene() -> None:
        size = WorkerPoolSize(1, 2)
        slots = ConcurrencySlots(size)
        await slots.acquire()
        await slots.acquire()
        size.max_workers = 1
        slots.resize()
        waiting = asyncio.create_task(slots.acquire())
        await asyncio.sleep(0)
        slots.release()
        await asyncio.sleep(0)
        assert not waiting.done()
        slots.release()
        async with asyncio.timeout(PATIENCE_S):
            await waiting

    run(scene())


@pytest.mark.parametrize("count", [1, 7, 500])
def test_no_piece_is_lost_between_many_threads(count: int) -> None:
    async def scene() -> None:
        done: list[Work] = []
        threads = ThreadPool[Work](WorkerPoolSize(1, 8), done.extend, "test")
        for _ in range(10):
            threads.submit([Work(lambda: None) for _ in range(count)])
            await asyncio.sleep(0)
        await threads.wait_done()
        assert len(done) == 10 * count
        threads.end()

    run(scene())
