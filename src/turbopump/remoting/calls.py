"""Table of a connection's sent requests that wait for answers, with the deadline of each.

One timer serves all deadlines: a timer for each would cost more than the rest of a call. No socket here.
"""

import asyncio
from collections.abc import Callable, Collection

from turbopump.protocol.command import Command

MAX_OPAQUE = 0x7FFFFFFF
CLOCK_STEP_S = 0.001  # a timer may be early by this much
SWEEP_S = (
    1e-6  # times the number of calls: the least time between two sweeps, when they end one after the other
)
NEVER_S = float("inf")

Call = tuple[asyncio.Future[Command], float, float, int, int]
"""The future of the answer, deadline, timeout, request code, and `Connection.reads` when the call began."""


class Calls:
    """Table of requests sent on one connection that wait for their answers, by opaque.

    `late` makes the error of a call that ran out of time, from its code, its timeout and the number of read
    events when it began.
    """

    __slots__ = ("_last_opaque", "_late", "_loop", "_timer", "_timer_at", "_waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, late: Callable[[int, float, int], BaseException]
    ) -> None:
        self._loop = loop
        self._late = late
        self._last_opaque = 0
        self._waiting: dict[int, Call] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER_S

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        self._last_opaque = self._last_opaque + 1 if self._last_opaque < MAX_OPAQUE else 0
        return self._last_opaque

    def begin(self, opaque: int, code: int, timeout_s: float, reads: int) -> "asyncio.Future[Command]":
        """Registers a sent request and returns the future of its answer, which fails after `timeout_s`."""
        loop = self._loop
        answer: asyncio.Future[Command] = loop.create_future()
        deadline = loop.time() + timeout_s
        self._waiting[opaque] = (answer, deadline, timeout_s, code, reads)
        if deadline < self._timer_at:
            self._sweep_at(deadline)
        return answer

    def answered(self, response: Command) -> None:
        """Completes the call with the response's opaque; drops a response for which no call waits.

        Every peer must drop answers that are no longer waited for.
        """
        call = self._waiting.pop(response.opaque, None)
        if call is not None and not call[0].done():
            call[0].set_result(response)

    def is_unanswered(self, codes: Collection[int], before: float, reads: int) -> bool:
        """Whether a call of these codes, begun before a loop time and after `reads` read events, waits."""
        for answer, deadline, timeout_s, code, begun_at in self._waiting.values():
            if begun_at == reads and code in codes and deadline - timeout_s <= before and not answer.done():
                return True
        return False

    def is_waiting(self, codes: Collection[int]) -> bool:
        """Whether a call of these codes waits for its answer."""
        return any(code in codes and not answer.done() for answer, _, _, code, _ in self._waiting.values())

    def fail(self, why: Callable[[], BaseException]) -> None:
        """Fails all waiting calls with errors that `why` makes: no answer will come any more."""
        for answer, *_ in self._waiting.values():
            if not answer.done():
                answer.set_exception(why())
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _sweep_at(self, moment: float) -> None:
        """Schedules the next sweep at loop time `moment`, in place of an earlier schedule."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = moment
        self._timer = self._loop.call_at(moment, self._sweep)

    def _sweep(self) -> None:
        """Fails the calls that ran out of time; with n calls waiting, at most n microseconds late."""
        waiting = self._waiting
        now = self._loop.time()
        self._timer, self._timer_at = None, NEVER_S
        over = [opaque for opaque, call in waiting.items() if call[1] <= now + CLOCK_STEP_S]
        for opaque in over:
            call = waiting.pop(opaque, None)
            if call is None:  # the connection has ended meanwhile
                continue
            answer, _, timeout_s, code, reads = call
            failure = self._late(code, timeout_s, reads)
            if not answer.done():
                answer.set_exception(failure)
        if waiting:
            self._sweep_at(max(min(call[1] for call in waiting.values()), now + SWEEP_S * len(waiting)))
