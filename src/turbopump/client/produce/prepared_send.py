"""`PreparedSend`, a message or batch packed for the wire, and `HeaderTemplate`, the header of all such sends.

All sends of one kind share a `HeaderTemplate`, whose header is packed once for each queue. `packer.py` makes
a `PreparedSend` of a message, `sender.py` decides where it goes.
"""

from collections.abc import Sequence

from turbopump.client.message import Message, MessageQueue
from turbopump.protocol import properties
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.packed_send import head_of


class HeaderTemplate:
    """The header fields that all sends of one kind share; keeps the packed start of the header by queue."""

    __slots__ = ("code", "fields", "heads", "topic")

    def __init__(self, topic: str, fields: dict[str, str], code: int = RequestCode.SEND_MESSAGE_V2) -> None:
        self.topic = topic
        """With its namespace."""
        self.fields = fields
        """Header fields that are the same for all queues."""
        self.code = int(code)
        self.heads: dict[tuple[str, int], bytes] = {}  # broker and queue → start of the header, packed

    def head(self, queue: MessageQueue) -> bytes:
        """Returns the start of the request header for sends to this queue, packed into bytes."""
        place = queue.broker, queue.id
        head = self.heads.get(place)
        if head is None:
            named = {**self.fields, "e": str(queue.id), "n": queue.broker}
            head = self.heads[place] = head_of(self.code, named)
        return head

    def but(self, code: int | None = None, **fields: str) -> "HeaderTemplate":
        """Returns a copy of the template with another request code or other values of fields."""
        return HeaderTemplate(self.topic, {**self.fields, **fields}, self.code if code is None else code)


class PreparedSend:
    """A message, or a batch of messages, packed for the wire: what all tries of its send have in common."""

    __slots__ = (
        "body",
        "is_raw",
        "message",
        "message_ids",
        "messages",
        "properties",
        "template",
        "unique_key",
    )

    def __init__(
        self,
        message: Message,
        template: HeaderTemplate,
        body: bytes,
        properties: str,
        unique_key: str,
        messages: Sequence[Message] = (),
        message_ids: Sequence[str] = (),
    ) -> None:
        self.message = message
        self.template = template
        self.body = body
        self.properties = properties
        """Packed into one text; hooks may add to it."""
        self.unique_key = unique_key
        self.messages = messages
        self.message_ids = message_ids
        self.is_raw = False
        """Whether the body is still to be compressed."""


def with_counters(template: HeaderTemplate, own: dict[str, str]) -> HeaderTemplate:
    """Returns the template with the retry counters of `own` in its header, and removes them from `own`."""
    template = template.but(j=own.pop(properties.RECONSUME_TIME, "0"))
    max_times = own.pop(properties.MAX_RECONSUME_TIMES, "0")
    return template.but(l=max_times) if max_times != "0" else template
