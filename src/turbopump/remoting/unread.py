"""Bounds the answers that all peers of a server together leave unread."""

import logging
from collections.abc import Iterable
from typing import Protocol

from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)


class SlowReader(Protocol):
    """Interface of a connection whose peer leaves answers unread."""

    @property
    def unread(self) -> int:
        """Number of written bytes that the peer has not taken yet."""

    def abort(self) -> None: ...


class UnreadAnswers:
    """Counts the bytes that slow readers leave unread, and aborts connections if the total is too large.

    A slow reader is a peer whose output is full: it has more than `Limits.output_low` bytes unread.
    """

    def __init__(self, max_bytes: int, clock: Clock, peer_errors: RateLimitedLog) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._peer_errors = peer_errors
        self._slow: dict[SlowReader, int] = {}  # slow readers, longest first: bytes unread when last counted
        self._total = 0  # the sum of these

    def count(self, connection: SlowReader) -> None:
        """Updates a slow reader's unread bytes; aborts those slow for longest while the total is too large.

        Called when the output of a connection becomes full, and then after each write to it.
        """
        unread = connection.unread
        self._total += unread - self._slow.get(connection, 0)
        self._slow[connection] = unread
        if self._total > self._max_bytes:
            self._recount()
        while self._total > self._max_bytes:
            longest = next(iter(self._slow))
            text = "Closing %s: too many answers are left unread, and it has not read for longest"
            self._peer_errors.log(self._clock.monotonic(), text, longest)
            longest.abort()

    def forget(self, connection: SlowReader) -> None:
        """Stops counting a connection: its peer reads again, or the connection is closed."""
        self._total -= self._slow.pop(connection, 0)

    def bound(self, connections: Iterable[SlowReader], now: float) -> None:
        """Aborts connections, those with most unread bytes first, until the total is within the limit.

        Looks at all of them, also at those that leave too little unread to be slow: there may be very many.
        """
        unread = {connection: connection.unread for connection in connections}
        total = sum(unread.values())
        for largest in sorted(unread, key=unread.__getitem__, reverse=True):
            if total <= self._max_bytes:
                break
            text = "Closing %s: too many answers are left unread, most of them by this one: %d bytes"
            self._peer_errors.log(now, text, largest, unread[largest])
            total -= unread[largest]
            largest.abort()

    def _recount(self) -> None:
        """Updates the unread bytes of all slow readers, and their total.

        Some may have read a little since they were last written to. Each has more than `Limits.output_low`,
        so there are never many.
        """
        for connection in self._slow:
            self._slow[connection] = connection.unread
        self._total = sum(self._slow.values())
