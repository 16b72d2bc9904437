"""Which user may receive the replies to a client: who sent the request, else who used the client id first.

In: heartbeats and requests that passed the gate. Out: whether a user may receive a reply. A client chooses
its id itself, and any user may say that it is a producer, so the id alone would give a reply to whoever
connected last with it. The request is known to the broker that stored it; a reply may come to another one,
where the id belongs to the user who used it first, and still for `KEPT_S` after the last of its connections.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from turbopump.remoting.connection import Connection

KEPT_S = 120.0  # four heartbeats of a client that connects again
MAX_IDLE = 10_000  # ids without a connection, about 3 MB; beyond it the one that is idle longest is dropped
MAX_REQUESTS = 65_536  # about 15 MB; beyond it the oldest is dropped, and its id decides
MAX_ID = 255  # characters: longer ones are not remembered, and must not fill the memory


@dataclass(slots=True)
class _Owner:
    user: str
    connections: set[Connection] = field(default_factory=set)
    until: float = 0.0
    """When an owner without a connection is forgotten."""


class ReplyReceivers:
    """Table of the users that sent requests, and of those that own client ids."""

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        self._requests: OrderedDict[str, str] = OrderedDict()

    def asked(self, correlation_id: str, user: str) -> None:
        """Remembers who sent a request; the first one who uses a correlation id counts."""
        if not 0 < len(correlation_id) <= MAX_ID or correlation_id in self._requests:
            return
        self._requests[correlation_id] = user
        if len(self._requests) > MAX_REQUESTS:
            self._requests.popitem(last=False)

    def beat(self, client_id: str, user: str, connection: Connection, now: float) -> bool:
        """Notes that a client is there; returns False if its id belongs to another user."""
        if len(client_id) > MAX_ID:
            return True
        self._forget_idle(now)
        owner = self._owners.setdefault(client_id, _Owner(user))
        if owner.user != user:
            return False
        owner.connections.add(connection)
        self._idle.pop(client_id, None)
        return True

    def closed(self, client_id: str, connection: Connection, now: float) -> None:
        """Notes that a connection has ended; its client id stays that of its user for a while."""
        owner = self._owners.get(client_id)
        if owner is None or connection not in owner.connections:
            return
        owner.connections.discard(connection)
        if not owner.connections:
            owner.until = now + KEPT_S
            self._idle[client_id] = None
            self._forget_idle(now)

    def may_receive(self, client_id: str, correlation_id: str, user: str) -> bool:
        """Returns whether a user may receive the reply to a request that this client is said to have sent."""
        asked = self._requests.get(correlation_id)
        if asked is not None:
            return asked == user
        owner = self._owners.get(client_id)
        return owner is not None and owner.user == user

    def _forget_idle(self, now: float) -> None:
        while self._idle:
            oldest = next(iter(self._idle))
            if len(self._idle) <= MAX_IDLE and self._owners[oldest].until > now:
                return
            del self._idle[oldest], self._owners[oldest]
