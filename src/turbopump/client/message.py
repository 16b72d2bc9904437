"""Messages to send and received messages, their queues, and the receipts of brokers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import msgspec
from msgspec.structs import force_setattr

from turbopump.client.bodies import from_json, to_json
from turbopump.client.errors import InvalidArgument
from turbopump.client.message_fields import (
    check_keys,
    check_numbers,
    check_priority,
    check_properties,
    check_tag,
    check_time,
    check_topic,
    check_topic_once,
)
from turbopump.client.namespace import unwrap
from turbopump.client.shown import body_text
from turbopump.protocol import bodies, names, properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.display import html_table
from turbopump.protocol.ids import host_text, offset_id
from turbopump.protocol.record import Record, body_of
from turbopump.protocol.sysflag import COMPRESSED

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message(msgspec.Struct, frozen=True):
    """A message to send. Making one raises InvalidArgument for a field that is not valid.

    >>> Message("OrderTopic", b"paid", tags="paid", keys="A-1").property_map()
    {'TAGS': 'paid', 'KEYS': 'A-1'}
    """

    topic: str
    body: bytes
    tags: str = ""
    """One tag, by which consumers can filter."""
    keys: tuple[str, ...] = ()
    """Keys by which the message can be found later, without blanks. One text, or several."""
    properties: Mapping[str, str] = {}
    """Properties of the user; names that the protocol uses itself are refused."""
    delay_level: int = 0
    """0: no delay; 1 to 18: the delay of that level in the broker's `messageDelayLevel`."""
    flag: int = 0
    """Any number of 32 bits: it is stored and not interpreted."""
    wait_store_ok: bool = True
    """True: answer after disk and replicas, as the broker is configured; False: when it is in memory."""
    delay: float | timedelta | None = None
    """Delay before delivery: seconds, or a timedelta. For brokers of 5.x; others ignore it."""
    deliver_at: datetime | int | None = None
    """Time of delivery: a datetime with a time zone, or milliseconds since 1970. A number that looks like
    seconds is refused. For brokers of 5.x; others ignore it.
    """
    priority: int | None = None
    """From 0 on: the number of the queue it goes to, or the last one, for consumers that read these first.
    For brokers of 5.5; others ignore it.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            topic: str,
            body: bytes,
            tags: str = "",
            keys: str | Iterable[str] = (),
            properties: Mapping[str, str] | None = None,
            delay_level: int = 0,
            flag: int = 0,
            wait_store_ok: bool = True,
            delay: float | timedelta | None = None,
            deliver_at: datetime | int | None = None,
            priority: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.body.__class__ is not bytes:
            force_setattr(self, "body", _bytes(self.body))
        if self.keys.__class__ is not tuple:
            given: str | Iterable[str] = self.keys
            force_setattr(self, "keys", _keys(given))
        if self.properties is None:
            force_setattr(self, "properties", {})
        self._check()

    def _check(self) -> None:
        """Raises InvalidArgument for the first field that is not valid, when the message is made."""
        if self.topic.__class__ is not str:
            check_topic(self.topic)
        check_topic_once(self.topic)
        if self.tags:
            if not isinstance(self.tags, str):
                raise InvalidArgument(f"tags must be text, got {type(self.tags).__name__}")
            check_tag(self.tags)
        if self.keys:
            check_keys(self.keys)
        if self.properties:
            check_properties(self.properties)
        if self.delay_level or self.flag:
            check_numbers(self.delay_level, self.flag)
        if self.delay is not None or self.deliver_at is not None:
            check_time(self.delay_level, self.delay, self.deliver_at, self.properties)
        if self.priority is not None:
            check_priority(self.priority, self.is_delayed)

    @classmethod
    def json(
        cls, topic: str, value: object, tags: str = "", keys: str | Iterable[str] = (), **more: Any
    ) -> Self:
        """Makes a message with `value` as JSON body: also dataclass, msgspec struct, pydantic model, date.

        >>> Message.json("OrderTopic", {"id": 7}, tags="paid").body
        b'{"id":7}'
        """
        return cls(topic, to_json(value), tags, keys, **more)

    def __repr__(self) -> str:
        more = [f"{name}={value!r}" for name, value in self._shown()]
        return f"{type(self).__name__}({', '.join([repr(self.topic), body_text(self.body), *more])})"

    def _repr_html_(self) -> str:
        rows = [("topic", self.topic), ("body", body_text(self.body)), *self._shown()]
        return html_table(type(self).__name__, rows)

    def _shown(self) -> list[tuple[str, object]]:
        """Returns name and value of the fields after topic and body that differ from their defaults."""
        fields = zip(self.__struct_fields__[2:], self.__struct_defaults__, strict=True)
        values = [(name, getattr(self, name), default) for name, default in fields]
        return [(name, value) for name, value, default in values if value != default and value != {}]

    @property
    def is_delayed(self) -> bool:
        """Whether `delay_level`, `delay` or `deliver_at` is set, so that the message is delivered later."""
        return bool(self.delay_level) or self.delay is not None or self.deliver_at is not None

    def property_map(self) -> dict[str, str]:
        """Returns all properties to send, with those for tags, keys, delay and priority; no empty ones."""
        own = {name: value for name, value in self.properties.items() if value}
        if self.tags:
            own[properties.TAGS] = self.tags
        if self.keys:
            own[properties.KEYS] = " ".join(self.keys)
        if self.delay_level:
            own[properties.DELAY] = str(self.delay_level)
        if self.delay is not None:
            own[properties.TIMER_DELAY_MS] = str(_milliseconds(self.delay))
        if self.deliver_at is not None:
            own[properties.TIMER_DELIVER_MS] = str(deliver_at_ms(self.deliver_at))
        if self.priority is not None:
            own[properties.PRIORITY] = str(self.priority)
        return own


class CopiedMessage(Message, frozen=True):
    """A message to send whose fields are not checked: a copy of a stored one keeps them as they are."""

    def _check(self) -> None:
        pass


def _milliseconds(delay: float | timedelta) -> int:
    """Converts a delay (seconds or timedelta) to milliseconds, rounded up, so that none ends early."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    return math.ceil(round(1000 * seconds, 3))


def deliver_at_ms(at: datetime | int) -> int:
    """Returns a delivery time in milliseconds since 1970, rounded up; a number is returned unchanged."""
    if not isinstance(at, datetime):
        return at
    return -((EPOCH - at) // timedelta(milliseconds=1))


def _keys(given: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Iterable):
        return tuple(given)
    raise InvalidArgument(f"keys must be text or a list of texts, got {given!r}: write str(key)")


def _bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidArgument(
        f"body must be bytes, got {type(body).__name__}: write text.encode(), or Message.json(topic, value)"
    )


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic at one broker."""

    topic: str
    broker: str
    id: int

    def to_wire(self) -> bodies.WireQueue:
        return bodies.WireQueue(self.broker, self.id, self.topic)

    @classmethod
    def of_wire(cls, queue: bodies.WireQueue) -> "MessageQueue":
        return cls(queue.topic, queue.brokerName, queue.queueId)


class MessageExt(msgspec.Struct, frozen=True, dict=True):  # `dict`: for cached properties
    """A stored message as read from a broker, with its queue and offset."""

    record: Record
    queue: MessageQueue
    """The queue it was read from; for a repeated delivery a queue of the group's retry topic."""
    ends: tuple[int, int] | None = None
    """The lowest and the next offset of the queue when the message was pulled."""
    local_retries: int = 0
    """How many deliveries failed in this process and could not be sent back."""
    namespace: str = ""
    """The namespace of the consumer that received it; `topic` is without it."""
    decompresses: bool = True
    """False: `body` of a compressed message stays compressed."""

    def __repr__(self) -> str:
        return f"<MessageExt {', '.join(f'{name}={value}' for name, value in self._shown())}>"

    def _repr_html_(self) -> str:
        return html_table("MessageExt", self._shown())

    def _shown(self) -> list[tuple[str, object]]:
        where = f"{self.queue.broker}/{self.queue.id}@{self.offset}"
        rows = [
            ("topic", self.topic),
            ("tags", self.tags or ""),
            ("keys", " ".join(self.keys)),
            ("id", self.message_id),
            ("queue", where),
            ("reconsume_times", self.reconsume_times or ""),
        ]
        stored_at = datetime.fromtimestamp(self.store_timestamp // 1000, UTC).isoformat()
        return [
            *((name, value) for name, value in rows if value),
            ("stored", stored_at),
            ("body", self._text()),
        ]

    def _text(self) -> str:
        try:
            return body_text(self.body)
        except Exception as error:  # it cannot be decompressed; a repr must not fail
            return f"{body_text(self.record.body)} ({error})"

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """The stored properties; for a pulled message also MIN_OFFSET and MAX_OFFSET of its queue then."""
        stored = self.record.property_map()
        if self.ends is not None:
            stored[properties.MIN_OFFSET], stored[properties.MAX_OFFSET] = map(str, self.ends)
        return stored

    @property
    def body(self) -> bytes:
        """The body, decompressed unless `decode_decompress_body=False`. Raises BrokenBody if that fails."""
        if self.record.sys_flag & COMPRESSED and self.decompresses:
            return self._decompressed
        return self.record.body

    @cached_property
    def _decompressed(self) -> bytes:
        return body_of(self.record)

    @property
    def topic(self) -> str:
        """The topic that the message was sent to, also when it is delivered again through a retry topic.

        A dead letter keeps the dead-letter topic.
        """
        stored_in = self.record.topic
        is_retry = stored_in.startswith(names.RETRY_PREFIX)
        sent_to = (self.properties.get(properties.RETRY_TOPIC) if is_retry else None) or stored_in
        return unwrap(self.namespace, sent_to) if self.namespace else sent_to

    @property
    def tags(self) -> str | None:
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(properties.KEYS, "").split())

    @property
    def message_id(self) -> str:
        """The unique id that the producer gave the message, the same in every copy; else the offset id."""
        return self.properties.get(properties.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id of this stored copy: the broker's address and the offset in its commit log."""
        return offset_id(self.record.store_host, self.record.physical_offset)

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: type[T]) -> T: ...
    def json(self, kind: Any = None) -> Any:
        """Returns the body decoded from JSON, as a `kind` if given. Raises UnreadableMessage.

        `kind` is a dataclass, msgspec struct, pydantic model, list[int] … Raises UnreadableMessage, which
        names the field that does not fit.
        """
        return from_json(self.body, kind)

    @property
    def text(self) -> str:
        """The body decoded as UTF-8."""
        return self.body.decode()

    @property
    def behind(self) -> int:
        """How many messages the queue had after this one when it was pulled; 0 if that is not known."""
        return max(0, self.ends[1] - self.record.queue_offset - 1) if self.ends is not None else 0

    @property
    def delay_level(self) -> int:
        level = self.properties.get(properties.DELAY, "")
        return int(level) if level.isdecimal() else 0

    @property
    def flag(self) -> int:
        return self.record.flag

    @property
    def born_host(self) -> str:
        return host_text(self.record.born_host)

    @property
    def store_host(self) -> str:
        return host_text(self.record.store_host)

    @property
    def offset(self) -> int:
        return self.record.queue_offset

    @property
    def reconsume_times(self) -> int:
        """How many earlier deliveries of this message to its group have failed; 0: the first delivery."""
        return self.record.reconsume_times + self.local_retries

    @property
    def born_timestamp(self) -> int:
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.record.store_timestamp


class SendStatus(Enum):
    """How safely a broker stored a message: SEND_OK as it was asked to, all others less safely."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """The receipt of a send: ids, queue, offset, and how safely the broker stored the message.

    `durability` and `replicas` come from Turbopump's brokers only.
    """

    status: SendStatus
    message_id: str
    """The id that the sender gave it; consumers see the same."""
    offset_message_id: str
    """The id that names its place in the broker's store."""
    queue: MessageQueue
    offset: int
    durability: str | None = None
    replicas: int | None = None
    recall_handle: str | None = None
    """For a delayed message: with it `producer.recall` can recall the message."""
    delay_level: int | None = None
    """The level that the broker applied, its highest if the message asked for more; not from Apache's."""
    term: int | None = None
    """With durability `quorum`: the term of the leader that stored the message in its DLedger group."""
    index: int | None = None
    """With durability `quorum`: the index of its entry, of the last one for a batch."""

    def __repr__(self) -> str:
        return f"SendResult({', '.join(f'{name}={value}' for name, value in self._shown())})"

    def _repr_html_(self) -> str:
        return html_table("SendResult", self._shown())

    def _shown(self) -> list[tuple[str, object]]:
        rows = [
            ("status", self.status.name),
            ("topic", self.queue.topic),
            ("queue", f"{self.queue.broker}/{self.queue.id}"),
            ("offset", self.offset),
            ("message_id", self.message_id),
            ("durability", self.durability),
            ("replicas", self.replicas),
            ("term", self.term),
            ("index", self.index),
            ("delay_level", self.delay_level),
            ("recall_handle", self.recall_handle),
        ]
        return [(name, value) for name, value in rows if value is not None]
