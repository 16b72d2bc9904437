"""Virtual time: an event loop whose clock stands still during work and then jumps to the next timer.

Two minutes of idle time, sixteen retries or a day of delay take milliseconds, and a run depends only on its
inputs. Works with everything that waits through asyncio; real sockets are not virtual, so the parts under
test get the in-memory `Network` and `Disk` of this package.

Threads that work for the loop (those of `run_in_executor`, and a consumer's for its handlers) hold the clock:
it does not move while one of them works, so that their work takes no virtual time. A thread that still works
after `GRACE_S` real seconds probably waits for something that needs time; it holds the clock no longer.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000
RESOLUTION_S = 1e-7  # of a float that counts seconds for years: smaller steps would be lost
STUCK_S = 5.0  # real seconds to wait for the result of a thread when nothing else can happen
GRACE_S = 1.0
MAX_SKIPS = 16  # turns of a busy loop without polling sockets and other threads


class Stuck(RuntimeError):
    """Raised when nothing is ready and no timer is set: the awaited event will never happen."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop with virtual time.

    `by_itself`: time passes whenever there is nothing else to do. Otherwise only while a thread waits for a
    call that it made by `accounted` (see `testing.thread`).
    """

    def __init__(self, by_itself: bool = True) -> None:
        self._now = 0.0
        self._waits = 1 if by_itself else 0
        self._at_work: set[_Work] = set()
        self._handlers_waiting = 0  # waiting for the result of a call they made
        self._handlers_let_go = 0
        self._resting: list[asyncio.Future[None]] = []
        self._of_thread = threading.local()
        super().__init__(_JumpingSelector(self))
        self._clock_resolution = RESOLUTION_S

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds

    def _run_once(self) -> None:
        # asyncio fires a timer up to RESOLUTION_S early. A real clock passes its time soon after; this one
        # has to be moved, or a loop that sleeps until a moment and then looks at the clock would never end.
        timers = self._scheduled  # type: ignore[attr-defined]
        if timers and 0.0 < timers[0].when() - self._now <= RESOLUTION_S:
            self._now = timers[0].when()
        super()._run_once()  # type: ignore[misc]

    @property
    def may_jump(self) -> bool:
        return self._waits > 0

    @property
    def is_held(self) -> bool:
        """Whether a working thread holds the clock, so that virtual time stands still."""
        if self._at_work:
            return True
        at_work = _given_to_handlers(self) - self._handlers_waiting
        self._handlers_let_go = min(self._handlers_let_go, at_work)
        return at_work > self._handlers_let_go

    def let_go(self) -> None:
        """Lets virtual time pass again although threads still work: they have held the clock too long."""
        self._at_work.clear()
        self._handlers_let_go = _given_to_handlers(self) - self._handlers_waiting

    async def rest(self) -> None:
        """Waits until nothing more can happen without time passing."""
        here = self.create_future()
        self._resting.append(here)
        await here

    def has_come_to_rest(self) -> bool:
        """Wakes the callers of `rest`; returns False when there were none."""
        resting, self._resting = self._resting, []
        for one in resting:
            if not one.done():
                one.set_result(None)
        return bool(resting)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        work = _Work()

        def run() -> T:
            self._of_thread.work = work
            try:
                return func(*args)
            finally:
                self._of_thread.work = None

        self._at_work.add(work)
        result = super().run_in_executor(executor, run)
        result.add_done_callback(lambda _: self._at_work.discard(work))
        return result

    def held_until(self, outcome: "asyncio.Future[Any]") -> None:
        """Holds the clock until a future of a thread other than those of `run_in_executor` is done."""
        work = _Work()
        self._at_work.add(work)
        outcome.add_done_callback(lambda _: self._at_work.discard(work))

    def accounted(self, call: Coroutine[Any, Any, T], to_rest: bool) -> Coroutine[Any, Any, T]:
        """Wraps a call that another thread makes: while it runs in the loop, virtual time may pass.

        A handler that makes a call does not count as working while it waits for the result. `to_rest`: the
        call ends when everything that needs no time has happened, also what it has only started.
        """
        work: _Work | None = getattr(self._of_thread, "work", None)
        handlers = 1 if _pool_of(threading.current_thread(), self) is not None else 0

        async def waiting() -> T:
            self._waits += 1
            self._handlers_waiting += handlers
            held_clock = work in self._at_work
            if work is not None:
                self._at_work.discard(work)
            try:
                return await (self._to_rest(call) if to_rest else call)
            finally:
                self._waits -= 1
                self._handlers_waiting -= handlers
                if work is not None and held_clock:
                    self._at_work.add(work)

        return waiting()

    async def _to_rest(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            result = await call
        except Exception:
            await self.rest()
            raise
        await self.rest()
        return result


class VirtualClock:
    """`runtime.clock.Clock` over a virtual loop: `now_ms` advances exactly as the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, start_ms: int = START_MS) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._start_ms = start_ms

    def now_ms(self) -> int:
        return self._start_ms + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine as `asyncio.run` does, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class _Work:
    """A job in a thread, from its start until the loop has its result."""


def _given_to_handlers(loop: VirtualLoop) -> int:
    """Returns the number of jobs that consumers of the loop have given to threads and that have not ended."""
    pools = {_pool_of(thread, loop) for thread in threading.enumerate()} - {None}
    return sum(pool._open for pool in pools)


def _pool_of(thread: threading.Thread, loop: VirtualLoop) -> Any:
    """Returns the `push.workers.ThreadPool` of this loop that a thread belongs to; None: to none of them.

    A consumer makes its threads itself, and knows nothing of virtual time.
    """
    pool = getattr(thread, "_pool", None)
    return pool if getattr(pool, "_loop", None) is loop else None


class _JumpingSelector(selectors.BaseSelector):
    """Selector that advances the clock to the next timer where a real one would sleep."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._selector = selectors.DefaultSelector()
        self._skipped = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self._loop
        if timeout == 0 and self._skipped < MAX_SKIPS:  # the loop is busy: external events can wait a little
            self._skipped += 1
            return []
        self._skipped = 0
        ready = self._selector.select(0)
        if ready or timeout == 0:
            return ready
        if loop.is_held:
            ready = self._selector.select(GRACE_S)
            if not ready:
                loop.let_go()
            return ready
        if loop.has_come_to_rest():
            return []
        if not loop.may_jump:
            return self._selector.select(None)
        if timeout is None:
            return self._last_chance()
        loop.jump(timeout)
        return []

    def _last_chance(self) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._selector.select(STUCK_S)
        if not ready:
            raise Stuck("nothing is ready and no timer is set")
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._selector.get_map()

    def close(self) -> None:
        self._selector.close()
