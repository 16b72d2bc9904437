"""What a producer may send, and under which names: checked before anything reaches the wire (client.md §3.1).

What is wrong with a message whoever sends it is known when it is made: `message_fields.py`. Each complaint is
an InvalidArgument that says what would be right.
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
MANY_PROPERTY_CHARACTERS = properties.MAX_BYTES // 4  # fewer cannot be too many bytes


def check_group(group: object) -> None:
    if not isinstance(group, str):
        raise InvalidArgument(f"a group is text, not {type(group).__name__}")
    if group == DEFAULT_GROUP:
        raise InvalidArgument(f"{group} is every producer's name and so no one's: choose a group of your own")
    check_name("group", group, names.check_group)


def check_seconds(seconds: float, name: str = "timeout") -> float:
    """Returns how long a call may wait. Raises InvalidArgument."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise InvalidArgument(f"{name} must be seconds, such as {name}=1.5, got {seconds!r}")
    return seconds


def check_timeout(timeout: float) -> float:
    """The same for what is short by nature: a number that looks like milliseconds is refused."""
    if check_seconds(timeout) > LOOKS_LIKE_MS:
        raise InvalidArgument(f"timeout is in seconds: {timeout} looks like ms; write {timeout / 1000}")
    return timeout


@dataclass
class SendRules:
    """Those for the messages of one producer. Topics that were found right are remembered."""

    max_message_size: int
    _topics: set[str] = field(default_factory=set)

    def check(self, message: Message) -> None:
        """Raises InvalidArgument. What its fields hold was checked when it was made."""
        if not isinstance(message, Message):
            raise InvalidArgument(
                f"a Message is sent, not {type(message).__name__}: write Message(topic, body)"
            )
        topic = message.topic
        if not isinstance(topic, str) or topic not in self._topics:
            check_target(topic)
            self._topics.add(topic)
        if not 0 < len(message.body) <= self.max_message_size:
            raise InvalidArgument(_body_complaint(len(message.body), self.max_message_size))

    def check_half(self, message: Message) -> None:
        """One that a ledger decides about: it may be delayed, from its commit on."""
        self.check(message)
        if message.priority is not None:
            raise InvalidArgument("a message that a ledger decides about has no priority: leave it out")
        if message.topic.startswith(names.RETRY_PREFIX):
            raise InvalidArgument("no ledger decides about messages to retry topics: send them one by one")

    def check_batch(self, messages: Sequence[Message]) -> None:
        """Those that go together must be of one kind."""
        for message in messages:
            self.check(message)
            if message.is_delayed or not TIMERS.isdisjoint(message.properties):
                raise InvalidArgument("a batch cannot hold delayed messages: send those one by one")
            if message.priority is not None:
                raise InvalidArgument("a batch cannot hold messages with a priority: send those one by one")
        if len({message.topic for message in messages}) > 1:
            raise InvalidArgument("the messages of a batch must have one topic: make a batch for each")
        if len({message.wait_store_ok for message in messages}) > 1:
            raise InvalidArgument("the messages of a batch must have the same wait_store_ok")
        if messages and messages[0].topic.startswith(names.RETRY_PREFIX):
            raise InvalidArgument("no batches to retry topics: send the messages one by one")


def check_target(topic: str) -> None:
    check_topic(topic)
    if topic in names.NOT_FOR_SENDERS:
        raise InvalidArgument(f"{topic} belongs to the brokers: send to a topic of your own")


def check_queue(queue: MessageQueue, message: Message) -> None:
    if queue.topic != message.topic:
        raise InvalidArgument(
            f"queue={queue.id} is one of {queue.topic}, the message is for {message.topic}: "
            f"take one of `await producer.queues({message.topic!r})`"
        )


def check_packed(packed: str) -> None:
    """All properties together, those that we add among them."""
    if len(packed) > MANY_PROPERTY_CHARACTERS and (size := len(packed.encode())) > properties.MAX_BYTES:
        raise InvalidArgument(
            f"the properties (tags and keys are among them) take {size} bytes, {properties.MAX_BYTES} is the "
            "most: put them into the body"
        )


def _body_complaint(size: int, largest: int) -> str:
    if not size:
        return "the body is empty: brokers refuse that; send at least one byte"
    return (
        f"the body has {size} bytes, max_message_size allows {largest}: keep large data elsewhere and send "
        "where it is, or raise max_message_size here and maxMessageSize at the brokers"
    )
