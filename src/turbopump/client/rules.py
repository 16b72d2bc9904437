"""What may be sent, and under which names: checked before anything reaches the wire (client.md §3.1).

Each complaint is an InvalidArgument that says what would be right.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, MessageQueue
from turbopump.protocol import names, properties
from turbopump.protocol.errors import InvalidParameter

DEFAULT_GROUP = "DEFAULT_PRODUCER"
I32_END = 1 << 31
LONGEST_DELAY_S = 1 << 50
PATH_SEPARATOR = "/"
MANY_PROPERTY_CHARACTERS = properties.MAX_BYTES // 4  # fewer cannot be too many bytes

TIMERS = frozenset({properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS})
OURS = {
    properties.TAGS: "give it as tags=",
    properties.KEYS: "give them as keys=",
    properties.DELAY: "give it as delay_level=",
    properties.WAIT: "give it as wait_store_ok=",
}
RESERVED = frozenset(
    {
        *OURS,
        properties.RETRY_TOPIC,
        properties.REAL_TOPIC,
        properties.REAL_QUEUE_ID,
        properties.TRANSACTION_PREPARED,
        properties.PRODUCER_GROUP,
        properties.MIN_OFFSET,
        properties.MAX_OFFSET,
        properties.ORIGIN_MESSAGE_ID,
        properties.TRANSFER_FLAG,
        properties.CORRECTION_FLAG,
        properties.MQ2_FLAG,
        properties.RECONSUME_TIME,
        properties.MAX_RECONSUME_TIMES,
        properties.MSG_REGION,
        properties.TRACE_ON,
        properties.EXTEND_UNIQ_INFO,
        properties.CONSUME_START_TIME,
        properties.DUP_INFO,
        properties.TRANSACTION_PREPARED_QUEUE_OFFSET,
        properties.INSTANCE_ID,
        properties.CORRELATION_ID,
        properties.REPLY_TO_CLIENT,
        properties.TTL,
        properties.ARRIVE_TIME,
        properties.PUSH_REPLY_TIME,
        properties.CLUSTER,
        properties.MESSAGE_TYPE,
        properties.POP_CK,
        properties.POP_CK_OFFSET,
        properties.FIRST_POP_TIME,
        properties.INNER_MULTI_QUEUE_OFFSET,
        properties.TIMER_ENQUEUE_MS,
        properties.TIMER_DEQUEUE_MS,
        properties.TIMER_ROLL_TIMES,
        properties.TIMER_OUT_MS,
        properties.TIMER_DEL_UNIQUE_KEY,
        properties.TIMER_DELAY_LEVEL,
        properties.BORN_HOST,
        properties.BORN_TIMESTAMP,
        properties.DLQ_ORIGIN_TOPIC,
        properties.DLQ_ORIGIN_MESSAGE_ID,
        properties.RECORD_CRC,
    }
)
"""Names of properties that clients and brokers set themselves. Free are those for which Java has setters and
we have no argument: the timers, BUYER_ID, and UNIQ_KEY for who must send the same message twice."""


def check_group(group: object) -> None:
    if not isinstance(group, str):
        raise InvalidArgument(f"a group is text, not {type(group).__name__}")
    if group == DEFAULT_GROUP:
        raise InvalidArgument(f"{group} is every producer's name and so no one's: choose a group of your own")
    _check_name("group", group, names.check_group)


def check_topic(topic: object) -> None:
    if not isinstance(topic, str):
        raise InvalidArgument(f"a topic is text, not {type(topic).__name__}")
    _check_name("topic", topic, names.check_topic)


def _check_name(kind: str, name: str, check: Callable[[str], None]) -> None:
    if not name or name.isspace():
        raise InvalidArgument(f"the {kind} is empty: give it a name")
    try:
        check(name)
    except InvalidParameter:
        longest = names.MAX_GROUP_LENGTH if kind == "group" else names.MAX_TOPIC_LENGTH
        if len(name) > longest:
            raise InvalidArgument(
                f"the {kind} {name[:40]}… has {len(name)} characters: at most {longest} are allowed"
            ) from None
        raise InvalidArgument(
            f"the {kind} {name!r} has characters that are not allowed: use letters a-z A-Z, digits, % | _ -"
        ) from None


@dataclass
class Rules:
    """Those for the messages of one producer. Topics that were found right are remembered."""

    max_message_size: int
    _topics: set[str] = field(default_factory=set)

    def check(self, message: Message) -> None:
        """Raises InvalidArgument. 0.4 µs for a message with nothing but topic, tag and body."""
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
        if message.tags:
            _check_text("the tag", message.tags)
        if message.keys:
            _check_keys(message.keys)
        if message.properties:
            _check_properties(message.properties)
        if message.delay_level or message.flag:
            _check_numbers(message)
        if message.delay is not None or message.deliver_at is not None:
            _check_time(message)
        if message.priority is not None:
            _check_priority(message)

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


def _check_keys(keys: Iterable[str]) -> None:
    for key in keys:
        if not isinstance(key, str):
            raise InvalidArgument(f"the key {key!r} is no text: write str(key)")
        if not key or any(map(str.isspace, key)):
            raise InvalidArgument(
                f"the key {key!r} has a blank, by which brokers tell keys apart: give several keys as a list"
            )
        _check_text("the key", key)


def _check_properties(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(f"properties are text: property {name!r} has the value {value!r}")
        if name in RESERVED:
            raise InvalidArgument(
                f"the property {name} is one of the protocol's own: {OURS.get(name, 'choose another name')}"
            )
        if not name.strip() or not value.strip():
            raise InvalidArgument(f"the property {name!r} must have a name and a value, not {value!r}")
        _check_text("the property", name)
        _check_text(f"the property {name}", value)
    if PATH_SEPARATOR in given.get(properties.INNER_MULTI_DISPATCH, ""):
        raise InvalidArgument(f"{properties.INNER_MULTI_DISPATCH} names queues without {PATH_SEPARATOR}")


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidArgument(f"{what} is text, not {type(text).__name__}")
    if properties.NAME_END in text or properties.PAIR_END in text:
        raise InvalidArgument(
            f"{what} {text!r} holds \\x01 or \\x02, which the protocol uses between properties"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{what} {text!r} cannot be written as UTF-8: {error.reason}") from None


def _check_numbers(message: Message) -> None:
    if not isinstance(message.delay_level, int) or not isinstance(message.flag, int):
        raise InvalidArgument(f"delay_level={message.delay_level!r}, flag={message.flag!r}: whole numbers")
    if message.delay_level < 0:
        raise InvalidArgument(
            f"delay_level={message.delay_level}: 0 is at once, 1 to 18 are the broker's messageDelayLevel"
        )
    if not -I32_END <= message.flag < I32_END or message.delay_level >= I32_END:
        raise InvalidArgument(f"flag={message.flag}, delay_level={message.delay_level}: numbers of 32 bits")


def _check_time(message: Message) -> None:
    """That it is one time, and which."""
    delay, deliver_at = message.delay, message.deliver_at
    wishes = [message.delay_level != 0, delay is not None, deliver_at is not None]
    if sum(wishes) > 1 or not TIMERS.isdisjoint(message.properties):
        raise InvalidArgument("delay_level=, delay= and deliver_at= each say when: give one of them")
    if delay is not None and (
        isinstance(delay, bool) or not isinstance(delay, int | float | timedelta) or not _is_finite(delay)
    ):
        raise InvalidArgument(f"delay={delay!r}: seconds, or a timedelta")
    if deliver_at is not None and (
        isinstance(deliver_at, bool) or not isinstance(deliver_at, int | datetime)
    ):
        raise InvalidArgument(f"deliver_at={deliver_at!r}: a datetime, or whole milliseconds since 1970")
    if isinstance(deliver_at, datetime) and deliver_at.tzinfo is None:
        raise InvalidArgument(
            f"deliver_at={deliver_at!r} has no time zone: write datetime(…, tzinfo=UTC), or .astimezone()"
        )


def _check_priority(message: Message) -> None:
    priority = message.priority
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority < I32_END:
        raise InvalidArgument(f"priority={priority!r}: a whole number from 0 on")
    if message.is_delayed:
        raise InvalidArgument("a delayed message has no priority: brokers take it away")


def _is_finite(delay: float | timedelta) -> bool:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    return 0 <= seconds < LONGEST_DELAY_S
