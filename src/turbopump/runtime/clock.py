"""Time. Code that waits uses the event loop (`sleep`, `loop.call_later`), whose time is virtual in tests."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, monotonic time and sleep."""

    def now_ms(self) -> int:
        """Returns the wall-clock time in milliseconds since 1970."""

    def monotonic(self) -> float:
        """Returns seconds that never go backwards, for measuring how long something took."""

    async def sleep(self, seconds: float) -> None: ...


class NeverSet:
    """Marks a clock whose wall time never jumps: one sleep can last until a given time of `now_ms`.

    With any other clock the wall time has to be looked at repeatedly meanwhile.
    """


class SystemClock:
    """The clock of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Called twice for every read event: the builtin itself, without a Python frame in between.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
