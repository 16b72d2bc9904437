"""The event loop behind the blocking clients: one per process, in a daemon thread, begun when first needed.

Comes in: coroutines from any thread. Goes out: their results. A process that was forked begins a loop of its
own; what was open in its parent stays the parent's. When the interpreter ends, clients that are still open
are closed, each within its patience. What is never here: a client.
"""

import asyncio
import atexit
import concurrent.futures.thread  # it ends its threads at exit; what is registered after it ends before it
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

log = logging.getLogger(__name__)

THREAD_NAME = "turbopump-loop"
OWN_THREADS = ("turbopump", "asyncio_")
"""How the names of threads begin that nobody but us has started."""
BUSY_S = 10.0  # without a sign of life of the loop
SPARE_S = 2.0  # beside the patience of those that are closed at exit

T = TypeVar("T")

Close = Callable[[], Coroutine[Any, Any, None]]


def run(
    coroutine: Coroutine[Any, Any, T],
    timeout: float | None = None,
    unwanted: Callable[[T], object] | None = None,
) -> T:
    """Its result, from any thread but that of a running event loop. Whatever interrupts the wait (Ctrl-C, a
    signal handler that raises, `timeout`) cancels the coroutine; if it was done already, `unwanted` gets the
    result, on the loop.

    >>> async def answer() -> int:
    ...     return 42
    >>> run(answer())
    42
    """
    refuse_inside_loop(coroutine)
    with _closing_what_cannot_begin(coroutine):
        call = _Call(coroutine, _current(), unwanted)
        call.begin()
    return call.wait(timeout)


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Begins it on the background loop, in the order of calls. Cancelling the future cancels it."""
    with _closing_what_cannot_begin(coroutine):
        here = _current()
        promise = _Promise(lambda: here.loop.create_task(coroutine), here)
        here.post(promise.begin)
    return promise


def begin(start: Callable[[], asyncio.Future[T]]) -> concurrent.futures.Future[T]:
    """The same for what makes its task itself: `start` is called on the loop."""
    with _closing_what_cannot_begin():
        here = _current()
        promise = _Promise(start, here)
        here.post(promise.begin)
    return promise


class _Call(Generic[T]):
    """A coroutine that one thread waits for: half the cost (16 us) of asyncio's own bridge, which is made for
    futures that anybody may hold.
    """

    __slots__ = ("_background", "_coroutine", "_done", "_error", "_loop", "_result", "_task", "_unwanted")

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

    def begin(self) -> None:
        self._background.post(self._make_task)

    def wait(self, timeout: float | None) -> T:
        try:
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
        """Raises EventLoopBlocked when the loop gives no sign of life for BUSY_S."""
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
        if self._task.done():
            if self._unwanted is not None and self._error is None:
                self._unwanted(self._result)
            return
        self._task.cancel()
        self._task.add_done_callback(lambda _: self._coroutine.close())  # it may not have begun


class _Promise(concurrent.futures.Future[T]):
    """What a task on the loop will bring. Cancelling it cancels the task."""

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
    """A loop that is closed, or no more threads: the interpreter is ending."""
    try:
        yield
    except RuntimeError as error:
        if coroutine is not None:
            coroutine.close()
        raise NotRunning(f"the interpreter is ending ({error})") from None


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """The same items for a `for` loop. Leaving the loop early closes an async generator."""
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
    """Raises InsideEventLoop where waiting would stop the loop that has to do the work, or a user's own."""
    if asyncio._get_running_loop() is None or (_is_notebook() and not is_here()):
        return
    if coroutine is not None:
        coroutine.close()
    raise InsideEventLoop(
        "this call waits, and would stop the event loop that runs in its thread; "
        "turbopump.aio has the same names for `await`"
    )


def _is_notebook() -> bool:
    """Jupyter runs every cell inside its event loop, which is used to waiting for the cell."""
    return "ipykernel" in sys.modules


def is_here() -> bool:
    """Whether the caller runs on the background loop itself, as an `async def` handler does."""
    return _here is not None and asyncio._get_running_loop() is _here.loop


# --- what is open ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class OpenClient:
    """A client that is closed when the interpreter ends."""

    close: Close
    patience_s: float


def keep(close: Close, patience_s: float) -> OpenClient:
    """To be closed at exit, unless `let_go` comes first."""
    one = OpenClient(close, patience_s)
    _current().open[one] = None
    return one


def let_go(one: OpenClient) -> None:
    """It is closed already."""
    _current().open.pop(one, None)


# --- the loop of this process ----------------------------------------------------------------------------


class _BackgroundLoop:
    def __init__(self) -> None:
        self.loop = _new_loop()
        self.open: dict[OpenClient, None] = {}
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
                log.error("%s in the event loop of the blocking clients; it goes on", type(error).__name__)
        self.loop.run_until_complete(self._cancel_all())
        self.loop.close()

    def post(self, begin: Callable[[], None]) -> None:
        """To be called on the loop, in the order of posts. All that come while the loop is busy cost one
        wake-up. Raises RuntimeError when the loop is closed.
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
        """Those that are there: whoever posts from now on calls again."""
        self._is_called = False
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    def where(self) -> str:
        """What the loop's thread does at this moment."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        if frame is None:
            return "nowhere: its thread has ended"
        return f"in {frame.f_code.co_name} ({frame.f_code.co_filename}, line {frame.f_lineno})"

    async def _cancel_all(self) -> None:
        """Whoever still waits for something is told."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def end(self) -> None:
        """Closes what is open, all together, then the loop."""
        patience_s = max((one.patience_s for one in self.open), default=0.0) + SPARE_S
        try:
            if self.open:
                asyncio.run_coroutine_threadsafe(self._close_all(), self.loop).result(patience_s)
        except TimeoutError:
            log.warning("Clients were still closing after %s s, when the interpreter ended", patience_s)
        finally:
            self._is_ending = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(SPARE_S)

    async def _close_all(self) -> None:
        results = await asyncio.gather(*(one.close() for one in self.open), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                log.warning("A client could not be closed at exit: %s", error)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_here: _BackgroundLoop | None = None
_lock = threading.Lock()
_of_parents: list[object] = []
"""Never touched and never freed: their sockets and loops are shared with the parent."""
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
    """How many forks lie between the first process and this: what was made at another count is not ours."""
    _look_for_fork()
    return _forks


def lock() -> threading.Lock:
    """Held for a moment by who makes something anew after a fork. A new one in each process."""
    return _lock


def leave_to_parent(what: object) -> None:
    _of_parents.append(what)


def _look_for_fork() -> None:
    """A process that was forked past Python, as uWSGI does, has run no hook."""
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
    """Twice: before the threads of executors are ended, so that listeners at work can finish, and after all
    other threads have ended, which may still be sending when the first moment comes.
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
    """Not when the loop's own thread ends the interpreter: it would wait for itself."""
    if _here is not None and not _here.loop.is_closed() and threading.current_thread() is not _here.thread:
        _here.end()
