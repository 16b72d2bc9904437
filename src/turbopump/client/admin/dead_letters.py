"""Lists the dead letters of a group, messages that failed as often as allowed, and resends copies.

They stay in the group's dead-letter topic. A copy that is sent again carries the id of its dead letter, so
that a second run finds the copy and does not send it twice.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum

from turbopump.client.admin.calls import NotFound
from turbopump.client.admin.messages import FOREVER_MS, Messages, NoMessages
from turbopump.client.errors import InvalidArgument
from turbopump.client.group.subscription import Subscription
from turbopump.client.message import CopiedMessage, MessageExt, MessageQueue, SendResult
from turbopump.client.produce.sender import Sender
from turbopump.client.routes import RouteCache
from turbopump.protocol import properties
from turbopump.protocol.errors import TopicNotFound
from turbopump.protocol.names import dlq_topic, retry_topic

MADE_FROM = "DLQ_RESENT_FROM"
"""Property of a copy: the offset message id of the dead letter."""

DELIVERY_PROPERTIES = frozenset(
    {
        properties.DELAY,
        properties.RETRY_TOPIC,
        properties.REAL_TOPIC,
        properties.REAL_QUEUE_ID,
        properties.RECONSUME_TIME,
        properties.MAX_RECONSUME_TIMES,
    }
)
"""Properties of the earlier deliveries, which a copy must not have."""


class NoLetters(NotFound):
    """The group has no dead letters, or none with that id, or its dead-letter topic may not be read."""


class Target(Enum):
    """Where copies of dead letters are sent: to their group alone, or to their original topic."""

    GROUP = "group"
    """The group's retry topic: this group alone consumes them again."""
    TOPIC = "topic"
    """The topic they were first sent to: every group that reads it consumes them."""


@dataclass(frozen=True, slots=True)
class Window:
    """A range of store times in milliseconds since 1970, both ends included."""

    begin_ms: int = 0
    end_ms: int = FOREVER_MS


ALWAYS = Window()


@dataclass
class DeadLetters:
    """Lists, finds and resends the dead letters of one group; made by `admin.dead_letters(group)`.

    Example:

        letters = admin.dead_letters("billing")
        async for letter in letters.within():
            if not await letters.copies(letter):
                await letters.resend(letter)
    """

    messages: Messages
    routes: RouteCache
    group: str
    sender: Sender | None = None

    @property
    def topic(self) -> str:
        """The dead-letter topic of the group."""
        return dlq_topic(self.group)

    async def within(self, window: Window = ALWAYS) -> AsyncIterator[MessageExt]:
        """Yields the dead letters stored within `window`: queue by queue, oldest first. Raises NoLetters."""
        for queue in await self._queues():
            async for message in self._of_queue(queue, window):
                yield message

    async def with_id(self, message_id: str) -> MessageExt:
        """Returns a dead letter by its unique id or its offset id. Raises NoLetters."""
        try:
            found = await self.messages.find(self.topic, message_id)
        except (NoMessages, TopicNotFound):
            raise NoLetters(f"group {self.group} has no dead letter {message_id}") from None
        if found.record.topic != self.topic:
            raise NoLetters(f"message {message_id} is not a dead letter of group {self.group}")
        return found

    async def _of_queue(self, queue: MessageQueue, window: Window) -> AsyncIterator[MessageExt]:
        puller = self.messages.puller
        begin, end = await puller.min_offset(queue), await puller.max_offset(queue)
        if window.begin_ms > 0:
            begin = max(begin, await puller.offset_at(queue, window.begin_ms))
        async for result in self.messages.pulls(queue, begin, end):
            for message in result.messages(queue, Subscription(queue.topic)):
                if message.store_timestamp > window.end_ms:
                    return
                if message.store_timestamp >= window.begin_ms:  # 4.x answers a late time with the last one
                    yield message

    async def _queues(self) -> tuple[MessageQueue, ...]:
        try:
            route = await self.routes.find(self.topic)
        except TopicNotFound:
            raise NoLetters(f"group {self.group} has no dead letters") from None
        if not route.subscribe:
            way = f"mqadmin updateTopicPerm -t {self.topic} -p 6 -c CLUSTER"
            raise NoLetters(f"{self.topic} may not be read; `{way}` allows it")
        return route.subscribe

    async def copies(self, letter: MessageExt, target: Target = Target.GROUP) -> list[MessageExt]:
        """Returns the stored copies of this letter that `resend` sent to `target` before; empty: none."""
        try:
            topic = self.target_of(letter, target)
            found = await self.messages.every_copy(topic, letter.message_id, letter.store_timestamp)
        except TopicNotFound:
            return []
        return [one for one in found if one.properties.get(MADE_FROM) == letter.offset_message_id]

    async def resend(
        self, letter: MessageExt, target: Target = Target.GROUP, producer: Sender | None = None
    ) -> SendResult:
        """Sends a copy of a dead letter to the group's retry topic, or to its original topic (`target`).

        The dead letter stays. Raises Refused, OSError, or BrokenBody for a body that cannot be read.
        """
        sender = producer or self.sender
        if sender is None:
            raise InvalidArgument("producer must be given: this object has none")
        kept = {
            name: value
            for name, value in letter.record.property_map().items()
            if name not in DELIVERY_PROPERTIES
        }
        kept[MADE_FROM] = letter.offset_message_id
        if target is Target.GROUP:
            kept[properties.RETRY_TOPIC] = origin_of(letter)
        topic = self.target_of(letter, target)
        return await sender.send(CopiedMessage(topic, letter.body, properties=kept, flag=letter.record.flag))

    def target_of(self, letter: MessageExt, target: Target) -> str:
        """Returns the topic a copy goes to. NoLetters: `target` is TOPIC and the letter names no original."""
        if target is Target.GROUP:
            return retry_topic(self.group)
        origin = origin_of(letter)
        if origin == self.topic:
            raise NoLetters(f"dead letter {letter.message_id} does not say which topic it was sent to")
        return origin


def origin_of(letter: MessageExt) -> str:
    """Returns the topic that a dead letter was first sent to; its dead-letter topic if it names none."""
    own = letter.properties
    return own.get(properties.RETRY_TOPIC) or own.get(properties.DLQ_ORIGIN_TOPIC) or letter.record.topic
