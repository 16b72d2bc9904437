"""Letters: a message, or a batch of them, ready for the wire.

What all letters of one kind have in common is their envelope, whose header is packed once for each queue. How
a message becomes a letter, and where it goes, is in `sender.py`.
"""

from collections.abc import Sequence

from turbopump.client.message import Message, MessageQueue
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.packed_send import head_of


class HeaderTemplate:
    """What all letters of one kind have in common."""

    __slots__ = ("code", "fields", "heads", "topic")

    def __init__(self, topic: str, fields: dict[str, str], code: int = RequestCode.SEND_MESSAGE_V2) -> None:
        self.topic = topic
        """With its namespace."""
        self.fields = fields
        """Of the header, those that are the same for all queues."""
        self.code = int(code)
        self.heads: dict[tuple[str, int], bytes] = {}  # by broker and queue: the header's beginning, packed

    def head(self, queue: MessageQueue) -> bytes:
        place = queue.broker, queue.id
        head = self.heads.get(place)
        if head is None:
            named = {**self.fields, "e": str(queue.id), "n": queue.broker}
            head = self.heads[place] = head_of(self.code, named)
        return head

    def but(self, code: int | None = None, **fields: str) -> "HeaderTemplate":
        """One that differs so."""
        return HeaderTemplate(self.topic, {**self.fields, **fields}, self.code if code is None else code)


class PreparedSend:
    """A message, or a batch of them, ready for the wire."""

    __slots__ = (
        "body",
        "envelope",
        "is_raw",
        "message",
        "message_ids",
        "messages",
        "properties",
        "unique_key",
    )

    def __init__(
        self,
        message: Message,
        envelope: HeaderTemplate,
        body: bytes,
        properties: str,
        unique_key: str,
        messages: Sequence[Message] = (),
        message_ids: Sequence[str] = (),
    ) -> None:
        self.message = message
        self.envelope = envelope
        self.body = body
        self.properties = properties
        """As one text; hooks may add to it."""
        self.unique_key = unique_key
        self.messages = messages
        self.message_ids = message_ids
        self.is_raw = False
        """Its body is still to be compressed."""


def with_counters(envelope: HeaderTemplate, own: dict[str, str]) -> HeaderTemplate:
    """Of a copy that is sent back: the counters travel in the header."""
    envelope = envelope.but(j=own.pop(properties.RECONSUME_TIME, "0"))
    most = own.pop(properties.MAX_RECONSUME_TIMES, "0")
    return envelope.but(l=most) if most != "0" else envelope
