"""Ownership of background tasks: each `asyncio.Task` belongs to one `Tasks`, which ends it.

asyncio keeps only weak references to tasks, reports a failure when the task is garbage collected, and leaves
cancelling and waiting, in the right order, to every caller. All of that is here, once. What a task does, and
whether it is started again after a failure, is its owner's business.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

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
        self._running: set[asyncio.Task[Any]] = set()

    def start(
        self, coroutine: Coroutine[Any, Any, T], name: str | None = None, *, log_failure: bool = True
    ) -> "asyncio.Task[T]":
        """Starts a task in the running loop and returns it. This object owns the task until it ends.

        A failure is logged once, with its traceback. `log_failure=False` is for a task that its starter
        awaits: the failure is raised there.
        """
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended if log_failure else self._running.discard)
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

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            work = getattr(task.get_coro(), "__qualname__", "")
            self._log.error("Background task %s (%s) failed", task.get_name(), work, exc_info=error)
