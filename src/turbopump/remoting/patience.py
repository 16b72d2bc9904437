"""How long requests may wait before they are begun, and who answers those that waited longer.

A request waits in two places: in the operating system while the loop is held up, and among the deferred ones
of its connection while too many of the same peer are under way. The second is known to the millisecond. For
the first, the loop is made to come round every 100 ms while there is traffic; of bytes that are read when it
did not, the system is asked when the last of them came. So a request is never called older than it is, and
while the loop is not held up, all this costs one look at the clock per read event.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from turbopump.protocol.frame import Frame
from turbopump.runtime.network import received_ago_s

if TYPE_CHECKING:
    from turbopump.remoting.connection import Connection

TICK_S = 0.1
HELD_UP_S = 2 * TICK_S  # since the loop last came round: by then somebody held it up for a tick or more
CATCH_UP_S = 1.0
NEVER = float("inf")
ALWAYS = -1.0

Late: TypeAlias = "Callable[[Connection, list[Frame], float], list[Frame]]"
"""Gets frames that waited so many seconds, answers those for which it is too long, returns the others."""


class Patience:
    def __init__(self, late: Late, shortest_s: Callable[[], float]) -> None:
        """`shortest_s`: nothing that waited less is late, as of now."""
        self.late = late
        self.shortest_s = shortest_s
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self.ask_after = ALWAYS  # who reads later than this asks `waited_s`
        self.last_read = 0.0
        self._is_awake = False
        self._came_round = 0.0
        self._held_up_since = 0.0
        self._catching_up_until = 0.0

    def waited_s(self, now: float, transport: asyncio.BaseTransport | None) -> float:
        """For bytes read later than `ask_after`: how long they lay there at least."""
        if not self._is_awake:
            self._is_awake = True
            self._come_round(now)
            return 0.0
        self._look_at_clock(now)
        return self.lay_there_s(now - self._held_up_since, transport, now)

    def lay_there_s(self, most_s: float, transport: asyncio.BaseTransport | None, now: float) -> float:
        """How long the bytes that were just read were there, when it can be no more than `most_s`."""
        if most_s < self.shortest_s() or transport is None:
            return 0.0
        return min(most_s, received_ago_s(transport, now))

    def _tick(self) -> None:
        if self.last_read < self._came_round:  # a quiet server need not wake up
            self._is_awake = False
            self.ask_after = ALWAYS
            return
        now = self._loop.time()
        self._look_at_clock(now)
        self._come_round(now)

    def _come_round(self, now: float) -> None:
        self._came_round = now
        self.ask_after = ALWAYS if now < self._catching_up_until else now + HELD_UP_S
        self._loop.call_later(TICK_S, self._tick)

    def _look_at_clock(self, now: float) -> None:
        """A connection gives what it holds in many reads: after a stall, all of them are asked about."""
        if now - self._came_round > HELD_UP_S:
            self._held_up_since = self._came_round
            self._catching_up_until = now + CATCH_UP_S
