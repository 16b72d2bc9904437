"""What a user of the client holds: a message to send or received, its queue, and what the broker answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from turbopump.protocol import bodies, names, properties
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.ids import offset_id
from turbopump.protocol.record import Record, body_of


@dataclass(frozen=True, slots=True)
class Message:
    """A message before it is sent.

    >>> Message("orders", b"...", tags="paid", keys=("order-42",)).property_map()
    {'TAGS': 'paid', 'KEYS': 'order-42'}
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    """Any number: brokers keep it and no one interprets it."""

    def property_map(self) -> dict[str, str]:
        """The message's own properties with tags and keys among them; empty ones are left out."""
        named = {properties.TAGS: self.tags, properties.KEYS: " ".join(self.keys)}
        own = {**self.properties, **{name: value for name, value in named.items() if value}}
        return {name: value for name, value in own.items() if value}


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    topic: str
    broker: str
    id: int

    def to_wire(self) -> bodies.MessageQueue:
        return bodies.MessageQueue(self.broker, self.id, self.topic)

    @classmethod
    def of_wire(cls, queue: bodies.MessageQueue) -> "MessageQueue":
        return cls(queue.topic, queue.brokerName, queue.queueId)


@dataclass(frozen=True)
class MessageExt:
    """A message as it was received."""

    record: Record
    queue: MessageQueue
    """Where it was read: of a message that comes again, a queue of the group's retry topic."""
    ends: tuple[int, int] | None = None
    """The queue's lowest and next offset when the message was pulled."""
    local_retries: int = 0
    """Deliveries that failed here and could not be sent back."""

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """Those it is stored with, and the queue's ends, which tell a consumer how far behind it is."""
        stored = self.record.property_map()
        if self.ends is not None:
            stored[properties.MIN_OFFSET], stored[properties.MAX_OFFSET] = map(str, self.ends)
        return stored

    @cached_property
    def body(self) -> bytes:
        """Raises BrokenBody when it is compressed and cannot be read."""
        return body_of(self.record)

    @property
    def topic(self) -> str:
        """Where it was sent, also when it comes again through a retry topic. A dead letter is what it is."""
        stored_in = self.record.topic
        is_retry = stored_in.startswith(names.RETRY_PREFIX)
        return (self.properties.get(properties.RETRY_TOPIC) if is_retry else None) or stored_in

    @property
    def tags(self) -> str | None:
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(properties.KEYS, "").split())

    @property
    def message_id(self) -> str:
        """The sender's id; the same in every copy of the message."""
        return self.properties.get(properties.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Where this copy of it is stored."""
        return offset_id(self.record.store_host, self.record.physical_offset)

    @property
    def offset(self) -> int:
        return self.record.queue_offset

    @property
    def reconsume_times(self) -> int:
        """How often its consumption has failed before."""
        return self.record.reconsume_times + self.local_retries

    @property
    def born_timestamp(self) -> int:
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.record.store_timestamp


class SendStatus(Enum):
    """The four answers that mean "stored"; all but the first with a wish that was not fulfilled in time."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where the message is. `durability` and `replicas` are the broker's receipt; Apache's give none."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    offset: int
    durability: str | None = None
    replicas: int | None = None
