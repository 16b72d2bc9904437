"""Bounds silent connections, which may speak TLS or not, and TLS handshakes under way, by number and time.

When there are too many, the one that has waited longest is closed: a peer that sends its first bytes at once
gets in, however many others are silent.
"""

import asyncio
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from turbopump.runtime.network import descriptor_limit

MAX_SILENT = 1024  # a descriptor each, beside those of the connections that a server counts
SILENT_SHARE = 8  # at most this part of all descriptors
SILENT_TIMEOUT_S = 30.0  # clients, slaves and members of a group speak first, and within 5 s
MAX_HANDSHAKES = 1024  # some 50 KB each
HANDSHAKE_TIMEOUT_S = 10.0  # two round trips, and a server that is busy with others


class PendingConnection(Protocol):
    """Interface of a connection that can be given up."""

    def give_up(self, why: str) -> None: ...


C = TypeVar("C", bound=PendingConnection)


class PendingConnections:
    """Pending connections of all ports of a server: those that are silent, and handshakes under way."""

    def __init__(self, max_silent: int | None = None, max_handshakes: int = MAX_HANDSHAKES) -> None:
        """`max_silent`: by default as many as the descriptors of the process allow."""
        self._silent: WaitingConnections[PendingConnection] = WaitingConnections(
            max_silent or max(1, min(MAX_SILENT, descriptor_limit() // SILENT_SHARE)),
            SILENT_TIMEOUT_S,
            "it has sent nothing",
        )
        self._handshakes: WaitingConnections[PendingConnection] = WaitingConnections(
            max_handshakes, HANDSHAKE_TIMEOUT_S, "its TLS handshake has not ended"
        )

    def __len__(self) -> int:
        return len(self._silent) + len(self._handshakes)

    def accepted(self, connection: PendingConnection) -> None:
        """Counts a connection from its accept on."""
        self._silent.add(connection)

    def begun(self, connection: PendingConnection) -> None:
        """Counts a connection whose TLS handshake has begun."""
        self._silent.remove(connection)
        self._handshakes.add(connection)

    def ended(self, connection: PendingConnection) -> None:
        """Stops counting a connection: it is decided, or closed."""
        self._silent.remove(connection)
        self._handshakes.remove(connection)


class WaitingConnections(Generic[C]):
    """Connections that wait for the same, in the order in which they began; bounded by number and time."""

    def __init__(self, bound: int, timeout_s: float, what: str) -> None:
        self._bound = bound
        self._timeout_s = timeout_s
        self._what = what
        self._timers: dict[C, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._timers))

    def add(self, connection: C) -> None:
        if len(self._timers) >= self._bound:
            oldest = next(iter(self._timers))
            self.remove(oldest)
            oldest.give_up(f"{self._what}, and {self._bound} others wait too")
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(self._timeout_s, self._expire, connection)

    def remove(self, connection: C) -> None:
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, connection: C) -> None:
        self.remove(connection)
        connection.give_up(f"{self._what} in {self._timeout_s:g} s")
