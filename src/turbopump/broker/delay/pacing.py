"""`TurnPacer`: the pauses of background work, which end early for new work and bound the unsynced bytes.

In: how long there is nothing to do. Out: the next turn may begin. The work itself is not known here.
"""

import asyncio

from turbopump.broker.acknowledgement import Acknowledgement
from turbopump.broker.storage import Storage

MAX_UNSAFE = 64 << 20  # bytes that were appended and are not safe yet, so that no reader sees them


class TurnPacer:
    """Pauses background work between two turns, until new work arrives or the time is over.

    Also waits while too many appended bytes are not safe.
    """

    def __init__(self, store: Storage, acknowledgement: Acknowledgement) -> None:
        self._store = store
        self._acknowledgement = acknowledgement
        self._sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0

    async def rest(self, seconds: float) -> None:
        """Sleeps `seconds`, less after `wake_within`; then, if too many bytes are unsafe, until all are safe.

        Appended bytes are unsafe until their senders may be answered.
        """
        if seconds:
            await self._sleep(seconds)
        else:
            await asyncio.sleep(0)
        if self._acknowledgement.unsafe_bytes > MAX_UNSAFE:
            await self._acknowledgement.safe(self._store.log.end)

    def wake_within(self, seconds: float) -> None:
        """Shortens the current pause, if any, to at most `seconds` from now, because there is new work."""
        if self._timer is not None and self._wakes_at > asyncio.get_running_loop().time() + seconds:
            self._timer.cancel()
            self._wake_after(seconds)

    async def _sleep(self, seconds: float) -> None:
        self._sleeper = asyncio.get_running_loop().create_future()
        self._wake_after(seconds)
        try:
            await self._sleeper
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._sleeper = None

    def _wake_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._wakes_at = loop.time() + seconds
        self._timer = loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)
