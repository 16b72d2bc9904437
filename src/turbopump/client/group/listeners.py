"""Callbacks of the user for queues that have come or gone, the same for both kinds of consumers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from turbopump.client.message import MessageQueue
from turbopump.client.queue_names import QueueNames

log = logging.getLogger(__name__)

QueuesListener = Callable[
    [str, tuple[MessageQueue, ...], tuple[MessageQueue, ...]], object | Awaitable[object]
]
"""Told a topic, all its queues that can be read, and those of them that are ours."""


class QueueListeners:
    """Topics are those on the wire here; callbacks hear the names that the user knows."""

    def __init__(self, names: QueueNames) -> None:
        self._names = names
        self._by_topic: dict[str, list[QueuesListener]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    def add(self, topic: str, listener: QueuesListener) -> None:
        self._by_topic.setdefault(topic, []).append(listener)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._by_topic)

    def tell(self, topic: str, queues: Iterable[MessageQueue], mine: Iterable[MessageQueue]) -> None:
        """Without waiting for what they say."""
        name = self._names.shown_topic(topic)
        every, own = (self._names.all_shown(tuple(sorted(some))) for some in (queues, mine))
        for listener in self._by_topic.get(topic, ()):
            call = asyncio.get_running_loop().create_task(_tell(listener, name, every, own))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def close(self) -> None:
        """Ends calls that are still under way."""
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def _tell(listener: QueuesListener, *change: object) -> None:
    try:
        await call_user(listener, *change)
    except Exception:
        log.exception("A callback for changed queues failed")


async def call_user(callback: Callable[..., object | Awaitable[object]], *arguments: object) -> object:
    """What a user's callback says: `async def` on the loop, `def` in a thread, where it may block."""
    if asyncio.iscoroutinefunction(callback):
        return await callback(*arguments)
    told = await asyncio.to_thread(callback, *arguments)
    return await told if isinstance(told, Awaitable) else told
