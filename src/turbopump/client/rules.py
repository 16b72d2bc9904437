"""Checks what a producer may send, before anything reaches the wire (client.md §3.1).

`message_fields.py` has checked the fields of a message when it was made. Each error is an InvalidArgument
that says what would be valid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, MessageQueue
from turbopump.client.message_fields import RESERVED as RESERVED
from turbopump.client.message_fields import TIMERS, check_name
from turbopump.client.message_fields import check_topic as check_topic
from turbopump.client.settings import LOOKS_LIKE_MS
from turbopump.protocol import names, properties

DEFAULT_GROUP = "DEFAULT_PRODUCER"
SAFE_PROPERTY_CHARACTERS = properties.MAX_BYTES // 4  # fewer can never be too many bytes


def check_group(group: object) -> None:
    """Raises InvalidArgument unless `group` can be the name of a client's group (not DEFAULT_PRODUCER)."""
    if not isinstance(group, str):
        raise InvalidArgument(f"group must be text, got {type(group).__name__}")
    if group == DEFAULT_GROUP:
        raise InvalidArgument(f"group must be a name of your own, got {group}")
    check_name("group", group, names.check_group)


def check_seconds(seconds: float, name: str = "timeout") -> float:
    """Returns `seconds` if it is a number and not NaN; else raises InvalidArgument."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise InvalidArgument(f"{name} must be seconds, such as {name}=1.5, got {seconds!r}")
    return seconds


def check_timeout(timeout: float) -> float:
    """Returns `timeout` in seconds. Raises InvalidArgument if it is no number, or looks like milliseconds."""
    if check_seconds(timeout) > LOOKS_LIKE_MS:
        raise InvalidArgument(
            f"timeout must be seconds, got {timeout}, which looks like milliseconds: write {timeout / 1000}"
        )
    return timeout


@dataclass
class SendRules:
    """Checks the messages of one producer before they are sent; remembers topics that passed."""

    max_message_size: int
    _topics: set[str] = field(default_factory=set)

    def check(self, message: Message) -> None:
        """Raises InvalidArgument for a topic that may not be sent to, or a body that is empty or too large.

        The other fields were checked when the message was made.
        """
        if not isinstance(message, Message):
            raise InvalidArgument(
                f"message must be a Message, got {type(message).__name__}: write Message(topic, body)"
            )
        topic = message.topic
        if not isinstance(topic, str) or topic not in self._topics:
            check_target(topic)
            self._topics.add(topic)
        if not 0 < len(message.body) <= self.max_message_size:
            raise InvalidArgument(_body_error(len(message.body), self.max_message_size))

    def check_half(self, message: Message) -> None:
        """Raises InvalidArgument for a message that may not be a half message of a ledger.

        It may be delayed, from its commit on.
        """
        self.check(message)
        if message.priority is not None:
            raise InvalidArgument("priority must not be given for a message of a ledger: leave it out")
        if message.topic.startswith(names.RETRY_PREFIX):
            raise InvalidArgument("a ledger must not send to retry topics: send these messages one by one")

    def check_batch(self, messages: Sequence[Message]) -> None:
        """Raises InvalidArgument unless the messages may be one batch: one topic, no delays and so on.

        Also: one `wait_store_ok`, no priority, no retry topic.
        """
        for message in messages:
            self.check(message)
            if message.is_delayed or not TIMERS.isdisjoint(message.properties):
                raise InvalidArgument("a batch must not contain delayed messages: send those one by one")
            if message.priority is not None:
                raise InvalidArgument(
                    "a batch must not contain messages with a priority: send those one by one"
                )
        if len({message.topic for message in messages}) > 1:
            raise InvalidArgument("the messages of a batch must have one topic: make a batch for each")
        if len({message.wait_store_ok for message in messages}) > 1:
            raise InvalidArgument("the messages of a batch must have the same wait_store_ok")
        if messages and messages[0].topic.startswith(names.RETRY_PREFIX):
            raise InvalidArgument("a batch must not go to a retry topic: send the messages one by one")


def check_target(topic: str) -> None:
    """Raises InvalidArgument for a topic that clients may not send to."""
    check_topic(topic)
    if topic in names.NOT_FOR_SENDERS:
        raise InvalidArgument(f"topic must not be one of the brokers' own, got {topic}")


def check_queue(queue: MessageQueue, message: Message) -> None:
    """Raises InvalidArgument for a queue of another topic than the message's."""
    if queue.topic != message.topic:
        raise InvalidArgument(
            f"queue must be one of topic {message.topic}, got queue {queue.id} of {queue.topic}: "
            f"take one of `await producer.queues({message.topic!r})`"
        )


def check_packed(packed: str) -> None:
    """Raises InvalidArgument if the packed properties, with those that the client adds, are too long."""
    if len(packed) > SAFE_PROPERTY_CHARACTERS and (size := len(packed.encode())) > properties.MAX_BYTES:
        raise InvalidArgument(
            f"the properties with tags and keys must have at most {properties.MAX_BYTES} bytes, got {size}: "
            "put them into the body"
        )


def _body_error(size: int, largest: int) -> str:
    if not size:
        return "the body must not be empty: brokers refuse that; send at least one byte"
    return (
        f"the body must have at most {largest} bytes (max_message_size), got {size}: store large data "
        "elsewhere and send its place, or raise max_message_size here and maxMessageSize at the brokers"
    )
