"""The event loop behind the blocking clients: one per process, in a daemon thread, started when first needed.

In: coroutines from any thread. Out: their results. A forked process starts a loop of its own; what was open
in its parent stays with the parent. When the interpreter ends, clients that are still open are closed, each
within its time limit. What is never here: a client.
"""

import asyncio
import atexit
import concurrent.futures.thread  # registers its exit handler before ours, so it runs after ours
import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from turbopump.client.errors import EventLoopBlocked, InsideEventLoop, NotRunning
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

THREAD_NAME = "turbopump-loop"
OWN_THREADS = ("turbopump", "asyncio_")
"""Prefixes of the names of threads that belong to this client."""
BUSY_S = 10.0  # how long the loop may not respond before it counts as blocked
SPARE_S = 2.0  # added to the time limits of the clients that are closed at exit

T = TypeVar("T")

Close = Callable[[], Coroutine[Any, Any, None]]


def run(
    coroutine: Coroutine[Any, Any, T],
    timeout: float | None = None,
    unwanted: Callable[[T], object] | None = None,
) -> T:
    """Blocks until a coroutine has run on the background loop; returns its result. Not in an event loop.

    Whatever interrupts the wait (Ctrl-C, a signal handler that raises, `timeout`) cancels the coroutine; if
    it was done already, `unwanted` gets the result, on the loop.

    >>> async def answer() -> int:
    ...     return 42
    >>> run(answer())
    42
    """
    refuse_inside_loop(coroutine)
    with _closing_what_cannot_begin(coroutine):
        call = _Call(coroutine, _current(), unwanted)
    return call.wait(timeout)


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Starts a coroutine on the background loop, in call order, and returns its future without waiting.

    Cancelling the future cancels the coroutine.
    """
    with _closing_what_cannot_begin(coroutine):
        here = _current()
        promise = _Promise(lambda: here.submitted.start(coroutine, log_failure=False), here)
        here.post(promise.begin)
    return promise


def begin(start: Callable[[], asyncio.Future[T]]) -> concurrent.futures.Future[T]:
    """Calls `start` on the background loop and returns a future of its task, without waiting.

    Cancelling the future cancels the task.
    """
    with _closing_what_cannot_begin():
        here = _current()
        promise = _Promise(start, here)
        here.post(promise.begin)
    return promise


class _Call(Generic[T]):
    """A coroutine on the background loop for whose result exactly one thread waits.

    It costs 16 us, half of asyncio's own bridge, whose futures may have any number of holders.
    """

    __slots__ = (
        "_background",
        "_coroutine",
        "_done",
        "_error",
        "_is_cancelled",
        "_loop",
        "_result",
        "_task",
        "_unwanted",
    )

    _result: T

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        background: "_BackgroundLoop",
        unwanted: Callable[[T], object] | None = None,
    ) -> None:
        self._coroutine = coroutine
        self._background = background
        self._unwanted = unwanted
        self._loop = background.loop
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False

    def begin(self) -> None:
        self._background.post(self._make_task)

    def wait(self, timeout: float | None) -> T:
        """Starts the coroutine, and blocks until it has run; returns its result."""
        try:
            # Within the `try`: an interruption may come before this thread goes on, when it runs already.
            with _closing_what_cannot_begin(self._coroutine):
                self.begin()
            is_done = self._is_done_some_time() if timeout is None else self._done.acquire(timeout=timeout)
        except BaseException:  # Ctrl-C, or what a signal handler raised
            self._cancel()
            raise
        if not is_done:
            self._cancel()
            raise TimeoutError(f"not done within {timeout} s")
        if self._error is None:
            return self._result
        error, self._error = self._error, None
        if isinstance(error, asyncio.CancelledError):
            raise NotRunning("the client was closed while this call was under way") from None
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def _is_done_some_time(self) -> bool:
        """Waits until done, returns True. Raises EventLoopBlocked if the loop does not respond for BUSY_S."""
        while not self._done.acquire(timeout=BUSY_S):
            lives = threading.Event()
            with _closing_what_cannot_begin():
                self._loop.call_soon_threadsafe(lives.set)
            if not lives.wait(BUSY_S) and not self._done.acquire(timeout=BUSY_S / 10):
                raise EventLoopBlocked(
                    f"the event loop of the blocking clients has been busy for {BUSY_S} s "
                    f"{self._background.where()}; an `async def` handler must not block: write `def`, "
                    "which runs in a thread"
                )
        return True

    def _make_task(self) -> None:
        # Not by `Tasks`, which would add a tenth to its cost: the waiting thread refers to the task,
        # and `_work` hands it every failure.
        if not self._is_cancelled:
            self._task = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            self._result = await self._coroutine
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def _cancel(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        self._is_cancelled = True
        if self._task is None:  # interrupted before it was posted
            self._coroutine.close()
            return
        if self._task.done():
            if self._unwanted is not None and self._error is None:
                self._unwanted(self._result)
            return
        self._task.cancel()
        self._task.add_done_callback(lambda _: self._coroutine.close())  # it may not have begun


class _Promise(concurrent.futures.Future[T]):
    """Thread-safe future of a task on the background loop; cancelling the future cancels the task."""

    def __init__(self, start: Callable[[], asyncio.Future[T]], background: "_BackgroundLoop") -> None:
        super().__init__()
        self._start = start
        self._background = background

    def begin(self) -> None:
        try:
            self._work = self._start()
        except BaseException as error:
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # cancelled meanwhile
                self.set_exception(error)
            return
        self._work.add_done_callback(self._settle)
        if self.cancelled():
            self._work.cancel()

    def cancel(self) -> bool:
        if self.done() or not super().cancel():
            return self.cancelled()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._background.post(self._cancel_work)
        return True

    def _cancel_work(self) -> None:
        if (work := getattr(self, "_work", None)) is not None:
            work.cancel()

    def _settle(self, work: asyncio.Future[T]) -> None:
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # cancelled meanwhile
            if work.cancelled():
                super().cancel()
            elif (error := work.exception()) is not None:
                self.set_exception(error)
            else:
                self.set_result(work.result())


@contextlib.contextmanager
def _closing_what_cannot_begin(coroutine: Coroutine[Any, Any, Any] | None = None) -> Iterator[None]:
    """Turns a RuntimeError of its block (the interpreter ends) into NotRunning and closes `coroutine`."""
    try:
        yield
    except RuntimeError as error:
        if coroutine is not None:
            coroutine.close()
        raise NotRunning(f"the interpreter is ending ({error})") from None


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """Yields the items of an async iterator to blocking code; leaving early closes an async generator."""
    try:
        while (item := run(_next(items))) is not _END:
            yield item  # type: ignore[misc]
    finally:
        if (close := getattr(items, "aclose", None)) is not None:
            with contextlib.suppress(NotRunning):
                submit(close())  # without waiting: a generator may be freed in any thread


_END = object()


async def _next(items: AsyncIterator[T]) -> T | object:
    return await anext(items, _END)


def refuse_inside_loop(coroutine: Coroutine[Any, Any, Any] | None = None) -> None:
    """Closes `coroutine` and raises InsideEventLoop in a thread whose running event loop would be blocked.

    Jupyter's own loop is exempt: it waits for each cell anyway.
    """
    if asyncio._get_running_loop() is None or (_is_notebook() and not is_here()):
        return
    if coroutine is not None:
        coroutine.close()
    raise InsideEventLoop(
        "this call waits, and would block the event loop that runs in its thread: "
        "turbopump.aio has the same names for `await`"
    )


def _is_notebook() -> bool:
    """Returns whether this is Jupyter, which runs each cell inside its event loop and waits for it anyway."""
    return "ipykernel" in sys.modules


def is_here() -> bool:
    """Returns whether the caller runs on the background loop, as an `async def` handler does."""
    return _here is not None and asyncio._get_running_loop() is _here.loop


# --- open clients ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class OpenClient:
    """The `close` of a client to call at interpreter exit, and the seconds that closing may take."""

    close: Close
    patience_s: float


def keep(close: Close, patience_s: float) -> OpenClient:
    """Registers a client to be closed at interpreter exit; `let_go` with the result unregisters it."""
    one = OpenClient(close, patience_s)
    _current().open[one] = None
    return one


def let_go(one: OpenClient) -> None:
    """Unregisters a client that was closed, so that the exit handler does not close it again."""
    _current().open.pop(one, None)


# --- the loop of this process ----------------------------------------------------------------------------


class _BackgroundLoop:
    def __init__(self) -> None:
        self.loop = _new_loop()
        self.open: dict[OpenClient, None] = {}
        self.submitted = Tasks(log)
        self._posted: deque[Callable[[], None]] = deque()
        self._is_called = False
        self._is_ending = False
        self.thread = threading.Thread(target=self._serve, name=THREAD_NAME, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_ending:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # asyncio lets these two out of any task
                log.error("%s in the event loop of the blocking clients; continuing", type(error).__name__)
        self.loop.run_until_complete(self._cancel_all())
        self.loop.close()

    def post(self, begin: Callable[[], None]) -> None:
        """Schedules `begin` on the loop, from any thread, after everything posted before.

        All posts that come while the loop is busy cost one wake-up. Raises RuntimeError when the loop is
        closed.
        """
        self._posted.append(begin)
        if not self._is_called:
            self._is_called = True
            try:
                self.loop.call_soon_threadsafe(self._take)
            except BaseException:
                self._is_called = False
                raise

    def _take(self) -> None:
        """Runs all posted calls, on the loop; a later `post` schedules `_take` again."""
        self._is_called = False
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    def where(self) -> str:
        """Returns as text the function, file and line that the loop's thread executes now."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        if frame is None:
            return "nowhere: its thread has ended"
        return f"in {frame.f_code.co_name} ({frame.f_code.co_filename}, line {frame.f_lineno})"

    async def _cancel_all(self) -> None:
        """Cancels all other tasks of the loop, so that threads that still wait for one get an error."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def end(self) -> None:
        """Closes the open clients concurrently, within time limits, then stops the loop and its thread."""
        patience_s = max((one.patience_s for one in self.open), default=0.0) + SPARE_S
        try:
            if self.open:
                asyncio.run_coroutine_threadsafe(self._close_all(), self.loop).result(patience_s)
        except TimeoutError:
            log.warning("Clients did not close within %s s at the end of the interpreter", patience_s)
        finally:
            self._is_ending = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(SPARE_S)

    async def _close_all(self) -> None:
        results = await asyncio.gather(*(one.close() for one in self.open), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                log.warning("Cannot close a client at exit: %s", error)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_here: _BackgroundLoop | None = None
_lock = threading.Lock()
_of_parents: list[object] = []
"""Objects of parent processes, never used and never freed: their sockets and loops are shared."""
_forks = 0
_pid = os.getpid()
_is_registered = False


def _current() -> _BackgroundLoop:
    global _here
    _look_for_fork()
    if _here is None:
        with _lock:
            if _here is None:
                _register()
                _here = _BackgroundLoop()
    return _here


def forks() -> int:
    """Returns the fork generation of this process: 0 in the first one, one more after each fork."""
    _look_for_fork()
    return _forks


def lock() -> threading.Lock:
    """Returns the lock that is held while a client is made again after a fork; a new one in each process."""
    return _lock


def leave_to_parent(what: object) -> None:
    """Keeps a reference to the parent process's object for ever, so that it is never finalized here."""
    _of_parents.append(what)


def _look_for_fork() -> None:
    """Resets this module's state after a fork that ran no Python fork hook, such as uWSGI's."""
    if os.getpid() != _pid:
        _after_fork()


def _after_fork() -> None:
    global _here, _lock, _forks, _pid
    _pid = os.getpid()
    if _here is not None:
        leave_to_parent(_here)
    _here, _lock = None, threading.Lock()
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# --- the end of the interpreter --------------------------------------------------------------------------


def _register() -> None:
    """Registers, once per process, the two exit handlers that end the background loop.

    The first runs before the threads of executors end, so that running listeners can finish; the second after
    all other threads have ended, which may still be sending when the first runs.
    """
    global _is_registered
    if _is_registered:
        return
    _is_registered = True
    atexit.register(_end)
    with contextlib.suppress(AttributeError, RuntimeError):
        threading._register_atexit(_end_if_alone)  # type: ignore[attr-defined]


def _end_if_alone() -> None:
    if not any(_is_foreign(thread) for thread in threading.enumerate()):
        _end()


def _is_foreign(thread: threading.Thread) -> bool:
    return (
        not thread.daemon
        and thread is not threading.main_thread()
        and not thread.name.startswith(OWN_THREADS)
    )


def _end() -> None:
    """Closes the open clients and the background loop at exit; does nothing in the loop's own thread."""
    if _here is not None and not _here.loop.is_closed() and threading.current_thread() is not _here.thread:
        _here.end()
