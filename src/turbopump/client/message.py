"""What a user of the client holds: a message to send, the queue it went to, and what the broker answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from turbopump.protocol import properties
from turbopump.protocol.codes import ResponseCode


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

    def property_map(self) -> dict[str, str]:
        """The message's own properties with tags and keys among them; empty ones are left out."""
        own = {**self.properties, properties.TAGS: self.tags, properties.KEYS: " ".join(self.keys)}
        return {name: value for name, value in own.items() if value}


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    topic: str
    broker: str
    id: int


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
    queue_offset: int
    durability: str | None = None
    replicas: int | None = None
