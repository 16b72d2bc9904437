"""Worker pools that call the handlers: coroutines for `async def`, threads for `def`, both of limited size.

A free worker takes one item of work at a time, so a slow message holds up no other. No worker is started or
woken for each message: a worker that finds more work than its own brings in a second one, and so on, while
one worker calls the handlers of a busy queue in a row. Results of threads come back to the loop together.
"""

import asyncio
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

TURN_S = 0.005  # how long handlers that never wait may run before other tasks of the loop get a turn
CANCEL_S = 1.0
_numbers = itertools.count(1)


@dataclass(slots=True)
class WorkerPoolSize:
    """The size of a worker pool, which may change at any time.

    `min_workers` stay when there is nothing to do, `max_workers` work at the same time.
    """

    min_workers: int
    max_workers: int


async def cancel_and_wait(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels tasks and waits at most CANCEL_S for them: a handler may ignore its cancellation."""
    these = [task for task in tasks if task is not asyncio.current_task()]
    for task in these:
        task.cancel()
    if these:
        await asyncio.wait(these, timeout=CANCEL_S)


class WorkItem(Protocol):
    """An item of work for a pool. None of its methods raises."""

    capacity: int
    """How much more of the same kind it could take over; 0 for most."""

    def absorb(self, other: Any) -> bool:
        """Takes over the work of another item; False: it took nothing, the other does not fit."""

    def run(self) -> None:
        """Does the work in the calling thread, a worker of a `ThreadPool`."""

    def deliver(self) -> Coroutine[Any, Any, bool]:
        """Does the work on the loop; False: it failed, perhaps because its task was cancelled."""


P = TypeVar("P", bound=WorkItem)


class WorkerPool(Generic[P]):
    """Base of both worker pools: the items that wait and those that are finished.

    `collect` gets finished items, several at a time, always on the loop.
    """

    def __init__(self, size: WorkerPoolSize, collect: Callable[[list[P]], None]) -> None:
        self._size = size
        self._collect = collect
        self._loop = asyncio.get_running_loop()
        self._work: deque[P] = deque()
        self._done: deque[P] = deque()
        # The loop is going to run `_collect_done`: further finished items need no call of their own.
        self._is_collecting = False
        # A worker was woken or started and has not taken work yet: no second one is needed before it has.
        self._is_worker_coming = False
        self._open = 0
        self._all_done = asyncio.Event()
        self._all_done.set()

    def submit(self, items: Sequence[P]) -> None:
        """Queues items for the workers, which begin them in this order, several at a time."""
        self._open += len(items)
        self._all_done.clear()
        self._work.extend(items)
        self._add_worker()

    def discard_waiting(self) -> None:
        """Drops the items that no worker has begun."""
        discarded = 0
        while self._work:
            try:
                self._work.popleft()
            except IndexError:  # a thread took the last one between the test and the pop
                break
            discarded += 1
        self._finished(discarded)

    async def wait_done(self) -> None:
        """Waits until no item is queued or running."""
        await self._all_done.wait()

    def _top_up(self, item: P) -> None:
        """Merges the next waiting items into this one while they belong together: a full batch is best."""
        work = self._work
        while item.capacity and work:
            try:
                following = work.popleft()
            except IndexError:  # a thread took it between the test and the pop
                return
            if not item.absorb(following):
                work.appendleft(following)
                return
            # An absorbed item counts as finished, or `wait_done` would wait for it.
            self._done.append(following)

    def _collect_done(self) -> None:
        # Reset before reading: a thread that finishes from here on schedules another call.
        self._is_collecting = False
        done = self._done
        items = [done.popleft() for _ in range(len(done))]
        self._collect(items)
        self._finished(len(items))
        self._add_worker()

    def _finished(self, count: int) -> None:
        self._open -= count
        if self._open <= 0:
            self._all_done.set()

    def _add_worker(self) -> None:
        raise NotImplementedError


class CoroutinePool(WorkerPool[P]):
    """A worker pool of asyncio tasks, for `async def` handlers."""

    def __init__(self, size: WorkerPoolSize, collect: Callable[[list[P]], None], clock: Clock) -> None:
        super().__init__(size, collect)
        self._clock = clock
        self._idle: list[asyncio.Future[None]] = []
        self._tasks = Tasks(log)
        # Every worker that counts, with the item it works on. A worker whose item was abandoned is not here.
        self._in_progress: dict[asyncio.Task[None], P | None] = {}
        self._stopped = False

    def in_progress(self) -> Iterable[P]:
        """Returns the items that workers have begun and not finished."""
        return [item for item in self._in_progress.values() if item is not None]

    def abandon(self, item: P) -> None:
        """Gives up an item that takes too long: its worker counts no more, and another may take its place."""
        for task, own in list(self._in_progress.items()):
            if own is item:
                del self._in_progress[task]
                self._finished(1)
                self._add_worker()

    def resize(self) -> None:
        """Applies a changed pool size: ends idle workers if there are too many, adds one if work waits."""
        if len(self._in_progress) > self._size.max_workers:
            # Idle workers wake up, see that there are too many, and leave.
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()
        self._add_worker()

    async def end(self) -> None:
        """Cancels the workers, waits at most CANCEL_S; an item that the cancellation ends is not finished."""
        self._stopped = True
        await cancel_and_wait(self._in_progress)

    def _add_worker(self) -> None:
        """Wakes an idle worker, or starts one, if there is work and no worker is coming already."""
        if self._is_worker_coming or not self._work:
            return
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                self._is_worker_coming = True
                waiter.set_result(None)
                return
        if len(self._in_progress) < self._size.max_workers:
            self._is_worker_coming = True
            task = self._tasks.start(self._serve(), log_failure=False)
            self._in_progress[task] = None
            task.add_done_callback(self._exited)

    async def _serve(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        work, done, in_progress = self._work, self._done, self._in_progress
        monotonic = self._clock.monotonic
        self._is_worker_coming = False
        turn_s = monotonic()
        # `abandon` removes this worker while its handler hangs: then it must not touch the pool again.
        while me in in_progress:
            if len(in_progress) > self._size.max_workers:
                del in_progress[me]
                return
            if not work:
                in_progress[me] = None
                if not await self._wait_idle(me):
                    return
                turn_s = monotonic()
                continue
            item = in_progress[me] = work.popleft()
            if item.capacity and work:
                self._top_up(item)
            # There is more than this worker can do at once: bring in one more before the handler runs.
            if work and not self._is_worker_coming:
                self._add_worker()
            succeeded = await item.deliver()
            # Abandoned meanwhile, or the pool ended: the item is not ours to finish.
            if me not in in_progress or not (succeeded or self._survives_cancellation(me)):
                return
            done.append(item)
            if not self._is_collecting:
                self._is_collecting = True
                self._loop.call_soon(self._collect_done)
            # Handlers that never wait would keep the loop from all other tasks.
            if monotonic() - turn_s > TURN_S:
                in_progress[me] = None
                await asyncio.sleep(0)
                turn_s = monotonic()

    async def _wait_idle(self, me: asyncio.Task[None]) -> bool:
        """Waits until a worker is needed; False: enough others wait, so this worker ends."""
        if self._idle and len(self._in_progress) > self._size.min_workers:
            del self._in_progress[me]
            return False
        waiter = self._loop.create_future()
        self._idle.append(waiter)
        await waiter
        self._is_worker_coming = False
        return True

    def _survives_cancellation(self, me: asyncio.Task[None]) -> bool:
        """Clears a cancellation that the handler caused; False: the pool was ended, so the worker must end.

        A cancellation by the handler is a failure like any other.
        """
        while me.cancelling() and not self._stopped:
            me.uncancel()
        return not self._stopped

    def _exited(self, task: asyncio.Task[None]) -> None:
        unfinished = self._in_progress.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A worker of the consumer failed", exc_info=error)
        self._is_worker_coming = False
        if not self._stopped:
            if unfinished is not None:  # the worker was killed: another one does its item
                self._work.appendleft(unfinished)
            self._add_worker()


class ThreadPool(WorkerPool[P]):
    """A worker pool of daemon threads, for `def` handlers.

    A thread that never comes back keeps neither the consumer nor the process from ending. `submit` is called
    on the loop; the deques and flags are shared with the threads without a lock, because each operation on
    them is atomic under the GIL. Every path that could miss a change looks again after it has announced
    itself.
    """

    def __init__(self, size: WorkerPoolSize, collect: Callable[[list[P]], None], name: str) -> None:
        super().__init__(size, collect)
        self._name = f"turbopump-{name}"
        self._idle: list[_WorkerThread[P]] = []
        self._workers: dict[_WorkerThread[P], None] = {}
        self._spawn_lock = threading.Lock()

    def in_progress(self) -> Iterable[P]:
        """Returns the items that threads have begun and not finished."""
        return [thread.item for thread in list(self._workers) if thread.item is not None]

    def abandon(self, item: P) -> None:
        """Gives up an item that takes too long: its thread counts no more, and another may take its place."""
        for thread in list(self._workers):
            if thread.item is item:
                thread.is_abandoned = True
                self._workers.pop(thread, None)
                self._finished(1)
                self._add_worker()

    def resize(self) -> None:
        """Applies a changed pool size: ends idle threads if there are too many, adds one if work waits."""
        for _ in range(len(self._workers) - self._size.max_workers):
            self._wake_one()  # it sees that there are too many, and leaves; a busy one sees it afterwards
        self._add_worker()

    def end(self) -> None:
        """Ends the threads; a busy one ends when its handler returns."""
        for thread in list(self._workers):
            thread.is_abandoned = True
        while self._wake_one():
            pass

    # Called by the threads

    def take(self, thread: "_WorkerThread[P]") -> P | None:
        """Waits for the next item and returns it to the thread that works on it; None: the thread ends."""
        while not thread.is_abandoned and len(self._workers) <= self._size.max_workers:
            try:
                item = thread.item = self._work.popleft()
            except IndexError:
                if len(self._workers) > self._size.min_workers and self._idle:
                    return None
                self._idle.append(thread)
                # Work that came between the pop and the append found no idle thread to wake: look again. The
                # thread that `_wake_one` picks may be this one; its lock is then released before it waits.
                if self._work or thread.is_abandoned:
                    self._wake_one()
                thread.wake.acquire()
                self._is_worker_coming = False
                continue
            if item.capacity and self._work:
                self._top_up(item)
            # There is more than this thread can do at once: bring in one more before the handler runs.
            if self._work and not self._is_worker_coming:
                self._add_worker()
            return item
        return None

    def give_back(self, thread: "_WorkerThread[P]", item: P) -> None:
        """Passes a finished item to the event loop, unless it was abandoned meanwhile."""
        thread.item = None
        if thread.is_abandoned:
            return
        self._done.append(item)
        self._schedule_collect()

    def started(self) -> None:
        """Notes that a new thread has begun to take work."""
        self._is_worker_coming = False

    def exited(self, thread: "_WorkerThread[P]") -> None:
        """Removes a thread that ends; an item that it did not finish goes to another."""
        self._workers.pop(thread, None)
        if thread.item is not None and not thread.is_abandoned:  # the thread was killed by an exception
            self._work.appendleft(thread.item)
        self._is_worker_coming = False
        self._schedule_collect()

    def _schedule_collect(self) -> None:
        # Two threads may both see False and schedule twice: the second call then collects nothing.
        if not self._is_collecting:
            self._is_collecting = True
            try:
                self._loop.call_soon_threadsafe(self._collect_done)
            except RuntimeError:  # the loop is closed: the result is not needed any more
                return

    # Called from any thread

    def _wake_one(self) -> bool:
        try:
            thread = self._idle.pop()
        except IndexError:
            return False
        thread.wake.release()
        return True

    def _add_worker(self) -> None:
        """Wakes an idle thread, or starts one, if there is work and no thread is coming already."""
        if self._is_worker_coming or not self._work:
            return
        self._is_worker_coming = True  # until it has taken work
        if self._wake_one():
            return
        # The lock keeps two threads from starting one more than the limit allows.
        with self._spawn_lock:
            if len(self._workers) < self._size.max_workers:
                self._spawn()
            else:
                self._is_worker_coming = False

    def _spawn(self) -> None:
        thread = _WorkerThread(self, f"{self._name}-{next(_numbers)}")
        self._workers[thread] = None
        try:
            thread.start()
        except RuntimeError as error:  # the system allows no more threads: those that run do the work
            log.warning("Cannot start a thread for a handler: %s", error)
            del self._workers[thread]
            self._is_worker_coming = False


class _WorkerThread(threading.Thread, Generic[P]):
    def __init__(self, pool: ThreadPool[P], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._pool = pool
        # Held while the thread runs: releasing it once wakes the thread, also before it waits.
        self.wake = threading.Lock()
        self.wake.acquire()
        self.is_abandoned = False
        self.item: P | None = None

    def run(self) -> None:
        pool = self._pool
        pool.started()
        try:
            while (item := pool.take(self)) is not None:
                item.run()
                pool.give_back(self, item)
        finally:
            pool.exited(self)


class ConcurrencySlots:
    """Limits how many tasks do something at the same time; the limit may change while slots are taken."""

    def __init__(self, size: WorkerPoolSize) -> None:
        self._size = size
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Takes a free slot, or waits for one: first come, first served."""
        if self._taken < self._size.max_workers and not self._waiting:
            self._taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            # Given a slot and cancelled in the same turn of the loop: the slot goes to the next one.
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Frees a slot."""
        self._taken -= 1
        self._give_free()

    def resize(self) -> None:
        """Applies a changed limit: gives free slots to waiting tasks."""
        self._give_free()

    def _give_free(self) -> None:
        # The slot is taken here, not when the task runs: a task that comes in between does not get it.
        while self._waiting and self._taken < self._size.max_workers:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                self._taken += 1
                turn.set_result(None)
