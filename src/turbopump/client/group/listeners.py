"""Callbacks of the user for changed assignments of queues, for push and pull consumers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from turbopump.client.message import MessageQueue
from turbopump.client.queue_names import QueueNames
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

QueuesListener = Callable[
    [str, tuple[MessageQueue, ...], tuple[MessageQueue, ...]], object | Awaitable[object]
]
"""Called with a topic, all its readable queues, and those assigned to this consumer."""


class QueueListeners:
    """Keeps and calls the user's callbacks for changed assignments of queues, by topic.

    Topics here are those on the wire, callbacks get the user's names.
    """

    def __init__(self, names: QueueNames) -> None:
        self._names = names
        self._by_topic: dict[str, list[QueuesListener]] = {}
        self._calls = Tasks(log)

    def add(self, topic: str, listener: QueuesListener) -> None:
        self._by_topic.setdefault(topic, []).append(listener)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._by_topic)

    def notify(self, topic: str, queues: Iterable[MessageQueue], mine: Iterable[MessageQueue]) -> None:
        """Calls the topic's callbacks in the background, with all its queues and this consumer's (`mine`)."""
        name = self._names.shown_topic(topic)
        every, own = (self._names.all_shown(tuple(sorted(some))) for some in (queues, mine))
        for listener in self._by_topic.get(topic, ()):
            self._calls.start(_notify(listener, name, every, own))

    async def close(self) -> None:
        """Cancels the callbacks that still run."""
        await self._calls.close()


async def _notify(listener: QueuesListener, *change: object) -> None:
    try:
        await call_user(listener, *change)
    except Exception:
        log.exception("A callback for changed queues failed")


async def call_user(callback: Callable[..., object | Awaitable[object]], *arguments: object) -> object:
    """Calls a user's callback, `async def` on the loop, `def` in a thread; returns its result."""
    if asyncio.iscoroutinefunction(callback):
        return await callback(*arguments)
    told = await asyncio.to_thread(callback, *arguments)
    return await told if isinstance(told, Awaitable) else told
