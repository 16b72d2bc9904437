"""Time. Who waits uses the event loop (`sleep`, `loop.call_later`): in the simulation its time is virtual."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970."""

    def monotonic(self) -> float:
        """Seconds that never go backwards, for measuring how long something took."""

    async def sleep(self, seconds: float) -> None: ...


class NeverSet:
    """Marks a clock that nobody sets: its two times pass alike, so a sleep may last until a time of `now_ms`.
    Others have to be looked at again and again meanwhile.
    """


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # asked twice for every read event: no frame of ours in between

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
