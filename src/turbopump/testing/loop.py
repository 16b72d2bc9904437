"""Virtual time: an event loop whose clock stands still during work and jumps to the next timer after.

Two minutes of silence, sixteen retries or a day of delay take milliseconds, and a run depends on nothing but
its inputs. Works with everything that waits through asyncio; threads and real sockets are not virtual, so
the parts under test get the in-memory `Network` and `Disk` of this package.
"""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000
STUCK_S = 5.0  # real seconds: how long a thread may take to bring its result when nothing else can happen


class Stuck(RuntimeError):
    """Nothing is ready and no timer is set: what is awaited will never come."""


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class VirtualClock:
    """`runtime.clock.Clock` over a virtual loop: `now_ms` moves exactly as the loop does."""

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
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class _JumpingSelector(selectors.BaseSelector):
    """Where a real selector would sleep until the next timer, this one moves the clock there."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._selector = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            ready = self._selector.select(STUCK_S)
            if not ready:
                raise Stuck("nothing is ready and no timer is set")
            return ready
        ready = self._selector.select(0)
        if not ready and timeout > 0:
            self._loop.jump(timeout)
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
