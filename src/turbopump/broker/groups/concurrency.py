"""Limits concurrent calls from the broker to each client.

In: a request for the client of a connection. Out: its answer, or an OSError.
"""

from collections import Counter

from turbopump.protocol.command import Command
from turbopump.remoting.connection import Connection


class ClientBusy(OSError):
    """Raised when a client has too many unanswered calls, or does not read from its connection."""


class ConcurrencyLimit:
    """Calls clients, with at most `limit` unanswered calls per connection."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unanswered: Counter[Connection] = Counter()

    async def call(self, connection: Connection, request: Command, timeout_s: float) -> Command:
        """Calls the client and returns its answer; raises ClientBusy, TimeoutError or another OSError."""
        if self._unanswered[connection] >= self._limit or connection.saturated:
            raise ClientBusy("it has too many unanswered requests")
        self._unanswered[connection] += 1
        try:
            return await connection.call(request, timeout_s)
        finally:
            self._unanswered[connection] -= 1
            if not self._unanswered[connection]:
                del self._unanswered[connection]
