"""Lists and recalls delayed messages that wait for an exact time.

They are read from the topic in which brokers of 5.x, Apache's and Turbopump's, store them. A message may be
there several times, because it is stored again every other day, and so may its recall: the newest counts.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from turbopump.client.admin.calls import NotFound
from turbopump.client.admin.messages import Messages
from turbopump.client.errors import InvalidArgument
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.produce import recalls
from turbopump.client.produce.sender import Sender
from turbopump.client.routes import RouteCache
from turbopump.protocol import properties
from turbopump.protocol.display import NotebookTable
from turbopump.protocol.errors import TopicNotFound
from turbopump.protocol.handles import RecallHandle, read_handle
from turbopump.protocol.names import TIMER_TOPIC
from turbopump.runtime.clock import Clock

EXACT = "TURBOPUMP_DELIVER_AT"  # only Turbopump's brokers write it
LATEST_OF_SLOT_MS = 1_000  # the time slot of Apache's brokers
RECALL_TIMEOUT_S = 5.0


class NoTimers(NotFound):
    """No broker of the cluster supports messages with an exact time."""


@dataclass(frozen=True, slots=True, repr=False)
class Timer(NotebookTable):
    """A message that waits at a broker for its exact delivery time, and the handle to recall it."""

    topic: str
    """The topic it will be delivered to."""
    message: MessageExt
    due_ms: int
    """When it is delivered; at Apache's broker a message with a delay may come up to a second earlier."""
    handle: str
    """The handle to recall it."""


@dataclass
class Timers:
    """Lists and recalls messages that wait for an exact time.

    Example:

        for timer in await admin.timers.pending("OrderTopic"):
            print(timer.message.message_id, timer.due_ms)
            await admin.timers.recall(timer.handle)
    """

    messages: Messages
    routes: RouteCache
    clock: Clock
    sender: Sender

    async def pending(self, topic: str | None = None) -> list[Timer]:
        """Returns the messages that wait for an exact time, in all topics or one, by time. Raises NoTimers.

        It reads everything that the brokers store of them.
        """
        found: list[Timer] = []
        for queue in await self._queues():
            waiting: dict[tuple[str, str], Timer] = {}
            async for message in self._all_of(queue):
                _take(waiting, message, queue.broker)
            found += waiting.values()
        now_ms = self.clock.now_ms()
        wanted = [one for one in found if one.due_ms > now_ms and topic in (None, one.topic)]
        return sorted(wanted, key=lambda one: (one.due_ms, one.message.message_id))

    async def recall(self, handle: str) -> str:
        """Recalls a waiting message, so that no consumer gets it; returns its id. Refused if it is too late.

        Raises Refused when it is too late, InvalidArgument for what is not a recall handle.
        """
        found = read_handle(handle)
        if found is None:
            raise InvalidArgument(
                f"handle must be a recall handle, got {handle!r}: `pending` returns one for each message"
            )
        return await recalls.recall(self.sender, found.topic, handle, RECALL_TIMEOUT_S)

    async def _queues(self) -> tuple[MessageQueue, ...]:
        try:
            return (await self.routes.find(TIMER_TOPIC)).subscribe
        except TopicNotFound:
            raise NoTimers(
                "no broker of this cluster supports messages with an exact time: 5.x is needed"
            ) from None

    async def _all_of(self, queue: MessageQueue) -> AsyncIterator[MessageExt]:
        puller = self.messages.puller
        begin, end = await puller.min_offset(queue), await puller.max_offset(queue)
        async for result in self.messages.pulls(queue, begin, end):
            for message in result.messages(queue, Subscription(queue.topic)):
                yield message


def _take(waiting: dict[tuple[str, str], Timer], message: MessageExt, broker: str) -> None:
    pairs = message.properties
    topic, key = pairs.get(properties.REAL_TOPIC, ""), pairs.get(properties.UNIQUE_KEY, "")
    recalled = pairs.get(properties.TIMER_DEL_UNIQUE_KEY)
    due_ms = _due_ms(message)
    if due_ms is None or not topic:
        return
    if recalled is not None:
        waiting.pop((topic, recalled.removeprefix(f"{topic}+")), None)
    else:
        handle = RecallHandle(topic, broker, str(due_ms), key).pack()
        waiting[topic, key] = Timer(topic, message, due_ms, handle)


def _due_ms(message: MessageExt) -> int | None:
    """Returns the due time in ms, or without an exact one the end of its slot; None: it has neither."""
    pairs = message.properties
    for name, later_ms in ((EXACT, 0), (properties.TIMER_OUT_MS, LATEST_OF_SLOT_MS)):
        text = pairs.get(name, "")
        if text.isascii() and text.isdecimal():
            return int(text) + later_ms
    return None
