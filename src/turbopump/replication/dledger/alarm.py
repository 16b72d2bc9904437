"""A timer for the earliest of many deadlines."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls a function at a time of the loop; setting it again replaces the earlier time."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    def set(self, delay_ms: int | None) -> None:
        """Calls in `delay_ms` from now; None: not at all."""
        self.cancel()
        if delay_ms is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0, delay_ms) / 1000, self._ring)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._call()
