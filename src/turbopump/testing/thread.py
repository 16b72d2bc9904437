"""An event loop in its own thread, called from others: it runs the servers of a `with Cluster()`.

In virtual time the clients of the cluster run there too. Time then passes only while a call is under way, and
a call returns when everything that needs no time has happened: see docs/testing-your-code.md.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from turbopump.client.errors import NotRunning
from turbopump.testing.loop import Stuck, VirtualLoop

T = TypeVar("T")

THREAD_NAME = "turbopump-cluster"
ENDING_S = 10.0  # greatest wait for a thread that does not end


class LoopThread:
    """An event loop in a thread, with blocking calls from other threads."""

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop = make_loop()
        self._under_way: set[concurrent.futures.Future[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the loop and returns its result. An interrupt of the wait cancels it."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(
                "a blocking call must not be made in the loop of the cluster; it would wait for itself"
            )
        future = self._begin(coroutine, to_rest=True)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return self._begin(coroutine, to_rest=False)

    def close(self) -> None:
        """Cancels all remaining tasks, then closes the loop."""
        if self.loop.is_closed():
            return
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end_tasks(), self.loop).result(ENDING_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _begin(self, coroutine: Coroutine[Any, Any, T], to_rest: bool) -> concurrent.futures.Future[T]:
        if self.loop.is_closed():
            coroutine.close()
            raise NotRunning("the cluster of this client is closed")
        if isinstance(self.loop, VirtualLoop):
            coroutine = self.loop.accounted(coroutine, to_rest)
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        except Stuck as error:
            for task in asyncio.all_tasks(self.loop):  # they cannot be ended now; the error says why
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.loop.close()  # first, so that waiting callers find the loop closed
            for future in list(self._under_way):
                future.set_exception(error)


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
