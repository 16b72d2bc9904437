"""Measures how long requests waited before they were begun, and has those that are late refused.

A request waits in two places: in the operating system while the event loop is blocked, and among the deferred
ones of its connection while too many of the same peer are in flight. The second time is known to the
millisecond. For the first, the loop is woken every 100 ms while there is traffic; of bytes that are read when
that wake-up is overdue, the system is asked when the last of them came. So a request is never called older
than it is, and while the loop is not blocked, all this costs one look at the clock per read event.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from turbopump.protocol.frame import Frame
from turbopump.runtime.network import received_ago_s

if TYPE_CHECKING:
    from turbopump.remoting.connection import Connection

TICK_S = 0.1
BLOCKED_S = 2 * TICK_S  # since the last tick: by then the loop has been blocked for a tick or more
CATCH_UP_S = 1.0
NEVER = float("inf")
ALWAYS = -1.0

Refuse: TypeAlias = "Callable[[Connection, list[Frame], float], list[Frame]]"
"""Gets frames that waited this many seconds, answers those for which it is too long, returns the others."""


class LateRequests:
    """Measures how long requests waited before they were read, for all connections of a server."""

    def __init__(self, refuse: Refuse, min_wait_s: Callable[[], float]) -> None:
        """`min_wait_s` returns the shortest wait in seconds, as of now, after which a request may be late."""
        self.refuse = refuse
        self.min_wait_s = min_wait_s
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self.measure_after = ALWAYS
        """`waited_s` has to be asked about bytes that are read later than this."""
        self.last_read = 0.0
        self._is_ticking = False
        self._last_tick = 0.0
        self._blocked_since = 0.0
        self._catching_up_until = 0.0

    def waited_s(self, now: float, transport: asyncio.BaseTransport | None) -> float:
        """Returns the seconds that bytes read at `now` waited at least, if the loop was blocked; else 0.

        To be called for bytes that are read later than `measure_after`.
        """
        if not self._is_ticking:
            self._is_ticking = True
            self._schedule_tick(now)
            return 0.0
        self._note_if_blocked(now)
        return self.unread_for_s(now - self._blocked_since, transport, now)

    def unread_for_s(self, max_s: float, transport: asyncio.BaseTransport | None, now: float) -> float:
        """Returns the seconds that bytes just read were in the socket, at most `max_s`; 0 if none is late."""
        if max_s < self.min_wait_s() or transport is None:
            return 0.0
        return min(max_s, received_ago_s(transport, now))

    def _tick(self) -> None:
        if self.last_read < self._last_tick:  # a server without traffic need not wake up
            self._is_ticking = False
            self.measure_after = ALWAYS
            return
        now = self._loop.time()
        self._note_if_blocked(now)
        self._schedule_tick(now)

    def _schedule_tick(self, now: float) -> None:
        self._last_tick = now
        self.measure_after = ALWAYS if now < self._catching_up_until else now + BLOCKED_S
        self._loop.call_later(TICK_S, self._tick)

    def _note_if_blocked(self, now: float) -> None:
        """If the loop was blocked since the last tick, makes all reads of the next second be measured.

        A connection gives the bytes that came meanwhile in many reads.
        """
        if now - self._last_tick > BLOCKED_S:
            self._blocked_since = self._last_tick
            self._catching_up_until = now + CATCH_UP_S
