"""The base of all blocking clients: calls an async client, the core, on the background loop.

A face holds no state except its core and the process that made it. After a fork the child makes a new core
from the same arguments: ids, sockets and names are new, those of the parent are not touched.
"""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar

from turbopump.client import background
from turbopump.client.errors import ClientError
from turbopump.runtime.tasks import SharedTask

MAX_FUTURES = 1024  # in flight, unless a setting says otherwise
CLOSING_S = 5.0  # for closing, in addition to the wait for listeners

T = TypeVar("T")


class Core(Protocol):
    """Interface of an async client that a blocking client wraps."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Core)
P = TypeVar("P")


class Face(Generic[C]):
    """Base of all blocking clients: runs an async client on the background loop. Any thread may call it."""

    _restarts_after_fork = True
    """Whether a client that was started in the parent is started in a child when it is first used there."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._core = make()
        self._forks = background.forks()
        self._open: background.OpenClient | None = None
        self._slots = self._new_slots()
        self._noted: dict[tuple[object, ...], Callable[[C], object]] = {}
        self._is_new_core = False
        self._is_restart_due = False
        self._restarting: SharedTask | None = None

    def __enter__(self) -> Self:
        self._start(lambda core: core.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(lambda core: core.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        name = f"{type(self).__name__} {getattr(self._core, 'group', '')}".strip()
        return f"<{name}, {'started' if self._open is not None else 'not started'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be sent to another process: make one there, with these arguments"
        )

    # Start and close

    def _start(self, start: Callable[[C], Coroutine[Any, Any, object]]) -> None:
        self._wait(self._started(self._of_this_process(), start))

    def _close(self, close: Callable[[C], Coroutine[Any, Any, object]] = lambda core: core.close()) -> None:
        core = self._of_this_process()
        self._is_restart_due = False
        try:
            self._wait(close(core))
        finally:  # also when the wait was interrupted: the exit handler need not close it again
            if self._open is not None:
                background.let_go(self._open)
                self._open = None

    async def _started(self, core: C, start: Callable[[C], Awaitable[object]]) -> None:
        if self._is_new_core:
            await self._repeat(core)
        await start(core)
        self._open = self._keep(core)
        self._is_restart_due = False

    def _keep(self, core: C) -> background.OpenClient:
        return background.keep(core.close, self._patience_s)

    @property
    def _patience_s(self) -> float:
        """How many seconds closing the client may take at interpreter exit."""
        settings = getattr(self._core, "settings", None)
        return float(getattr(settings, "await_termination_when_shutdown", 0.0)) + CLOSING_S

    # After a fork

    def _of_this_process(self) -> C:
        if self._forks != background.forks():
            with background.lock():
                if self._forks != background.forks():
                    self._make_new_core()
        return self._core

    def _make_new_core(self) -> None:
        background.leave_to_parent((self._core, self._restarting))
        self._is_restart_due |= self._open is not None
        self._is_restart_due &= self._restarts_after_fork
        self._open = self._restarting = None
        self._core, self._is_new_core, self._slots = self._make(), True, self._new_slots()
        self._forks = background.forks()

    async def _repeat(self, core: C) -> None:
        self._is_new_core = False
        for call in self._noted.values():
            done = call(core)
            if inspect.isawaitable(done):
                await done

    async def _restarted(self, core: C) -> None:
        """Starts the core, once for concurrent calls, in a forked process whose parent had started it."""
        if self._restarting is None:
            self._restarting = SharedTask(
                lambda: self._started(core, lambda core: core.__aenter__()), repeats_failed=True
            )
        await self._restarting.wait()

    # Calls of the core

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return background.run(coroutine)

    def _run(self, call: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine of the core on the background loop; blocks until it ends, returns its result."""
        core = self._of_this_process()
        try:
            return self._wait(self._awaited(core, call) if self._is_restart_due else call(core))
        except ClientError as error:
            raise reworded(error) from error.__cause__

    def _submit(self, call: Callable[[C], asyncio.Future[T]]) -> concurrent.futures.Future[T]:
        """Starts a call and returns its future; blocks only while `max_in_flight` others are in flight.

        These would all time out. A caller with an event loop of its own never waits.
        """
        core, slots = self._of_this_process(), self._slots

        def begun(core: C) -> asyncio.Future[T]:
            try:
                return call(core)
            except ClientError as error:
                raise reworded(error) from error.__cause__

        if asyncio._get_running_loop() is not None:
            return self._begin(core, begun)
        slots.acquire()
        try:
            future = self._begin(core, begun)
        except BaseException:
            slots.release()
            raise
        future.add_done_callback(lambda _: slots.release())
        return future

    def _begin(self, core: C, call: Callable[[C], asyncio.Future[T]]) -> concurrent.futures.Future[T]:
        if self._is_restart_due:
            return background.submit(self._awaited(core, call))
        return background.begin(lambda: call(core))

    def _new_slots(self) -> threading.Semaphore:
        settings = getattr(self._core, "settings", None)
        return threading.Semaphore(getattr(settings, "max_in_flight", MAX_FUTURES))

    async def _awaited(self, core: C, call: Callable[[C], Awaitable[T]]) -> T:
        if self._is_restart_due:
            await self._restarted(core)
        return await call(core)

    def _call(self, call: Callable[[C], T]) -> T:
        """Calls a synchronous method of the core, on the loop if the core is started; returns its result."""
        core = self._of_this_process()
        try:
            if (self._open is None and not self._is_restart_due) or background.is_here():
                return call(core)
            return self._wait(self._called(core, call))
        except ClientError as error:
            raise reworded(error) from error.__cause__

    async def _called(self, core: C, call: Callable[[C], T]) -> T:
        if self._is_restart_due:
            await self._restarted(core)
        return call(core)

    def _note(self, key: tuple[object, ...], call: Callable[[C], object]) -> None:
        """Remembers a call to repeat on the new core after a fork; it replaces one with the same key."""
        self._noted.pop(key, None)
        self._noted[key] = call

    def _iterate(self, items: Callable[[C], AsyncIterator[T]]) -> Iterator[T]:
        return background.iterate(self._called_items(items))

    async def _called_items(self, items: Callable[[C], AsyncIterator[T]]) -> AsyncIterator[T]:
        core = self._of_this_process()
        if self._is_restart_due:
            await self._restarted(core)
        async for item in items(core):
            yield item

    def _next(self, item: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Returns the next item for `__next__`; raises StopIteration where the async iteration ends."""
        try:
            return self._run(item)
        except StopAsyncIteration:
            raise StopIteration from None


class FacePart(Generic[C, P]):
    """Base of the parts of a blocking client, such as `admin.topics`."""

    def __init__(self, whole: Face[C], pick: Callable[[C], P]) -> None:
        self._whole = whole
        self._pick = pick

    def _run(self, call: Callable[[P], Coroutine[Any, Any, T]]) -> T:
        return self._whole._run(lambda core: call(self._pick(core)))

    def _call(self, call: Callable[[P], T]) -> T:
        return self._whole._call(lambda core: call(self._pick(core)))

    def _iterate(self, items: Callable[[P], AsyncIterator[T]]) -> Iterator[T]:
        return self._whole._iterate(lambda core: items(self._pick(core)))


def reworded(error: ClientError) -> ClientError:
    """Removes `await` and `async` from the texts of an error, for blocking programs; returns the error."""
    error.args = tuple(
        arg.replace("async with", "with").replace("await ", "") if isinstance(arg, str) else arg
        for arg in error.args
    )
    return error
