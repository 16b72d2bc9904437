"""The pauses between attempts of a slave to reach its master: short at first, then growing, ended by news.

A pair is often started at the same time, and a SYNC_MASTER answers SLAVE_NOT_AVAILABLE until its slave is
there: the first attempts follow one another quickly. A master that stays away is dialled at `MAX_S`.
"""

import asyncio

FIRST_S = 0.1
MAX_S = 0.5  # a refused connection costs a slave less than a millisecond


class DialDelay:
    """The pause before the next dial: `FIRST_S`, doubled after each failure up to `MAX_S`."""

    def __init__(self) -> None:
        self._next_s = FIRST_S
        self._news = asyncio.Event()

    def next_s(self) -> float:
        """Returns how long to pause after one more failure."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, MAX_S)
        return pause_s

    def reset(self) -> None:
        """Begins with `FIRST_S` again: the master was reached."""
        self._next_s = FIRST_S

    def end_now(self) -> None:
        """Ends the present pause, or the next one if there is none."""
        self._news.set()

    async def pause(self, seconds: float) -> None:
        """Waits for this time, or until `end_now`."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return
        finally:
            self._news.clear()
