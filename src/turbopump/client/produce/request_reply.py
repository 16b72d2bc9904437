"""Request–reply: a message that asks for an answer, and the answer, which comes back to the same client.

The request is an ordinary message that names the client that asks. Its consumer replies to the broker's reply
topic, and the broker forwards the reply to the client over the connection that its heartbeats use.
"""

import asyncio
import uuid
from dataclasses import dataclass, field

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, MessageExt, MessageQueue
from turbopump.protocol import names, properties
from turbopump.protocol.headers.send import PushReplyMessageRequest
from turbopump.protocol.ids import pack_host
from turbopump.protocol.record import Record, crc31
from turbopump.protocol.sysflag import HOSTS_MASK
from turbopump.runtime.chance import Chance

REPLY = "reply"


@dataclass
class PendingReplies:
    """The requests of one client that wait for replies: a future for each correlation id."""

    waiting: dict[str, asyncio.Future[MessageExt]] = field(default_factory=dict)

    def expect(self, correlation_id: str) -> asyncio.Future[MessageExt]:
        """Registers a request and returns the future of its reply; cancel the future to stop waiting."""
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self.waiting[correlation_id] = future
        future.add_done_callback(lambda _: self.waiting.pop(correlation_id, None))
        return future

    def arrived(self, reply: MessageExt) -> bool:
        """Gives a reply to the request that waits for it; False: no request waits for it any more."""
        future = self.waiting.get(reply.properties.get(properties.CORRELATION_ID, ""))
        if future is None or future.done():
            return False
        future.set_result(reply)
        return True


def marks_of_request(client_id: str, timeout_s: float, chance: Chance) -> dict[str, str]:
    """Returns the properties of a request: a new correlation id, the asking client and the time limit."""
    return {
        properties.CORRELATION_ID: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        properties.REPLY_TO_CLIENT: client_id,
        properties.TTL: str(round(timeout_s * 1000)),
    }


def reply_to(request: MessageExt, body: bytes) -> tuple[Message, dict[str, str]]:
    """Returns the reply to a request, and the properties that address it. Raises InvalidArgument."""
    asked = request.properties
    marks = {
        name: asked[name]
        for name in (properties.CORRELATION_ID, properties.REPLY_TO_CLIENT, properties.TTL)
        if name in asked
    }
    cluster = asked.get(properties.CLUSTER)
    if properties.CORRELATION_ID not in marks or properties.REPLY_TO_CLIENT not in marks:
        raise InvalidArgument(
            f"message {request.message_id} must be a request, got one without {properties.CORRELATION_ID}: "
            "only messages sent with request() can be replied to"
        )
    if not cluster:
        raise InvalidArgument(
            f"message {request.message_id} does not name its cluster, so the topic of the reply is unknown "
            "(10007): brokers before 4.6 do not set it"
        )
    return Message(f"{cluster}_{names.REPLY_POSTFIX}", body), {**marks, properties.MESSAGE_TYPE: REPLY}


def reply_of(header: PushReplyMessageRequest, body: bytes, now_ms: int) -> MessageExt:
    """Returns the reply that a broker has pushed to this client, as a received message."""
    packed = properties.append(header.properties or "", properties.ARRIVE_TIME, str(now_ms))
    record = Record(
        topic=header.topic,
        queue_id=header.queueId,
        flag=header.flag,
        queue_offset=0,
        physical_offset=0,
        sys_flag=header.sysFlag & ~HOSTS_MASK,
        born_timestamp=header.bornTimestamp,
        born_host=_host(header.bornHost),
        store_timestamp=header.storeTimestamp,
        store_host=_host(header.storeHost),
        reconsume_times=header.reconsumeTimes,
        body=body,
        properties=packed.encode(),
        body_crc=crc31(body),
    )
    return MessageExt(record, MessageQueue(header.topic, "", header.queueId))


def _host(text: str) -> bytes:
    """Returns `ip:port`, as Apache writes it, as packed bytes; eight zeros for a text that is no address."""
    ip, _, port = text.removeprefix("/").rpartition(":")
    try:
        return pack_host(ip.strip("[]"), int(port))
    except ValueError:
        return bytes(8)
