"""An event loop in a thread of its own, asked from others: where the servers of a `with Cluster()` live.

In virtual time the clients of the cluster live there too. Time then passes only while a call is under way,
and a call returns when everything that needs no time has happened: see docs/testing-your-code.md.
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
ENDING_S = 10.0  # a thread that does not come back keeps nobody longer


class LoopThread:
    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop = make_loop()
        self._under_way: set[concurrent.futures.Future[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result. Whatever interrupts the wait cancels it."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this call would wait for the loop that it is made in")
        future = self._begin(coroutine, to_rest=True)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return self._begin(coroutine, to_rest=False)

    def close(self) -> None:
        """Ends every task that is left, then the loop."""
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
            for task in asyncio.all_tasks(self.loop):  # nobody can end them now, and the error says why
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.loop.close()  # first: whoever learns of it finds the loop closed
            for future in list(self._under_way):
                future.set_exception(error)


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
