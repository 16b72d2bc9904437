"""How many sends may be under way at once, and how many bytes: who comes when it is full waits in line."""

import asyncio
from collections import deque


class SendLimits:
    """A message that is larger than all that is allowed passes when nothing else is under way."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self.count = 0
        self.bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: list[asyncio.Future[None]] = []

    def enter_now(self, size: int) -> bool:
        """False when it is full, or others wait already: then `enter`."""
        if self._waiting or not self._has_room(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    async def enter(self, size: int) -> None:
        """Returns when there is room, in the order of coming. Who gives up leaves the line."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size)
            else:
                turn.cancel()
                self._admit()
            raise

    def leave(self, size: int) -> None:
        self.count -= 1
        self.bytes -= size
        if self._waiting:
            self._admit()
        if self._idle and not self.count:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    async def idle(self) -> None:
        """Returns when nothing is under way."""
        if self.count:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def _has_room(self, size: int) -> bool:
        return self.count < self.most and (self.bytes + size <= self.most_bytes or not self.count)

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if not self._has_room(size):
                    return
                self.count += 1
                self.bytes += size
                turn.set_result(None)
            self._waiting.popleft()
