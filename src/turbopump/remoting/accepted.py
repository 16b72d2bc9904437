"""Server side of a connection: serves the peer's requests, and bounds the answers it leaves unread.

While the peer leaves our answers unread it is not read from. Frames that waited too long, deferred or before
they were read, go to `LateRequests` first, if the server has one.
"""

import asyncio
import functools
from collections.abc import Callable

from turbopump.protocol.frame import Frame
from turbopump.remoting.connection import Connection, ConnectionGroup, Serve, Shortcut
from turbopump.remoting.late_requests import NEVER, LateRequests
from turbopump.remoting.unread import UnreadAnswers

CLOCK_STEP_S = 0.001  # a timer may be early by this much


class AcceptedConnection(Connection):
    """Connection that a server accepted, and on which it serves the peer's requests."""

    __slots__ = ("_late_requests", "_on_opened", "_shortcut", "_stopped_at", "_unread_answers")

    def __init__(
        self,
        serve: Serve,
        shortcut: Shortcut | None,
        group: ConnectionGroup,
        late_requests: LateRequests | None,
        unread_answers: UnreadAnswers,
        on_opened: "Callable[[AcceptedConnection], None]",
    ) -> None:
        super().__init__(serve, group)
        self._shortcut = shortcut
        self._late_requests = late_requests
        self._unread_answers = unread_answers
        self._on_opened = on_opened
        self._stopped_at: float | None = None  # when we stopped reading because of requests in flight

    def serve_by(self, serve: Serve, shortcut: Shortcut | None, late_requests: LateRequests | None) -> None:
        """Has others serve the requests that are read from now on."""
        self._serve, self._shortcut, self._late_requests = serve, shortcut, late_requests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._on_opened(self)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self._held:
            data = self._joined(data)
            if not data:
                return
        waited_s = 0.0
        if (late := self._late_requests) is not None:
            late.last_read = now = late.now()
            if now > late.measure_after:
                waited_s = late.waited_s(now, self._transport)
            if self._stopped_at is not None:
                stopped_s = now - self._stopped_at
                waited_s = max(waited_s, late.unread_for_s(stopped_s, self._transport, now))
                self._stopped_at = None
        shortcut = self._shortcut
        if shortcut is None or self.saturated or self._deferred or waited_s:
            self._cut(data, 0, b"", self._serve_after(waited_s) if waited_s else self._serve)
            return
        try:
            used, answers = shortcut(self, data)
        except Exception as error:
            self._fail(error)
            return
        if used < len(data):
            self._cut(data, used, answers, self._serve)
            return
        self._begun = None
        if answers:
            self._send(answers)

    # The peer does not read

    def pause_writing(self) -> None:
        super().pause_writing()
        self.saturated = True
        self._update_reading()
        self._unread_answers.count(self)

    def _bound_unread(self) -> None:
        super()._bound_unread()
        if not self.is_closing:
            self._unread_answers.count(self)

    def resume_writing(self) -> None:
        self._unread_answers.forget(self)
        super().resume_writing()

    def abort(self) -> None:
        self._unread_answers.forget(self)
        super().abort()

    def _is_busy(self) -> bool:
        limits = self._limits
        return (
            self._output_full
            or self.in_flight >= limits.requests_in_flight
            or self.bytes_in_flight >= limits.request_bytes_in_flight
        )

    def _update_reading(self) -> None:
        """Stops or resumes reading, by unread answers, requests in flight and deferred frames.

        Where late requests are answered, one more read event is taken in while too much is in flight, so that
        it can be answered when it is late.
        """
        is_full = self._output_full or (self.saturated and self._late_requests is None)
        wanted = not (is_full or self._draining or self._deferred)
        if wanted is not self._reading:
            self._set_reading(wanted)

    def _set_reading(self, wanted: bool) -> None:
        super()._set_reading(wanted)
        if not self._reading:
            self._stopped_at = None if self._output_full else self._loop.time()

    # Late requests

    def _serve_after(self, waited_s: float) -> Serve:
        if self._late_requests is None:
            return self._serve
        return functools.partial(self._serve_timely, waited_s, self._late_requests)

    def _serve_timely(
        self, waited_s: float, late: LateRequests, connection: Connection, frames: list[Frame]
    ) -> None:
        if waited_s and waited_s >= late.min_wait_s():
            frames = late.refuse(connection, frames, waited_s)
        self._serve(connection, frames)

    def defer(self, frames: list[Frame]) -> None:
        if not self._deferred:
            self._look_later()
        super().defer(frames)

    def _look_later(self) -> None:
        if self._late_requests is not None and (wait_s := self._late_requests.min_wait_s()) < NEVER:
            self._loop.call_later(wait_s, self._look_at_deferred)

    def _look_at_deferred(self) -> None:
        """Refuses deferred requests that have waited too long, and resumes reading when none is left.

        They waited for other requests of the same peer.
        """
        if self.is_closing or not self._deferred or self._late_requests is None:
            return
        waited_s = self._loop.time() - self._waits_since
        if not self._output_full and waited_s + CLOCK_STEP_S >= self._late_requests.min_wait_s():
            self._deferred = self._late_requests.refuse(self, self._deferred, waited_s)
            self._settle()
        if self._deferred:
            self._look_later()
