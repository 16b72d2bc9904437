"""Ownership of tasks: each `asyncio.Task` belongs to a `Tasks`, a `TaskScope` or a `SharedTask`.

asyncio keeps only weak references to tasks, reports a failure when the task is garbage collected, and leaves
cancelling and waiting, in the right order, to every caller. All of that is here, once. What a task does, and
whether it is started again after a failure, is its owner's business.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class Tasks:
    """Owns background tasks: keeps them referenced, logs their failures, cancels and awaits them at the end.

        self._tasks = Tasks(log)
        self._tasks.start(self._sweep(), name="close idle connections")
        ...
        await self._tasks.close()

    `log` is the owner's logger, so that the line of a failure names the module it belongs to.
    """

    __slots__ = ("_log", "_running")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._running: dict[asyncio.Task[Any], None] = {}  # in the order of their starts, which `close` keeps

    def start(
        self, coroutine: Coroutine[Any, Any, T], name: str | None = None, *, log_failure: bool = True
    ) -> "asyncio.Task[T]":
        """Starts a task in the running loop and returns it. This object owns the task until it ends.

        A failure is logged once, with its traceback. `log_failure=False` is for a task that its starter
        awaits: the failure is raised there.
        """
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended if log_failure else self._forget)
        return task

    async def cancel(self, task: "asyncio.Task[Any]") -> None:
        """Cancels a task and waits until it has ended, however it ends. Does nothing if it has ended before.

        The failure of a task is not raised here. A cancellation of the caller is.
        """
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))

    async def close(self) -> None:
        """Cancels all tasks and waits until they have ended, also those started meanwhile. May be repeated.

        They are cancelled in the order of their starts, so that a run in virtual time can be repeated.
        A task of this owner may call it: it is the only one that is not cancelled, since it cannot wait for
        its own end.
        """
        caller = asyncio.current_task()
        while running := [task for task in self._running if task is not caller]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    async def wait(self) -> None:
        """Waits until all tasks have ended by themselves, also those started meanwhile."""
        while self._running:
            await asyncio.wait(tuple(self._running))

    def __len__(self) -> int:
        """The number of tasks that have not ended."""
        return len(self._running)

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._running.pop(task, None)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._forget(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            work = getattr(task.get_coro(), "__qualname__", "")
            self._log.error("Background task %s (%s) failed", task.get_name(), work, exc_info=error)


class SharedTask:
    """Runs a coroutine once, however many callers wait for it.

        self._starting = SharedTask(self._start)
        ...
        await self._starting.wait()

    Cancelling a caller does not cancel it. Its failure is raised in every caller. A later caller gets the
    same result, or, with `repeats_failed`, runs it again after a failure.
    """

    __slots__ = ("_repeats_failed", "_task", "_work")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], repeats_failed: bool = False) -> None:
        self._work = work
        self._repeats_failed = repeats_failed
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Starts the coroutine unless it has begun before, waits for its end, and raises its failure."""
        task = self._task
        if task is None or (self._repeats_failed and _has_failed(task)):
            task = self._task = asyncio.get_running_loop().create_task(self._work())
        await asyncio.shield(task)

    async def wait_ended(self) -> None:
        """Waits until the coroutine does not run any more, however it ends. Does not start it."""
        if self._task is not None:
            await asyncio.wait((self._task,))


def _has_failed(task: "asyncio.Task[None]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


class TaskScope:
    """Owns tasks that end with a block: the block waits for them, and a failure ends them all.

        async with TaskScope() as tasks:
            for queue in queues:
                tasks.start(self._follow(queue))

    The first failure cancels the other tasks and the block, and is raised when they have ended.
    """

    __slots__ = ("_group", "_running")

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: dict[asyncio.Task[Any], None] = {}

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Starts a task. Called within the block."""
        task = self._group.create_task(coroutine)
        self._running[task] = None
        task.add_done_callback(lambda ended: self._running.pop(ended, None))
        return task

    def cancel(self) -> None:
        """Cancels all tasks; the block then waits for their ends."""
        for task in list(self._running):
            task.cancel()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as failures:
            first = failures.exceptions[0]
            raise first from first.__cause__


async def call_concurrently(
    ask: Callable[[K], Awaitable[T]], items: Iterable[K], max_concurrent: int | None = None
) -> list[T]:
    """Calls `ask` for all items and returns the results in their order. A failure cancels the other calls."""
    turns = contextlib.nullcontext() if max_concurrent is None else asyncio.Semaphore(max_concurrent)

    async def one(item: K) -> T:
        async with turns:
            return await ask(item)

    async with TaskScope() as tasks:
        calls = [tasks.start(one(item)) for item in items]
    return [call.result() for call in calls]
