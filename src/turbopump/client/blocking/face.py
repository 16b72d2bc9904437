"""What all blocking clients share: a core, which is the async client, and the way to it.

A face holds no state of its own but which core is its, and in which process that was made. After a fork the
child makes a new core from the same arguments: ids, sockets and name are new, the parent's are left alone.
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

MOST_FUTURES = 1024  # under way, where no setting says another number
CLOSING_S = 5.0  # what closing may take beside the patience with listeners

T = TypeVar("T")


class Core(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Core)
P = TypeVar("P")


class Face(Generic[C]):
    """A client whose methods wait. Any thread may call them."""

    _goes_on_after_fork = True
    """Started in the parent, it is started in a child when it is first used there."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._core = make()
        self._forks = background.forks()
        self._open: background.OpenClient | None = None
        self._room = self._new_room()
        self._noted: dict[tuple[object, ...], Callable[[C], object]] = {}
        self._is_anew = False
        self._is_to_go_on = False
        self._going_on: asyncio.Task[None] | None = None

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

    # Life

    def _start(self, start: Callable[[C], Coroutine[Any, Any, object]]) -> None:
        self._wait(self._started(self._of_this_process(), start))

    def _close(self, close: Callable[[C], Coroutine[Any, Any, object]] = lambda core: core.close()) -> None:
        core = self._of_this_process()
        self._is_to_go_on = False
        try:
            self._wait(close(core))
        finally:  # also when somebody did not want to wait: the end of the interpreter need not try again
            if self._open is not None:
                background.let_go(self._open)
                self._open = None

    async def _started(self, core: C, start: Callable[[C], Awaitable[object]]) -> None:
        if self._is_anew:
            await self._repeat(core)
        await start(core)
        self._open = self._keep(core)
        self._is_to_go_on = False

    def _keep(self, core: C) -> background.OpenClient:
        return background.keep(core.close, self._patience_s)

    @property
    def _patience_s(self) -> float:
        """How long closing may take."""
        settings = getattr(self._core, "settings", None)
        return float(getattr(settings, "await_termination_when_shutdown", 0.0)) + CLOSING_S

    # After a fork

    def _of_this_process(self) -> C:
        if self._forks != background.forks():
            with background.lock():
                if self._forks != background.forks():
                    self._make_anew()
        return self._core

    def _make_anew(self) -> None:
        background.leave_to_parent((self._core, self._going_on))
        self._is_to_go_on |= self._open is not None
        self._is_to_go_on &= self._goes_on_after_fork
        self._open = self._going_on = None
        self._core, self._is_anew, self._room = self._make(), True, self._new_room()
        self._forks = background.forks()

    async def _repeat(self, core: C) -> None:
        self._is_anew = False
        for call in self._noted.values():
            done = call(core)
            if inspect.isawaitable(done):
                await done

    async def _gone_on(self, core: C) -> None:
        """Whoever comes first after a fork starts it, others wait for the same."""
        if self._going_on is None:
            start = self._started(core, lambda core: core.__aenter__())
            self._going_on = asyncio.get_running_loop().create_task(start)
            self._going_on.add_done_callback(self._has_gone_on)
        await asyncio.shield(self._going_on)

    def _has_gone_on(self, task: "asyncio.Task[None]") -> None:
        self._going_on = None

    # The way to the core

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return background.run(coroutine)

    def _run(self, call: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Waits for what the core does."""
        core = self._of_this_process()
        try:
            return self._wait(self._awaited(core, call) if self._is_to_go_on else call(core))
        except ClientError as error:
            raise reworded(error) from error.__cause__

    def _submit(self, call: Callable[[C], asyncio.Future[T]]) -> concurrent.futures.Future[T]:
        """Begins it, and waits only while `max_in_flight` others are under way: who asks for more would find
        them all too late. A caller with an event loop of its own is never made to wait.
        """
        core, room = self._of_this_process(), self._room

        def begun(core: C) -> asyncio.Future[T]:
            try:
                return call(core)
            except ClientError as error:
                raise reworded(error) from error.__cause__

        if asyncio._get_running_loop() is not None:
            return self._begin(core, begun)
        room.acquire()
        try:
            future = self._begin(core, begun)
        except BaseException:
            room.release()
            raise
        future.add_done_callback(lambda _: room.release())
        return future

    def _begin(self, core: C, call: Callable[[C], asyncio.Future[T]]) -> concurrent.futures.Future[T]:
        if self._is_to_go_on:
            return background.submit(self._awaited(core, call))
        return background.begin(lambda: call(core))

    def _new_room(self) -> threading.Semaphore:
        settings = getattr(self._core, "settings", None)
        return threading.Semaphore(getattr(settings, "max_in_flight", MOST_FUTURES))

    async def _awaited(self, core: C, call: Callable[[C], Awaitable[T]]) -> T:
        if self._is_to_go_on:
            await self._gone_on(core)
        return await call(core)

    def _call(self, call: Callable[[C], T]) -> T:
        """For what does not wait in the core either: on its loop once it has one, which owns the state."""
        core = self._of_this_process()
        try:
            if (self._open is None and not self._is_to_go_on) or background.is_here():
                return call(core)
            return self._wait(self._called(core, call))
        except ClientError as error:
            raise reworded(error) from error.__cause__

    async def _called(self, core: C, call: Callable[[C], T]) -> T:
        if self._is_to_go_on:
            await self._gone_on(core)
        return call(core)

    def _note(self, key: tuple[object, ...], call: Callable[[C], object]) -> None:
        """To be done again with a core that is made after a fork, in this order."""
        self._noted.pop(key, None)
        self._noted[key] = call

    def _iterate(self, items: Callable[[C], AsyncIterator[T]]) -> Iterator[T]:
        return background.iterate(self._called_items(items))

    async def _called_items(self, items: Callable[[C], AsyncIterator[T]]) -> AsyncIterator[T]:
        core = self._of_this_process()
        if self._is_to_go_on:
            await self._gone_on(core)
        async for item in items(core):
            yield item

    def _next(self, item: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """For `__next__`: the end of async iteration is the end of iteration."""
        try:
            return self._run(item)
        except StopAsyncIteration:
            raise StopIteration from None


class Part(Generic[C, P]):
    """A subject of a client, such as `admin.topics`."""

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
    """What the core advises, as a blocking program writes it: without `await`."""
    error.args = tuple(
        arg.replace("async with", "with").replace("await ", "") if isinstance(arg, str) else arg
        for arg in error.args
    )
    return error
