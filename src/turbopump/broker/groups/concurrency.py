"""Calls to clients, at most so many at once for each: who owes answers is not asked on and on.

Goes in: a request for the client of a connection. Comes out: its answer, or why there is none.
"""

from collections import Counter

from turbopump.protocol.command import Command
from turbopump.remoting.connection import Connection


class ClientBusy(OSError):
    """The client has not answered what it was asked before, or does not read."""


class ConcurrencyLimit:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unanswered: Counter[Connection] = Counter()

    async def call(self, connection: Connection, request: Command, timeout_s: float) -> Command:
        """Raises OwesAnswers, TimeoutError or another OSError."""
        if self._unanswered[connection] >= self._limit or connection.saturated:
            raise ClientBusy("it owes too many answers")
        self._unanswered[connection] += 1
        try:
            return await connection.call(request, timeout_s)
        finally:
            self._unanswered[connection] -= 1
            if not self._unanswered[connection]:
                del self._unanswered[connection]
