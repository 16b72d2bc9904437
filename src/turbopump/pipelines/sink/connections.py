"""Keeps the connections of a worker process from task to task, since Spark reuses its workers.

In: a key that says where to connect. Out: the connection made for it in this process. A forked process makes
its own. At most MAX_CACHED connections of a kind are open; the least recently used one is closed for a new
one.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from turbopump.client import background
from turbopump.client.admin.calls import ServerUnreachable
from turbopump.client.errors import SendFailed, TopicNotFound
from turbopump.runtime.clock import Clock

MAX_CACHED = 16
RETRY_PAUSE_S = 0.5
TOPIC_PATIENCE_S = 10.0  # after a restart, name servers learn a broker's topics a little later
CLOSE_TIMEOUT_S = 5.0


class AsyncClosable(Protocol):
    """Interface of a connection that is closed by a coroutine."""

    async def close(self) -> None: ...


T = TypeVar("T")
C = TypeVar("C", bound=AsyncClosable)


class ConnectionCache(Generic[C]):
    """Cache of connections of one kind in this process, by key; at most MAX_CACHED stay open."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, C] = {}
        self._pid = os.getpid()

    def get(self, key: Hashable, make: Callable[[], C]) -> C:
        """Returns or makes the connection of a key; beyond MAX_CACHED, closes the least recently used one."""
        if self._pid != os.getpid():  # the parent's connections stay with the parent
            background.leave_to_parent(self._kept)
            self._kept, self._pid = {}, os.getpid()
        one = self._kept.pop(key, None)
        if one is None:
            one = make()
        self._kept[key] = one
        while len(self._kept) > MAX_CACHED:
            self.drop(next(iter(self._kept)))
        return one

    def drop(self, key: Hashable) -> None:
        """Closes the connection of a key, if there is one: the next user of the key makes a new one."""
        one = self._kept.pop(key, None)
        if one is not None:
            with contextlib.suppress(OSError):
                background.run(one.close(), CLOSE_TIMEOUT_S)


async def retry_while_unavailable(ask: Callable[[], Awaitable[T]], patience_s: float, clock: Clock) -> T:
    """Returns the result of `ask`, repeated for at most `patience_s` while servers are not available.

    Only for calls that may be repeated.
    """
    began = clock.monotonic()
    while True:
        try:
            return await ask()
        except TopicNotFound:
            left_s = min(patience_s, TOPIC_PATIENCE_S) - (clock.monotonic() - began)
            if left_s <= RETRY_PAUSE_S:
                raise
        except (ServerUnreachable, SendFailed):
            left_s = patience_s - (clock.monotonic() - began)
            if left_s <= RETRY_PAUSE_S:
                raise
        await clock.sleep(RETRY_PAUSE_S)
