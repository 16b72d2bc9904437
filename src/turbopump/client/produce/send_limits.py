"""Limits how many sends of a producer, and how many bytes, are in flight; further sends wait in order."""

import asyncio
from collections import deque


class SendLimits:
    """A limit on the number and bytes of sends in flight; sends are admitted in the order of their calls.

    A message larger than `max_bytes` is admitted when nothing else is in flight.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: list[asyncio.Future[None]] = []

    def try_acquire(self, size: int) -> bool:
        """Admits a send of `size` bytes at once; False when the limit is reached, or others wait already.

        After False call `acquire`.
        """
        if self._waiting or not self._fits(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    async def acquire(self, size: int) -> None:
        """Waits until a send of `size` bytes is admitted, in the order of calls.

        A cancelled call gives up its place.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # admitted and cancelled in the same turn of the loop
                self.release(size)
            else:
                turn.cancel()
                self._admit()  # a smaller send behind this one may fit now
            raise

    def release(self, size: int) -> None:
        """Frees the place of an admitted send of `size` bytes, and admits waiting sends that fit now."""
        self.count -= 1
        self.bytes -= size
        if self._waiting:
            self._admit()
        if self._idle and not self.count:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    async def wait_idle(self) -> None:
        """Waits until no admitted send is in flight."""
        if self.count:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def _fits(self, size: int) -> bool:
        return self.count < self.max_count and (self.bytes + size <= self.max_bytes or not self.count)

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(size):
                    return
                self.count += 1
                self.bytes += size
                turn.set_result(None)
            self._waiting.popleft()
