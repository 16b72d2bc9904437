"""What all blocking clients share: a core, which is the async client, and the way to it.

A face holds no state of its own but which core is its, and in which process that was made. After a fork the
child makes a new core from the same arguments: ids, sockets and name are new, the parent's are left alone.
"""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from turbopump.client import background

CLOSING_S = 5.0  # what closing may take beside the patience with listeners

T = TypeVar("T")


class Core(Protocol):
    async def __aenter__(self) -> Any: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Core)
P = TypeVar("P")


class Face(Generic[C]):
    """A client whose methods wait. Any thread may call them."""

    _goes_on_after_fork = True
    """Started in the parent, it is started in a child when it is first used there."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._repeated: list[Callable[[C], object]] = []
        self._core = make()
        self._forks = background.forks()
        self._open: background.Open | None = None
        self._restart: Callable[[C], Awaitable[object]] | None = None
        self._restarting: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._start(lambda core: core.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    # Life

    def _start(self, start: Callable[[C], Coroutine[Any, Any, object]]) -> None:
        core = self._of_this_process()
        self._restart = None
        background.run(start(core))
        self._open = background.keep(core.close, self._patience_s)

    def _close(self) -> None:
        core = self._of_this_process()
        if self._restart is not None and self._restarting is None:
            self._restart = None  # it was the parent's, and nobody has used it here
        background.run(core.close())
        if self._open is not None:
            background.let_go(self._open)
            self._open = None

    def _of_this_process(self) -> C:
        if self._forks != background.forks():
            with background.lock():
                if self._forks != background.forks():
                    self._make_anew()
        return self._core

    def _make_anew(self) -> None:
        background.leave_to_parent(self._core)
        if self._open is not None and self._goes_on_after_fork:
            self._restart = lambda core: core.__aenter__()
        self._open = self._restarting = None
        self._core = self._make()
        for call in self._repeated:
            call(self._core)
        self._forks = background.forks()

    @property
    def _patience_s(self) -> float:
        """How long closing may take."""
        settings = getattr(self._core, "settings", None)
        return float(getattr(settings, "await_termination_when_shutdown", 0.0)) + CLOSING_S

    async def _restarted(self, core: C) -> None:
        """Whoever comes first after a fork starts it, others wait for the same."""
        if self._restart is None:
            return
        if self._restarting is None:
            self._restarting = asyncio.create_task(self._begin_again(core, self._restart))
        await asyncio.shield(self._restarting)

    async def _begin_again(self, core: C, restart: Callable[[C], Awaitable[object]]) -> None:
        try:
            await restart(core)
            self._open = background.keep(core.close, self._patience_s)
            self._restart = None
        finally:
            self._restarting = None

    # The way to the core

    def _run(self, call: Callable[[C], Awaitable[T]]) -> T:
        """Waits for what the core does."""
        return background.run(self._awaited(self._of_this_process(), call))

    def _submit(self, call: Callable[[C], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Does not wait: also for callers that have an event loop of their own."""
        return background.submit(self._awaited(self._of_this_process(), call))

    async def _awaited(self, core: C, call: Callable[[C], Awaitable[T]]) -> T:
        if self._restart is not None:
            await self._restarted(core)
        return await call(core)

    def _call(self, call: Callable[[C], T]) -> T:
        """For what does not wait in the core either: on its loop once it has one, which owns the state."""
        core = self._of_this_process()
        if self._open is None and self._restart is None:
            return call(core)
        return background.run(self._called(core, call))

    async def _called(self, core: C, call: Callable[[C], T]) -> T:
        await self._restarted(core)
        return call(core)

    def _call_again(self, call: Callable[[C], T]) -> T:
        """The same, and once more for each core that is made after a fork."""
        done = self._call(call)
        self._repeated.append(call)
        return done

    def _iterate(self, items: Callable[[C], AsyncIterator[T]]) -> Iterator[T]:
        return background.iterate(self._called_items(items))

    def _next(self, item: Callable[[C], Awaitable[T]]) -> T:
        """For `__next__`: the end of async iteration is the end of iteration."""
        try:
            return self._run(item)
        except StopAsyncIteration:
            raise StopIteration from None

    async def _called_items(self, items: Callable[[C], AsyncIterator[T]]) -> AsyncIterator[T]:
        core = self._of_this_process()
        await self._restarted(core)
        async for item in items(core):
            yield item


class Part(Generic[C, P]):
    """A subject of a client, such as `admin.topics`."""

    def __init__(self, whole: Face[C], pick: Callable[[C], P]) -> None:
        self._whole = whole
        self._pick = pick

    def _run(self, call: Callable[[P], Awaitable[T]]) -> T:
        return self._whole._run(lambda core: call(self._pick(core)))

    def _call(self, call: Callable[[P], T]) -> T:
        return self._whole._call(lambda core: call(self._pick(core)))

    def _iterate(self, items: Callable[[P], AsyncIterator[T]]) -> Iterator[T]:
        return self._whole._iterate(lambda core: items(self._pick(core)))
