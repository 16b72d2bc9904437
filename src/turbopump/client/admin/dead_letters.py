"""Dead letters: messages that a group could not consume as often as it may try.

They wait in the group's dead-letter topic until somebody looks. Sent again, a copy carries the id of the
letter that it was made from, so that a second try finds it and does not send it twice.
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

OF_THEIR_WAY = frozenset(
    {
        properties.DELAY,
        properties.RETRY_TOPIC,
        properties.REAL_TOPIC,
        properties.REAL_QUEUE_ID,
        properties.RECONSUME_TIME,
        properties.MAX_RECONSUME_TIMES,
    }
)
"""Properties that say how a message came to be here; a copy starts anew without them."""


class NoLetters(NotFound):
    """The group has no dead letters, or they may not be read."""


class Target(Enum):
    GROUP = "group"
    """The group's retry topic: this group alone consumes them again."""
    TOPIC = "topic"
    """The topic they were first sent to: every group that reads it consumes them."""


@dataclass(frozen=True, slots=True)
class Window:
    """When the letters were stored, both ends included."""

    begin_ms: int = 0
    end_ms: int = FOREVER_MS


ALWAYS = Window()


@dataclass
class DeadLetters:
    """Of one group; `admin.dead_letters(group)` gives them.

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
        """Where they are."""
        return dlq_topic(self.group)

    async def within(self, window: Window = ALWAYS) -> AsyncIterator[MessageExt]:
        """Those that are there now, or of them those stored within that time: queue by queue, oldest first.
        Raises NoLetters.
        """
        for queue in await self._queues():
            async for message in self._of_queue(queue, window):
                yield message

    async def with_id(self, message_id: str) -> MessageExt:
        """By either kind of id. Raises NoLetters."""
        try:
            found = await self.messages.find(self.topic, message_id)
        except (NoMessages, TopicNotFound):
            raise NoLetters(f"group {self.group} has no dead letter {message_id}") from None
        if found.record.topic != self.topic:
            raise NoLetters(f"message {message_id} is no dead letter of group {self.group}")
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
        """What `resend` has made from this letter before and is still stored."""
        try:
            topic = self.target_of(letter, target)
            found = await self.messages.every_copy(topic, letter.message_id, letter.store_timestamp)
        except TopicNotFound:
            return []
        return [one for one in found if one.properties.get(MADE_FROM) == letter.offset_message_id]

    async def resend(
        self, letter: MessageExt, target: Target = Target.GROUP, producer: Sender | None = None
    ) -> SendResult:
        """Sends a copy, for this group alone or to all that read the topic it was first sent to. The letter
        stays where it is. Raises Refused, OSError, or BrokenBody for a body that cannot be read.
        """
        sender = producer or self.sender
        if sender is None:
            raise InvalidArgument("dead letters are sent again by a producer: give one")
        kept = {
            name: value for name, value in letter.record.property_map().items() if name not in OF_THEIR_WAY
        }
        kept[MADE_FROM] = letter.offset_message_id
        if target is Target.GROUP:
            kept[properties.RETRY_TOPIC] = origin_of(letter)
        topic = self.target_of(letter, target)
        return await sender.send(CopiedMessage(topic, letter.body, properties=kept, flag=letter.record.flag))

    def target_of(self, letter: MessageExt, target: Target) -> str:
        """Raises NoLetters for one that does not say where it was first."""
        if target is Target.GROUP:
            return retry_topic(self.group)
        origin = origin_of(letter)
        if origin == self.topic:
            raise NoLetters(f"dead letter {letter.message_id} does not say which topic it was sent to")
        return origin


def origin_of(letter: MessageExt) -> str:
    """The topic it was first sent to, as the broker wrote it down."""
    own = letter.properties
    return own.get(properties.RETRY_TOPIC) or own.get(properties.DLQ_ORIGIN_TOPIC) or letter.record.topic
